"""BPF Type Format, read in place.

The kernel's type information is several megabytes and 100,000 types; a script needs a handful of them.  So the data
stays mapped, and an index (where each type starts, its name and its kind) answers look-ups by name.  The index of the
running kernel is cached on disk; building it takes one pass over the data.

Source: ``Documentation/bpf/btf.rst`` and ``include/uapi/linux/btf.h`` of the kernel.
"""

from __future__ import annotations

import mmap
import re
import struct
from array import array
from bisect import bisect_right
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.machine import fingerprints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAGIC = 0xEB9F


class Kind(IntEnum):
    """``BTF_KIND_*``."""

    VOID = 0
    INT = 1
    PTR = 2
    ARRAY = 3
    STRUCT = 4
    UNION = 5
    ENUM = 6
    FWD = 7
    TYPEDEF = 8
    VOLATILE = 9
    CONST = 10
    RESTRICT = 11
    FUNC = 12
    FUNC_PROTO = 13
    VAR = 14
    DATASEC = 15
    FLOAT = 16
    DECL_TAG = 17
    TYPE_TAG = 18
    ENUM64 = 19


TYPE_KINDS = {
    "struct": (Kind.STRUCT,),
    "union": (Kind.UNION,),
    "enum": (Kind.ENUM, Kind.ENUM64),
    "typedef": (Kind.TYPEDEF,),
}
"""The kinds of types that a C word means."""


_FIXED_WORDS = [3, 4, 3, 6, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 3, 3, 4, 3, 3]
_WORDS_EACH = [0, 0, 0, 0, 3, 3, 2, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 0, 0, 3]
"""Words (4 bytes) of a type of each kind, and of each of its members."""


_SEARCHES = 64
"""Look-ups by a search of the data, after which a dictionary is built: only listings look up more names."""
_NOWHERE = 1 << 32


class Btf:
    """Types of the kernel, or of one module on top of the kernel's (*base*).

    Type ids count on from the base's; 0 is ``void``. *name* is ``vmlinux`` or the module's name, *index* that of the
    cached index, empty for none.
    """

    def __init__(
        self, data: bytes | mmap.mmap, name: str = "vmlinux", base: Btf | None = None, index: str = ""
    ) -> None:
        self.name = name
        self.base = base
        types_at, types_size, strings_at, strings_size = _header(data, name)
        self._data = data
        self._types_at, self._types_size = types_at, types_size
        self.words = memoryview(data)[types_at : types_at + types_size].cast("I")
        self._strings_at = strings_at
        self._strings_size = strings_size
        self.first_id = base.end_id if base else 1
        self.first_string = base.end_string if base else 0
        self._index_name = index
        self._searches = 0
        self._found: dict[tuple[str, tuple[int, ...]], int] = {}
        self._ids_by_name: dict[int, dict[str, int]] = {}

    @cached_property
    def _tables(self) -> tuple[array[int], array[int], bytes]:
        """Start, name and kind of each type; built when first needed: most modules are never asked for a type."""
        return _index(self.words, self._index_name)

    @property
    def _starts(self) -> array[int]:
        return self._tables[0]

    @property
    def _names(self) -> array[int]:
        return self._tables[1]

    @property
    def _kinds(self) -> bytes:
        return self._tables[2]

    @property
    def end_id(self) -> int:
        """One more than the last type id."""
        return self.first_id + len(self._starts)

    @property
    def end_string(self) -> int:
        """One more than the last string offset."""
        return self.first_string + self._strings_size

    @property
    def data(self) -> bytes:
        """All of it, as it was read."""
        return bytes(self._data)

    @property
    def terminated(self) -> bool:
        """Whether the last string ends."""
        end = self._strings_at + self._strings_size
        return self._strings_size == 0 or self._data[end - 1] == 0

    def owner(self, type_id: int) -> Btf:
        """The part that defines *type_id*: this one or its base."""
        return self.base if self.base is not None and type_id < self.first_id else self

    def start(self, type_id: int) -> int:
        """Index in :attr:`words` of the owner where a type starts (``name``, ``info``, ``size`` or ``type``, …)."""
        return self._starts[type_id - self.first_id]

    def kind(self, type_id: int) -> int:
        """The :class:`Kind` of a type, as a number."""
        if type_id == 0:
            return 0
        owner = self.owner(type_id)
        return owner._kinds[type_id - owner.first_id]

    def text(self, offset: int) -> str:
        """The string at a string offset."""
        if offset < self.first_string and self.base is not None:
            return self.base.text(offset)
        at = self._strings_at + offset - self.first_string
        return _name(bytes(self._data[at : self._data.find(b"\0", at)]))

    def type_name(self, type_id: int) -> str:
        """Name of a type, empty for an anonymous one."""
        if type_id == 0:
            return "void"
        owner = self.owner(type_id)
        return owner.text(owner._names[type_id - owner.first_id])

    def find(self, name: str, *kinds: int) -> int:
        """Id of the first type defined here (not in the base) with that name and one of *kinds*; 0 when none."""
        key = (name, kinds)
        type_id = self._found.get(key)
        if type_id is None:
            type_id = self._found[key] = self._search(name, kinds) if name else 0
        return type_id

    def _search(self, name: str, kinds: tuple[int, ...]) -> int:
        if self._searches >= _SEARCHES:
            first = min((self._by_name(kind).get(name, _NOWHERE) for kind in kinds), default=_NOWHERE)
            return 0 if first == _NOWHERE else first
        self._searches += 1
        for offset in self.string_offsets(name):
            for type_id in self._named(offset):
                if self._kinds[type_id - self.first_id] in kinds:
                    return type_id
        return 0

    def _by_name(self, kind: int) -> dict[str, int]:
        """The first type of each name among those of one kind."""
        ids = self._ids_by_name.get(kind)
        if ids is None:
            ids = self._ids_by_name[kind] = {}
            column, first, texts = self._names, self.first_id, self._text_of_all()
            for type_id in self.ids(kind):
                offset = column[type_id - first]
                if offset:
                    ids.setdefault(texts(offset), type_id)
        return ids

    def _text_of_all(self) -> Callable[[int], str]:
        """A faster :meth:`text`, for when most strings are wanted: what is here is copied once."""
        strings = bytes(self._data[self._strings_at : self._strings_at + self._strings_size])
        find, start, other = strings.find, self.first_string, self.text
        return lambda offset: (
            _name(strings[offset - start : find(b"\0", offset - start)]) if offset >= start else other(offset)
        )

    def ids(self, *kinds: int) -> Iterator[int]:
        """Ids of all types of some kinds that are defined here."""
        wanted = re.compile(b"[" + b"".join(re.escape(bytes((kind,))) for kind in kinds) + b"]")
        for match in wanted.finditer(self._kinds):
            yield self.first_id + match.start()

    def names(self, *kinds: int) -> list[str]:
        """Names of all named types of some kinds that are defined here."""
        column, first, text = self._names, self.first_id, self._text_of_all()
        return [text(offset) for i in self.ids(*kinds) if (offset := column[i - first])]

    def strings_with_prefix(self, prefix: str) -> list[str]:
        """All strings that start with *prefix*, without looking at the types that use them."""
        pattern = re.compile(rb"\0" + re.escape(prefix.encode(errors="surrogateescape")) + rb"[^\0]*")
        end = self._strings_at + self._strings_size
        return [_name(match.group()[1:]) for match in pattern.finditer(self._data, self._strings_at, end)]

    def string_offsets(self, name: str) -> Iterator[int]:
        """Offsets of a string, the base's first."""
        if self.base is not None:
            yield from self.base.string_offsets(name)
        needle = name.encode(errors="surrogateescape") + b"\0"
        begin, end = self._strings_at, self._strings_at + self._strings_size
        if self._data[begin : begin + len(needle)] == needle:
            yield self.first_string
        at = self._data.find(b"\0" + needle, begin, end)
        while at >= 0:
            yield at + 1 - begin + self.first_string
            at = self._data.find(b"\0" + needle, at + 1, end)

    def with_member(self, offset: int) -> Iterator[int]:
        """Ids of types that have the name at a string offset, or a member of that name, or such a number elsewhere."""
        for at in _places(self._data, offset, self._types_at, self._types_at + self._types_size):
            yield self.first_id + bisect_right(self._starts, at) - 1

    def _named(self, offset: int) -> Iterator[int]:
        """Ids of the types whose name is at a string offset: a search for four bytes in the column of names."""
        if self._data.find(struct.pack("=I", offset), self._types_at, self._types_at + self._types_size) < 0:
            return  # no index is made of a module that does not have the name
        yield from (self.first_id + at for at in _places(self._name_bytes, offset, 0, 4 * len(self._names)))

    @cached_property
    def _name_bytes(self) -> bytes:
        return self._names.tobytes()


def _name(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _places(data: bytes | mmap.mmap, number: int, begin: int, end: int) -> Iterator[int]:
    """Which of the words (4 bytes) between two places in *data* are a number, found by a search for its bytes."""
    needle = struct.pack("=I", number)
    at = data.find(needle, begin, end)
    while at >= 0:
        if (at - begin) % 4 == 0:
            yield (at - begin) // 4
        at = data.find(needle, at + 1, end)


_HEADER_SIZE = 24


def _header(data: bytes | mmap.mmap, name: str) -> tuple[int, int, int, int]:
    if len(data) < _HEADER_SIZE:
        raise TraceError(f"type information of {name} is truncated ({len(data)} bytes)")
    magic, _version, _flags, length, types, types_size, strings, strings_size = struct.unpack_from("=HBBIIIII", data)
    if magic != MAGIC:
        raise TraceError(f"type information of {name} does not start with BTF's magic number")
    if length + max(types + types_size, strings + strings_size) > len(data):
        raise TraceError(f"type information of {name} is truncated ({len(data)} bytes)")
    if types_size % 4 or length < _HEADER_SIZE:
        raise TraceError(f"type information of {name} is damaged: its header is not BTF's")
    return length + types, types_size, length + strings, strings_size


# ---------------------------------------------------------------------------------------------- index

def _index(words: memoryview, name: str) -> tuple[array[int], array[int], bytes]:
    """The index of types, from the cache file *name* (of which :mod:`private_files` has a digest), or made now."""
    data = fingerprints.read_kept(name) if name else None
    if data is not None:
        count = len(data) // 9
        return array("I", data[: 4 * count]), array("I", data[4 * count : 8 * count]), data[8 * count :]
    starts, names, kinds = _scan(words)
    if name:
        fingerprints.keep(name, starts.tobytes(), names.tobytes(), kinds)
    return starts, names, kinds


def _scan(words: memoryview) -> tuple[array[int], array[int], bytes]:
    """Start, name and kind of each type, in order."""
    starts, names, kinds = array("I"), array("I"), bytearray()
    fixed, each = _FIXED_WORDS, _WORDS_EACH
    at, end = 0, len(words)
    while at < end:
        info = words[at + 1] if at + 1 < end else 0
        kind = info >> 24 & 31
        if kind >= len(fixed):
            raise TraceError(f"type information has a kind {kind} that pytrace does not know")
        starts.append(at)
        names.append(words[at])
        kinds.append(kind)
        at += fixed[kind] + each[kind] * (info & 0xFFFF)
    if at > end:
        raise TraceError("type information is damaged: its last type is truncated")
    return starts, names, bytes(kinds)


# ---------------------------------------------------------------------------------------------- files


def map_file(path: str) -> bytes | mmap.mmap:
    """Contents of a file, mapped where the kernel allows it (for ``/sys/kernel/btf`` since 6.16), else read."""
    with open(path, "rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
        except (OSError, ValueError):
            return file.read()
