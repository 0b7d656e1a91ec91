"""pytrace.runtime.elf.symbol_columns on files made by hand; the names are those that look-ups find."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from pytrace.runtime.elf import symbol_columns
from pytrace.runtime.elf.file import SHT_SYMTAB, ElfFile
from pytrace.runtime.elf.symbol_columns import CODE_TYPES, function_names

OBJECT, FUNCTION, IFUNC = 1, 2, 10
ELSEWHERE, HERE, RESERVED = 0, 3, 0x0300

Record = tuple[int, int, int]
"""Place of the name among the strings, type, section."""


def records(rows: Sequence[Record], wide: bool) -> bytes:
    if wide:
        return b"".join(struct.pack("<IBBHQQ", at, 0x10 | kind, 0, owner, 16, 4) for at, kind, owner in rows)
    return b"".join(struct.pack("<IIIBBH", at, 16, 4, 0x10 | kind, 0, owner) for at, kind, owner in rows)


def image(strings: bytes, rows: Sequence[Record], *, wide: bool = True, tail: bytes = b"") -> ElfFile:
    """An ELF file of nothing but a symbol table and its strings."""
    data = records(rows, wide) + tail
    start = 64 if wide else 52
    header = (3, 62, 1, 0, 0, start + len(data) + len(strings), 0, start, 56, 0, 64 if wide else 40, 3, 2)
    section = "<IIQQQQIIQQ" if wide else "<IIIIIIIIII"
    sections = (
        (0,) * 10,
        (0, SHT_SYMTAB, 0, 0, start, len(data), 2, 0, 8, 24),
        (0, 3, 0, 0, start + len(data), len(strings), 0, 0, 1, 0),
    )
    head = b"\x7fELF" + bytes((2 if wide else 1, 1)) + bytes(10)
    head += struct.pack("<HHIQQQIHHHHHH" if wide else "<HHIIIIIHHHHHH", *header)
    body = head + data + strings + b"".join(struct.pack(section, *row) for row in sections)
    return ElfFile(body, "made")


def names(strings: bytes, rows: Sequence[Record], *, wide: bool = True, tail: bytes = b"") -> list[str]:
    """The names of the table, compared with those that a look-up of everything finds."""
    file = image(strings, rows, wide=wide, tail=tail)
    (section,) = file.symbol_sections
    found = sorted(function_names(file, section))
    (table,) = file.tables
    assert found == sorted(symbol.name for symbol in table.match("*"))
    return found


@pytest.mark.parametrize("wide", [True, False])
def test_functions_that_are_defined_here(wide: bool) -> None:
    strings = b"\0one\0data\0import\0chosen\0far\0"
    rows = [(1, FUNCTION, HERE), (5, OBJECT, HERE), (10, FUNCTION, ELSEWHERE), (17, IFUNC, HERE),
            (24, FUNCTION, RESERVED)]  # fmt: skip
    assert names(strings, rows, wide=wide, tail=b"half") == ["chosen", "far", "one"]


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize(("types", "expected"), [(CODE_TYPES, [1, 0, 0, 1, 0]), (None, [1, 1, 0, 1, 1])])
def test_the_records_that_count(wide: bool, types: frozenset[int] | None, expected: list[int]) -> None:
    rows = [(1, FUNCTION, HERE), (1, OBJECT, HERE), (1, FUNCTION, ELSEWHERE), (1, IFUNC, RESERVED), (1, 0, HERE)]
    assert list(symbol_columns.defined(memoryview(records(rows, wide)), wide, types)) == expected


def test_an_empty_table() -> None:
    assert names(b"\0", []) == []


def test_names_come_in_any_order_and_may_repeat() -> None:
    strings = b"\0second\0first\0first\0"
    assert names(strings, [(14, FUNCTION, HERE), (8, FUNCTION, HERE), (1, FUNCTION, HERE), (8, FUNCTION, HERE)]) == [
        "first", "first", "first", "second",
    ]  # fmt: skip


def test_versions_are_removed_from_all_names_that_share_a_tail() -> None:
    strings = b"\0plain\0vfs_read@@V2@x\0free@V1\0last\0"
    at = {name: strings.index(name) for name in (b"plain", b"vfs_read", b"read", b"free", b"last")}
    rows = [(place, FUNCTION, HERE) for place in at.values()]
    assert names(strings, rows) == ["free", "last", "plain", "read", "vfs_read"]
    assert names(strings, [(at[b"read"], FUNCTION, HERE)]) == ["read"]
    assert names(strings, [(at[b"plain"], FUNCTION, HERE), (at[b"last"], FUNCTION, HERE)]) == ["last", "plain"]


def test_a_name_that_begins_in_a_version_has_none() -> None:
    strings = b"\0read@@V2\0"
    assert names(strings, [(strings.index(b"V2"), FUNCTION, HERE)]) == ["V2"]


@pytest.mark.parametrize("strings", [b"\0one\0two@V", b"\0one\0two@", b"\0one\0@", b"\0one\0tw"])
def test_strings_whose_end_is_missing(strings: bytes) -> None:
    file = image(strings, [(1, FUNCTION, HERE), (5, FUNCTION, HERE), (99, FUNCTION, HERE)])
    (section,) = file.symbol_sections
    assert "one" in function_names(file, section)


def test_names_in_any_encoding() -> None:
    strings = b"\0" + "größe".encode() + b"\0odd\xff@V\0"
    assert names(strings, [(1, FUNCTION, HERE), (strings.index(b"odd"), FUNCTION, HERE)]) == ["größe", "odd\udcff"]
