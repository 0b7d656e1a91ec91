"""Tests of Go's table of functions, in all of its formats; tables of ours, as no suite has compilers for all."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrace.runtime.elf import go_functions, go_module
from pytrace.runtime.elf.go_functions import functions

NAMES = b"\0main.main\0net/http.(*Server).Serve\0"
PLACES = ((0x401000, 1), (0x401040, 11))
END = 0x401100


def table(magic: int, text: int = 0x401000, word: int = 8) -> bytes:
    """A table with two functions."""
    head = struct.pack("<IBBBBQQ", magic, 0, 0, 1, word, len(PLACES), 0)
    if magic == go_functions._GO12:
        rows_at, wide, name_at = 16, "Q", 8
        infos_at = rows_at + 8 * 5
        names_at = infos_at + 2 * 12
        rows = b"".join(struct.pack("<QQ", pc, infos_at + 12 * at) for at, (pc, _) in enumerate(PLACES))
        infos = b"".join(struct.pack("<QI", pc, names_at + name) for pc, name in PLACES)
        return head[:16] + rows + struct.pack("<Q", END) + infos + NAMES
    new = magic != go_functions._GO116
    wide, name_at = ("I", 4) if new else ("Q", 8)
    names_at = 72 if new else 64
    rows_at = names_at + len(NAMES)
    base = 0x401000 if new else 0
    size = struct.calcsize(f"<5{wide}")
    info = size + 1
    head += struct.pack("<Q", text) if new else b""
    head += struct.pack("<5Q", names_at, 0, 0, 0, rows_at)
    rows = b"".join(struct.pack(f"<2{wide}", pc - base, info + 16 * at) for at, (pc, _) in enumerate(PLACES))
    infos = b"".join((b"\xcc" * name_at + struct.pack("<I", name)).ljust(16, b"\0") for _, name in PLACES)
    return head.ljust(names_at, b"\0") + NAMES + rows + struct.pack(f"<{wide}", END - base) + b"\0" + infos


def file(data: bytes, relocations: bytes = b"", name: str = ".gopclntab") -> Any:
    """A binary with the section, at 0x500000."""
    return program({name: data, ".rela.dyn": relocations})


def program(contents: dict[str, bytes]) -> Any:
    """A binary with sections, all at 0x500000."""
    sections = {key: SimpleNamespace(name=key, address=0x500000) for key in contents}
    return SimpleNamespace(section=sections.get, contents=lambda section: memoryview(contents[section.name]))


FORMATS = [go_functions._GO12, go_functions._GO116, go_functions._GO118, go_functions._GO120]


@pytest.mark.parametrize("magic", FORMATS)
def test_all_formats(magic: int) -> None:
    found = functions(file(table(magic)))
    assert found is not None
    assert found.names() == [b"main.main", b"net/http.(*Server).Serve"]
    symbol = found.covering(0x401050)
    assert symbol is not None
    assert (symbol.name, symbol.address, symbol.size) == ("net/http.(*Server).Serve", 0x401040, END - 0x401040)
    assert found.covering(END) is None
    assert [item.name for item in found.match("main.*")] == ["main.main"]


def test_a_program_that_may_lie_anywhere() -> None:
    """Where its code begins is in another place, as the dynamic linker has to write it."""
    data = table(go_functions._GO118, text=0)
    module = struct.pack("<QQ", 0x500000, 0x500000 + 72).ljust(8 * go_module.TEXT, b"\0") + struct.pack("<Q", 0x401000)
    found = functions(program({".data.rel.ro.gopclntab": data, ".go.module": module}))
    assert found is not None
    assert found.addresses == [0x401000, 0x401040]
    assert functions(file(data)) is None


@pytest.mark.parametrize("magic", FORMATS)
def test_where_code_of_go_is(magic: int) -> None:
    assert go_functions.code(file(table(magic))) == range(0x401000, END)
    assert go_functions.code(file(table(magic)[:20])) == range(0)


def test_a_table_that_the_c_linker_has_put_among_other_data() -> None:
    """Of a position-independent program with C."""
    data = b"\xf1\xff\xff\xff".rjust(20, b"\1") + bytes(4) + table(go_functions._GO120)
    contents = {".data.rel.ro": data, ".note.go.buildid": b"", ".rela.dyn": b""}
    assert go_functions.code(program(contents)) == range(0x401000, END)
    del contents[".note.go.buildid"]
    assert go_functions.code(program(contents)) == range(0)


@pytest.mark.parametrize("data", [b"", b"\xf1\xff\xff\xff", table(0x12345678), table(go_functions._GO120, word=4)])
def test_what_is_no_table(data: bytes) -> None:
    assert functions(file(data)) is None
    assert functions(file(data, name=".other")) is None


def test_an_offset_that_is_too_large() -> None:
    whole = bytearray(table(go_functions._GO120))
    whole[24 + 5 * 8 : 24 + 6 * 8] = (1 << 63 | 100).to_bytes(8, "little")
    assert functions(file(bytes(whole))) is None


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FORMATS), st.data())
def test_damaged_tables(magic: int, data: st.DataObject) -> None:
    whole = bytearray(table(magic))
    for place in data.draw(st.lists(st.integers(4, len(whole) - 1), max_size=6)):
        whole[place] = data.draw(st.integers(0, 255))
    found = functions(file(bytes(whole[: data.draw(st.integers(0, len(whole)))])))
    if found is not None:
        found.covering(0x401050)
        found.names()
