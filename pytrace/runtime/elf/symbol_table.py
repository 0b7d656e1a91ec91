"""Symbol tables of ELF files.

A table stays columns of integers that are sliced from the file in a few calls: a large library has more than 100,000
symbols, and only those that a question is about become objects.

Source: ``elf(5)``; ``/usr/include/elf.h``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.machine.name_patterns import exact, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytrace.runtime.elf.file import ElfFile, Section


_Text = TypeVar("_Text", str, bytes)

CODE_TYPES = frozenset((2, 10))
"""``STT_FUNC`` and ``STT_GNU_IFUNC``."""
INDIRECT = 10

MOST_SYMBOLS = 1 << 22
"""Symbols of one table that are used; a browser with all its local functions has a million."""
_LONGEST_NAME = 1 << 16
_MOST_NAMES = 64 << 20
"""Bytes of names that may be taken out of any table, beside a multiple of what its strings have."""
_BATCH = 1024
_MOST_ALIASES = 4096
"""Symbols of one address that are looked at."""

_NOT_ZERO = b"\0" + b"\1" * 255


_THREAD_LOCAL = 6
"""``STT_TLS``."""


class Symbol(msgspec.Struct, frozen=True):
    """A function: its name, virtual address and size in bytes (0 where the table does not say).

    *indirect*: the code there is the resolver of an IFUNC symbol, which returns the address of the function.
    """

    name: str
    address: int
    size: int
    indirect: bool = False
    thread_local: bool = False
    """Each thread has its own; *address* is where it is in the thread's block."""


class SymbolTable:
    """The defined symbols of some types (None for all) in one symbol table, as parallel columns.

    A column is cut out of the table when it is first needed: names alone do not need the others, or any order.
    """

    def __init__(
        self,
        data: bytes,
        strings: bytes,
        wide: bool,
        types: frozenset[int] | None = CODE_TYPES,
        sections: Iterable[tuple[int, int]] = (),
    ) -> None:
        """*sections* are the addresses of the file's sections: a symbol without a size ends where its section does."""
        self._sections = sorted(sections)
        self.problem = ""
        """Why not all symbols are here."""
        self._strings = strings
        self._wide = wide
        self._record = record_size(wide)
        self._data = memoryview(data)[: len(data) // self._record * self._record]
        self._defined = defined(self._data, wide, types)

    @classmethod
    def read(
        cls, file: ElfFile, section: Section, types: frozenset[int] | None = CODE_TYPES
    ) -> SymbolTable:
        """The symbols of a section."""
        most = MOST_SYMBOLS * record_size(file.wide)
        linked = file.linked(section)
        for item, size in ((section, min(section.size, most)), (linked, linked.size)):
            file.check_size(item, size)
        strings = bytes(file.contents(linked))
        check_strings(file, strings)
        loaded = [(item.address, item.address + item.size) for item in file.sections if item.address and item.size]
        table = cls(bytes(file.contents(section, most)), strings, file.wide, types, loaded)
        if section.size > most:
            table.problem = f"only the first {MOST_SYMBOLS} symbols of {file.path} are used"
        return table

    def _column(self, words: Iterable[int]) -> list[int]:
        return list(compress(words, self._defined))

    @cached_property
    def _words(self) -> tuple[memoryview[int], memoryview[int], memoryview[int]]:
        """Places of names, addresses and sizes, by record."""
        words = self._data.cast("Q") if self._wide else self._data.cast("I")
        step = self._record // words.itemsize
        return self._data.cast("I")[:: self._record // 4], words[1::step], words[2::step]

    @cached_property
    def _sorted(self) -> tuple[list[int], list[int]]:
        """Addresses in order, and the records that have them."""
        addresses = self._words[1].tolist()
        records = self._column(range(len(self._defined)))
        records.sort(key=addresses.__getitem__)
        return list(map(addresses.__getitem__, records)), records

    def __len__(self) -> int:
        return self._defined.count(1)

    @property
    def addresses(self) -> list[int]:
        """Where the functions start, in order."""
        return self._sorted[0]

    def symbol(self, index: int) -> Symbol:
        """The symbol at a position in order of address."""
        names, addresses, sizes = self._words
        record = self._sorted[1][index]
        kind = self._data[record * self._record + (4 if self._wide else 12)] & 15
        name = self._name(names[record])
        return Symbol(name, addresses[record], sizes[record], kind == INDIRECT, kind == _THREAD_LOCAL)

    def _name(self, offset: int) -> str:
        strings = self._strings
        name = strings[offset : strings.find(b"\0", offset)]
        if b"@" in name:
            # `.symtab` has versions in its names (malloc@@GLIBC_2.2.5), `.dynsym` has them elsewhere.
            name = name.partition(b"@")[0]
        return name.decode("utf-8", "surrogateescape")

    def names(self) -> list[bytes]:
        """All names, as they are in the file, in order of address."""
        places = list(map(self._words[0].__getitem__, self._sorted[1]))
        strings, find = self._strings, self._strings.find
        return _texts(places, len(strings), lambda part: [strings[at : find(b"\0", at)] for at in part])

    def match(self, pattern: str) -> list[Symbol]:
        """Functions whose name a ``*`` pattern accepts."""
        if exact(pattern):
            return [self.symbol(i) for i in self._named(pattern.encode(errors="surrogateescape"))]
        accepts = re.compile(within(pattern, rb"@") + rb"(?:@.*)?").fullmatch
        return [self.symbol(i) for i, name in enumerate(self.names()) if accepts(name)]

    def _named(self, name: bytes) -> list[int]:
        """Positions of the symbols of one name: search the strings, then the column for the places found."""
        wanted = set()
        for needle in (name + b"\0", name + b"@"):
            at = self._strings.find(needle)
            while at >= 0:
                # Strings may share their tails, so the place before need not end another string.
                wanted.add(at)
                at = self._strings.find(needle, at + 1)
        if not wanted:
            return []
        return [i for i, at in enumerate(map(self._words[0].__getitem__, self._sorted[1])) if at in wanted]

    def covering(self, address: int) -> Symbol | None:
        """The function that covers an address.

        One without a size reaches to the next symbol, and not beyond its section: what comes after ``_init`` are stubs
        of other libraries. Of aliases the one whose name comes first without leading
        underscores is taken, so that the answer does not depend on the linker's order.
        """
        addresses, records = self._sorted
        sizes = self._words[2]
        at = bisect_right(addresses, address) - 1
        # A short function may lie inside a longer one; go back to one that reaches far enough.
        for index in range(at, max(-1, at - 16), -1):
            size = sizes[records[index]]
            if address < addresses[index] + size or (
                not size and index == at and self._in_one_section(addresses[index], address)
            ):
                alone = not index or addresses[index - 1] != addresses[index]
                return self.symbol(index) if alone else self._best_alias(index, address)
        return None

    def _in_one_section(self, start: int, address: int) -> bool:
        """True unless a section ends between two addresses."""
        at = bisect_right(self._sections, (start, 1 << 64)) - 1
        return at < 0 or not self._sections[at][0] <= start < self._sections[at][1] <= address

    def _best_alias(self, index: int, address: int) -> Symbol:
        addresses = self.addresses
        start = addresses[index]
        first = index
        while first and addresses[first - 1] == start:
            first -= 1
        # Of a hostile file there may be a million, each with a long name.
        aliases = map(self.symbol, range(max(first, index - _MOST_ALIASES), index + 1))
        return min(aliases, key=lambda symbol: (
            address >= start + symbol.size, len(symbol.name) - len(symbol.name.lstrip("_")), symbol.name,
        ))  # fmt: skip


def check_strings(file: ElfFile, strings: str | bytes) -> None:
    """Refuse strings of which one is longer than any name: each of the symbols could be all of it.

    Raises:
        TraceError: they have one.
    """
    at = 0
    while at + _LONGEST_NAME < len(strings):
        reached = at + _LONGEST_NAME
        at = (strings.rfind("\0", at, reached) if isinstance(strings, str) else strings.rfind(b"\0", at, reached)) + 1
        if not at:
            raise TraceError(f"{file.path} is damaged: a name in it has more than {_LONGEST_NAME} bytes")


def _texts(places: Sequence[int], size: int, cut: Callable[[Sequence[int]], list[_Text]]) -> list[_Text]:
    """What *cut* returns for all places in strings of a size.

    Raises:
        TraceError: names overlap so much that they are many times as long as the strings.
    """
    texts: list[_Text] = []
    room = 16 * size + _MOST_NAMES
    for start in range(0, len(places), _BATCH):
        part = cut(places[start : start + _BATCH])
        room -= sum(map(len, part))
        if room < 0:
            raise TraceError("a symbol table is damaged: its names overlap")
        texts += part
    return texts


def record_size(wide: bool) -> int:
    """Bytes of a symbol in a table of one ELF class."""
    return 24 if wide else 16


def defined(data: memoryview, wide: bool, types: frozenset[int] | None) -> bytes:
    """For each record 1 where it is a symbol of one of these types (None for all) that is defined here, else 0."""
    record = record_size(wide)
    info, owner = (4, 6) if wide else (12, 14)
    wanted = bytes(types is None or kind & 15 in types for kind in range(256))
    fitting = int.from_bytes(bytes(data[info::record]).translate(wanted))
    # Number 0 is the section of what is defined elsewhere.
    low, high = (int.from_bytes(bytes(data[at::record]).translate(_NOT_ZERO)) for at in (owner, owner + 1))
    return (fitting & (low | high)).to_bytes(len(data) // record)


def function_names(file: ElfFile, section: Section) -> list[str]:
    """Names of the functions that a symbol table defines, without symbol versions, in no order.

    They are read straight from the mapped file: nothing of it is copied but the names.
    """
    record = record_size(file.wide)
    data = file.contents(section, MOST_SYMBOLS * record)
    data = data[: len(data) // record * record]
    chosen = compress(data.cast("I")[:: record // 4], defined(data, file.wide, CODE_TYPES))
    # In this encoding a byte and its character have the same place.
    linked = file.linked(section)
    file.check_size(linked, linked.size)
    text = str(file.contents(linked), "latin-1")
    check_strings(file, text)
    find = text.find
    names = _texts(list(chosen), len(text), lambda part: [text[at : find("\0", at)] for at in part])
    if "@" in text:
        names = [name.partition("@")[0] for name in names]
    if not text.isascii():
        return [name.encode("latin-1").decode(errors="surrogateescape") for name in names]
    return names
