"""pytrace.runtime.elf.symbol_table on tables made by hand, of both ELF classes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.elf import symbol_table
from pytrace.runtime.elf.file import SHT_SYMTAB, ElfFile
from pytrace.runtime.elf.symbol_table import CODE_TYPES, Symbol, SymbolTable, defined, function_names
from tests.support.rows import each_row

OBJECT, FUNCTION, IFUNC = 1, 2, 10
HERE, ELSEWHERE = 3, 0

Row = tuple[str, int, int, int, int]
"""Name, address, size, type, section."""


def table(rows: Iterable[Row], *, wide: bool = True, types: frozenset[int] | None = frozenset((FUNCTION, IFUNC)),
          tail: bytes = b"") -> SymbolTable:  # fmt: skip
    strings, data = bytearray(b"\0"), b""
    for name, address, size, kind, section in rows:
        at = strings.find(name.encode("utf-8", "surrogateescape") + b"\0")
        if at < 0:
            at = len(strings)
            strings += name.encode("utf-8", "surrogateescape") + b"\0"
        if wide:
            data += struct.pack("<IBBHQQ", at, 0x10 | kind, 0, section, address, size)
        else:
            data += struct.pack("<IIIBBH", at, address, size, 0x10 | kind, 0, section)
    return SymbolTable(data + tail, bytes(strings), wide, types)


def functions(*rows: tuple[str, int, int]) -> list[Row]:
    return [(*row, FUNCTION, HERE) for row in rows]


@pytest.mark.parametrize("wide", [True, False])
def test_defined_functions_in_order_of_address(wide: bool) -> None:
    made = table(
        [
            ("later", 0x300, 4, FUNCTION, HERE),
            ("variable", 0x100, 8, OBJECT, HERE),
            ("chosen", 0x200, 16, IFUNC, HERE),
            ("imported", 0, 0, FUNCTION, ELSEWHERE),
        ],
        wide=wide,
        tail=b"half",
    )
    assert len(made) == 2
    assert made.addresses == [0x200, 0x300]
    assert made.names() == [b"chosen", b"later"]
    assert [made.symbol(index) for index in range(2)] == [
        Symbol("chosen", 0x200, 16, indirect=True),
        Symbol("later", 0x300, 4),
    ]


def test_symbols_of_all_types() -> None:
    rows = [("variable", 0x100, 8, OBJECT, HERE), ("imported", 0, 0, OBJECT, ELSEWHERE)]
    assert table(rows, types=None).match("*") == [Symbol("variable", 0x100, 8)]


def test_an_empty_table() -> None:
    made = table([])
    assert len(made) == 0
    assert made.match("*") == made.match("x") == []
    assert made.covering(0) is None


VERSIONED = functions(("malloc@@V2", 0x10, 4), ("malloc@V1", 0x20, 4), ("xmalloc", 0x30, 4), ("free", 0x40, 4))


@pytest.mark.parametrize(
    ("pattern", "addresses"),
    [
        ("malloc", [0x10, 0x20]),
        ("alloc", []),
        ("*malloc", [0x10, 0x20, 0x30]),
        ("malloc*", [0x10, 0x20]),
        ("*V2", []),
        ("free", [0x40]),
        ("fre", []),
        ("ree", []),
    ],
)
def test_patterns_do_not_see_versions(pattern: str, addresses: list[int]) -> None:
    made = table(VERSIONED)
    found = made.match(pattern)
    assert [symbol.address for symbol in found] == addresses
    assert not any("@" in symbol.name for symbol in found)


def test_strings_may_share_their_tails() -> None:
    """A linker stores ``read`` as the end of ``vfs_read``."""
    strings = b"\0vfs_read\0"
    data = b"".join(struct.pack("<IBBHQQ", at, FUNCTION, 0, HERE, 16 * at, 4) for at in (1, 5))
    made = SymbolTable(data, strings, True)
    assert made.match("read") == [Symbol("read", 80, 4)]
    assert made.match("vfs_read") == [Symbol("vfs_read", 16, 4)]


def test_names_in_any_encoding() -> None:
    made = table(functions(("größe", 0x10, 4), ("odd\udcff", 0x20, 4)))
    assert made.match("größe") == [Symbol("größe", 0x10, 4)]
    assert made.match("odd\udcff") == [Symbol("odd\udcff", 0x20, 4)]
    assert made.match("gr*e") == [Symbol("größe", 0x10, 4)]


NESTED = functions(
    ("outer", 0x100, 0x100), ("inner", 0x140, 0x10), ("label", 0x300, 0), ("next", 0x400, 0x10), ("_start", 0x500, 8)
)


@each_row(
    ("address", "name"),
    [
        (0xFF, None), (0x100, "outer"), (0x140, "inner"), (0x14F, "inner"), (0x150, "outer"), (0x1FF, "outer"),
        (0x200, None), (0x300, "label"), (0x3FF, "label"), (0x40F, "next"), (0x410, None), (0x508, None),
    ],
)  # fmt: skip
def test_the_function_that_covers_an_address(address: int, name: str | None) -> None:
    found = table(NESTED).covering(address)
    assert (found.name if found else None) == name


@pytest.mark.parametrize("order", [1, -1])
def test_of_aliases_the_plainest_name_is_taken(order: int) -> None:
    rows = functions(("__read", 0x10, 16), ("_read", 0x10, 16), ("read64", 0x10, 16), ("read", 0x10, 16))
    assert table(rows[::order]).covering(0x18) == Symbol("read", 0x10, 16)


def test_an_alias_that_is_too_short_does_not_cover() -> None:
    rows = functions(("a", 0x10, 4), ("long_name", 0x10, 16))
    for given in (rows, rows[::-1]):
        found = table(given).covering(0x18)
        assert found is not None
        assert found.name == "long_name"
        assert table(given).covering(0x12) == Symbol("a", 0x10, 4)


# ---------------------------------------------------------------------------------------------- names for listings


RESERVED = 0x0300

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
    assert list(defined(memoryview(records(rows, wide)), wide, types)) == expected


def test_names_of_an_empty_table() -> None:
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


def test_listed_names_in_any_encoding() -> None:
    strings = b"\0" + "größe".encode() + b"\0odd\xff@V\0"
    assert names(strings, [(1, FUNCTION, HERE), (strings.index(b"odd"), FUNCTION, HERE)]) == ["größe", "odd\udcff"]


# ---------------------------------------------------------------------------------------------- too much


def test_symbols_beyond_a_limit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbol_table, "MOST_SYMBOLS", 2)
    file = image(b"\0one\0two\0three\0", [(1, FUNCTION, HERE), (5, FUNCTION, HERE), (9, FUNCTION, HERE)])
    (table,) = file.tables
    assert sorted(symbol.name for symbol in table.match("*")) == ["one", "two"]
    assert table.problem == "only the first 2 symbols of made are used"
    assert sorted(function_names(file, file.symbol_sections[0])) == ["one", "two"]


@pytest.mark.parametrize(("strings", "reason"), [
    (b"\0" + b"x" * 100_000 + b"\0", "a name in it has more than 65536 bytes"),
    (b"\0" + b"x" * 2000 + b"\0", "names overlap"),
])  # fmt: skip
def test_names_that_are_mostly_the_same_text(
    strings: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of some megabytes would have names of gigabytes."""
    monkeypatch.setattr(symbol_table, "_MOST_NAMES", 0)
    file = image(strings, [(1 + at, FUNCTION, HERE) for at in range(1500)])
    with pytest.raises(TraceError, match=reason):
        function_names(file, file.symbol_sections[0])
    with pytest.raises(TraceError, match=reason):
        file.tables[0].names()
