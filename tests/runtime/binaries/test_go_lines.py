"""Tests of source lines and inlined functions from Go's tables, on tables of ours."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.runtime.binaries import go_binaries
from pytrace.runtime.binaries.function_places import Place
from pytrace.runtime.binaries.go_binaries import GoLines

TEXT, END = 0x401000, 0x401040
NAMES = b"\0main.outer\0main.inner\0main.leaf\0"
OUTER, INNER, LEAF = (NAMES.index(name) for name in (b"main.outer", b"main.inner", b"main.leaf"))
FILES = b"/src/main.go\0/src/leaf.go\0"
UNITS = struct.pack("<3I", 0xFFFFFFFF, 0, 13)
TREE_AT, TREES = 64, 0x600000
"""Where trees are in the file, and the address that their places count from."""


def steps(*pairs: tuple[int, int]) -> bytes:
    """A table of values: each holds for so many bytes."""
    data, value = b"", -1
    for new, length in pairs:
        change = new - value
        data += bytes([(change << 1 ^ change >> 63) & 0x7F, length])
        value = new
    return data + b"\0"


def table(magic: int) -> tuple[bytes, bytes]:
    """The table of a program with one function, and its tree: leaf() in inner() in outer(), from byte 16 to 32."""
    old = magic == go_binaries._GO118
    tables = [steps((0, 64)), steps((1, 16), (2, 16), (1, 32)), steps((10, 16), (60, 16), (12, 32))]
    tables.append(steps((-1, 16), (1, 16), (0, 8), (-1, 24)))
    places, content = [], b"\0"
    for part in tables:
        places.append(len(content))
        content += part
    info = struct.pack("<IIIIIIIII", 0, OUTER, 0, 0, *places[:3], 3, 0)
    info += b"" if old else struct.pack("<i", 7)
    info += bytes([0, 0, 0, 4]) + struct.pack("<3I", 0, 0, places[3]) + struct.pack("<4I", *[0xFFFFFFFF] * 3, 0)
    rows = struct.pack("<III", 0, 12, END - TEXT) + info
    parts = [NAMES, UNITS, FILES, content, rows]
    offsets, at = [], 72
    for part in parts:
        offsets.append(at)
        at += len(part)
    head = struct.pack("<IBBBBQQ", magic, 0, 0, 1, 8, 1, 0) + struct.pack("<6Q", TEXT, *offsets)
    calls = [(INNER, 2), (LEAF, 34)]
    old_row, row = struct.Struct("<hBBiiii"), struct.Struct("<B3xiii")
    rows_of = (old_row.pack(-1, 0, 0, 1, 11, *call) if old else row.pack(0, *call, 7) for call in calls)
    tree = b"".join(rows_of)
    return head + b"".join(parts), tree


def program(magic: int, *, known: bool = True) -> Any:
    data, tree = table(magic)
    words = [0x500000, 0x500000 + 72, *[0] * 46]
    words[37:39] = [1, 2]
    words[38 if magic == go_binaries._GO118 else 40] = TREES
    contents = {".gopclntab": data, ".data": struct.pack("<48Q", *words) if known else b""}
    sections = {name: SimpleNamespace(name=name, address=0x500000) for name in contents}
    return SimpleNamespace(
        section=sections.get,
        contents=lambda section, most=None: memoryview(contents[section.name])[:most],
        file_offset=lambda address: address - TREES + TREE_AT,
        view=memoryview(bytes(TREE_AT) + tree),
        base=0,
    )


FORMATS = [go_binaries._GO118, go_binaries._GO120]


@pytest.mark.parametrize("magic", FORMATS)
def test_lines_and_inlined_functions(magic: int) -> None:
    lines = GoLines.read(program(magic))
    assert lines is not None
    assert lines.frames(TEXT) == [Place("main.outer", "/src/main.go", 10)]
    assert lines.frames(TEXT + 34) == [Place("main.inner", "/src/main.go", 12), Place("main.outer", "/src/main.go", 10)]
    assert lines.frames(TEXT + 20) == [
        Place("main.leaf", "/src/leaf.go", 60),
        Place("main.inner", "/src/main.go", 12),
        Place("main.outer", "/src/main.go", 10),
    ]
    assert lines.frames(TEXT + 60) == [Place("main.outer", "/src/main.go", 12)]
    assert lines.frames(END) == lines.frames(TEXT - 1) == []


@pytest.mark.parametrize("magic", FORMATS)
def test_lines_without_what_is_inlined(magic: int) -> None:
    """Where the module is not found."""
    lines = GoLines.read(program(magic, known=False))
    assert lines is not None
    assert lines.frames(TEXT + 20) == [Place("main.outer", "/src/leaf.go", 60)]


def test_damaged_tables() -> None:
    """What is cut off anywhere is not known, and raises nothing."""
    whole, _ = table(go_binaries._GO120)
    for length in range(len(whole)):
        file = program(go_binaries._GO120)
        file.contents = lambda section, most=length: memoryview(whole[:most] if section.name == ".gopclntab" else b"")
        lines = GoLines.read(file)
        for address in (TEXT, TEXT + 20, TEXT + 34) if lines is not None else ():
            assert isinstance(lines.frames(address), list)


def test_other_programs() -> None:
    assert GoLines.read(program(go_binaries._GO116)) is None
