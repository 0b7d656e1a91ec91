"""BPF Type Format, read in place, and its types as value types of the language.

The kernel's type information is several megabytes and 100,000 types; a script needs a handful of them. So the data
stays mapped, and an index (where each type starts, its name and its kind) answers look-ups by name; that of the running
kernel is cached on disk. One `TypeReader` for each BTF object creates a type when it is first asked for, and struct
members when they are first looked at. Files, which may be damaged, are checked by the kernel's own rules (``btf_parse``
of ``kernel/bpf/btf.c``), on which the readers rely.

Source: ``Documentation/bpf/btf.rst`` and ``include/uapi/linux/btf.h`` of the kernel.
"""

from __future__ import annotations

import mmap
import re
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.kernel_info import FunctionPrototype
from pytrace.core.types import (
    BOOL,
    INT8,
    UINT8,
    VOID,
    AddressSpace,
    Array,
    Enum,
    Field,
    FieldLoader,
    Float,
    Int,
    Pointer,
    String,
    Struct,
    Type,
)
from pytrace.runtime.machine import fingerprints

if TYPE_CHECKING:
    from collections.abc import Sequence


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


DEEPEST = 32
"""Types that a type may lead to without a struct in between (``MAX_RESOLVE_DEPTH``)."""

_ONE = (Kind.PTR, Kind.TYPEDEF, Kind.VOLATILE, Kind.CONST, Kind.RESTRICT, Kind.FUNC, Kind.VAR, Kind.DECL_TAG,
        Kind.TYPE_TAG)  # fmt: skip
"""Kinds whose third word is another type."""
_OF_BITFIELDS = (Kind.TYPEDEF, Kind.VOLATILE, Kind.CONST, Kind.RESTRICT, Kind.TYPE_TAG, Kind.VAR)
"""Kinds between a bitfield and its integer type."""
_NO_VALUES = frozenset((Kind.DATASEC, Kind.DECL_TAG))
"""Kinds that no type leads to."""
_INT_SIZES = (1, 2, 4, 8, 16)
_ENUM_SIZES = (1, 2, 4, 8)


class _Damaged(Exception):  # noqa: N818 - caught below
    """A rule that does not hold."""


def check(btf: Btf) -> None:
    """Refuse damaged type information.

    Raises:
        TraceError: a type or name is outside of the data, or a type contains itself.
    """
    try:
        _check_strings(btf)
        for type_id in range(btf.first_id, btf.end_id):
            _check_type(btf, type_id)
        _check_depth(btf, _leads_to)
        _check_depth(btf, _contains, deepest=btf.end_id)
        for type_id in range(btf.first_id, btf.end_id):
            _check_bitfields(btf, type_id)
    except _Damaged as error:
        raise TraceError(f"type information of {btf.name} is damaged: {error}") from None


def _check_strings(btf: Btf) -> None:
    if btf.base is None and btf.text(0):
        raise _Damaged("its first name is not empty")
    if not btf.terminated:
        raise _Damaged("its last name does not end")


def _check_type(btf: Btf, type_id: int) -> None:
    words, at, kind = btf.words, btf.start(type_id), btf.kind(type_id)
    _check_name(btf, type_id, words[at])
    for offset in _member_names(btf, type_id):
        _check_name(btf, type_id, offset)
    for other in _all_others(btf, type_id):
        if other >= btf.end_id:
            raise _Damaged(f"type {type_id} leads to type {other}, and there are {btf.end_id}")
        if btf.kind(other) in _NO_VALUES:
            raise _Damaged(f"type {type_id} leads to type {other}, which is none of a value")
    if kind == Kind.VOID:
        raise _Damaged(f"type {type_id} is void, which only type 0 is")
    size = words[at + 2]
    if (kind == Kind.INT and size not in _INT_SIZES) or (kind in (Kind.ENUM, Kind.ENUM64) and size not in _ENUM_SIZES):
        raise _Damaged(f"type {type_id} has {size} bytes")
    if kind == Kind.FUNC and btf.kind(words[at + 2]) != Kind.FUNC_PROTO:
        raise _Damaged(f"function {type_id} has no prototype")


def _check_bitfields(btf: Btf, type_id: int) -> None:
    """Only integers and enumerations have a part of their bits; this follows types, so after their depth is known."""
    words, at, kind = btf.words, btf.start(type_id), btf.kind(type_id)
    if kind not in (Kind.STRUCT, Kind.UNION) or not words[at + 1] >> 31:
        return
    for place in range(at + 3, at + 3 + 3 * (words[at + 1] & 0xFFFF), 3):
        if words[place + 2] >> 24:
            member = words[place + 1]
            while btf.kind(member) in _OF_BITFIELDS:
                owner = btf.owner(member)
                member = owner.words[owner.start(member) + 2]
            if btf.kind(member) not in (Kind.INT, Kind.ENUM, Kind.ENUM64):
                raise _Damaged(f"a bitfield of type {type_id} is no integer")


def _check_name(btf: Btf, type_id: int, offset: int) -> None:
    if offset >= btf.end_string:
        raise _Damaged(f"the name of type {type_id} or of a member is outside of its names")


def _member_names(btf: Btf, type_id: int) -> Iterator[int]:
    words, at, kind = btf.words, btf.start(type_id), btf.kind(type_id)
    step = {Kind.STRUCT: 3, Kind.UNION: 3, Kind.ENUM: 2, Kind.ENUM64: 3, Kind.FUNC_PROTO: 2}.get(Kind(kind))
    if step is not None:
        count = words[at + 1] & 0xFFFF
        yield from (words[place] for place in range(at + 3, at + 3 + step * count, step))


def _all_others(btf: Btf, type_id: int) -> Iterator[int]:
    yield from _leads_to(btf, type_id)
    words, at, kind = btf.words, btf.start(type_id), btf.kind(type_id)
    count = words[at + 1] & 0xFFFF
    if kind in (Kind.STRUCT, Kind.UNION):
        yield from (words[place + 1] for place in range(at + 3, at + 3 + 3 * count, 3))
    elif kind == Kind.DATASEC:
        yield from (words[place] for place in range(at + 3, at + 3 + 3 * count, 3))


def _leads_to(btf: Btf, type_id: int) -> Iterator[int]:
    """The types that are read together with a type; members of structs are read later."""
    words, at, kind = btf.words, btf.start(type_id), btf.kind(type_id)
    if kind in _ONE:
        yield words[at + 2]
    elif kind == Kind.ARRAY:
        yield words[at + 3]
        yield words[at + 4]
    elif kind == Kind.FUNC_PROTO:
        yield words[at + 2]
        yield from (words[place + 1] for place in range(at + 3, at + 3 + 2 * (words[at + 1] & 0xFFFF), 2))


def _contains(btf: Btf, type_id: int) -> Iterator[int]:
    """The types whose values are part of a type's."""
    if btf.kind(type_id) in (Kind.STRUCT, Kind.UNION):
        yield from _all_others(btf, type_id)
    elif btf.kind(type_id) not in (Kind.PTR, Kind.FUNC_PROTO):
        yield from _leads_to(btf, type_id)


def _check_depth(btf: Btf, others: Callable[[Btf, int], Iterator[int]], deepest: int = DEEPEST) -> None:
    """Refuse a type that leads to itself, or to more than *deepest* types one after the other."""
    depths: dict[int, int] = {}
    for first in range(btf.first_id, btf.end_id):
        path = [(first, list(others(btf, first)))] if first not in depths else []
        on_path = {first}
        while path:
            type_id, left = path[-1]
            other = left.pop() if left else 0
            if other in on_path:
                raise _Damaged(f"type {other} contains itself")
            if other >= btf.first_id and other not in depths:
                path.append((other, list(others(btf, other))))
                on_path.add(other)
            elif not left:
                depths[type_id] = 1 + max((depths.get(inner, 0) for inner in others(btf, type_id)), default=0)
                if depths[type_id] > deepest:
                    raise _Damaged(f"type {type_id} leads to more than {deepest} types")
                path.pop()
                on_path.discard(type_id)


_INT_SIGNED, _INT_BOOL = 1, 4
_CHARACTERS = ("char", "signed char")
"""Base types whose arrays are texts; ``unsigned char`` (``u8``) is a number."""

_REFERENCES = frozenset((Kind.TYPEDEF, Kind.VOLATILE, Kind.CONST, Kind.RESTRICT, Kind.TYPE_TAG, Kind.DECL_TAG))
_PLAIN_TAGS = frozenset(("rcu", "percpu"))
"""``btf_type_tag`` texts of pointers into kernel memory (``__rcu``, ``__percpu``)."""


class Member(msgspec.Struct, frozen=True):
    """A member of a struct or union as BTF has it: *bit_offset* from the start, *bit_size* 0 unless a bitfield."""

    name: str
    type_id: int
    bit_offset: int
    bit_size: int


class TypeReader:
    """Converts the types of one BTF object (and of its base) to :mod:`pytrace.core.types`."""

    def __init__(self, btf: Btf) -> None:
        self.btf = btf
        self._made: dict[int, Type] = {0: VOID}
        self.texts: dict[int, str] = {}
        """Types as C text, for listings, which show the same types often."""
        self._rows: dict[int, Callable[[Sequence[int], int, int], Type]] = {
            Kind.INT: self._int,
            Kind.PTR: self._pointer,
            Kind.ARRAY: self._array,
            Kind.STRUCT: self._struct,
            Kind.UNION: self._struct,
            Kind.ENUM: self._enum,
            Kind.ENUM64: self._enum,
            Kind.FWD: self._forward,
            Kind.FUNC: self._nothing,
            Kind.FUNC_PROTO: self._nothing,
            Kind.FLOAT: self._float,
            Kind.VAR: self._referred,
            **dict.fromkeys(_REFERENCES, self._referred),
        }

    def type(self, type_id: int) -> Type:
        """The value type of a type id; qualifiers and typedefs are resolved."""
        type_ = self._made.get(type_id)
        if type_ is None:
            row = self._rows.get(self.btf.kind(type_id))
            if row is None:
                raise InternalError(f"BTF type {type_id} of {self.btf.name} is not a value type")
            words, at = self.place(type_id)
            type_ = self._made[type_id] = row(words, at, type_id)
        return type_

    def place(self, type_id: int) -> tuple[Sequence[int], int]:
        """The words that hold a type, and where it starts in them."""
        owner = self.btf.owner(type_id)
        return owner.words, owner.start(type_id)

    def resolved(self, type_id: int) -> int:
        """The type that typedefs and qualifiers lead to."""
        while self.btf.kind(type_id) in _REFERENCES:
            words, at = self.place(type_id)
            type_id = words[at + 2]
        return type_id

    # ---- rows

    def _int(self, words: Sequence[int], at: int, type_id: int) -> Type:
        size, encoding = words[at + 2], words[at + 3] >> 24
        if encoding & _INT_BOOL and size == 1:
            return BOOL
        # The kernel is built with -funsigned-char; the language's `char` is int8 as in C on most machines.
        if size == 1 and self.btf.type_name(type_id) in _CHARACTERS:
            return INT8
        return Int(size, bool(encoding & _INT_SIGNED))

    def _pointer(self, words: Sequence[int], at: int, _type_id: int) -> Type:
        space, target = AddressSpace.KERNEL, words[at + 2]
        while self.btf.kind(target) in _REFERENCES:
            inner, inside = self.place(target)
            if self.btf.kind(target) == Kind.TYPE_TAG:
                tag = self.btf.type_name(target)
                if tag == "user":
                    space = AddressSpace.USER
                elif tag not in _PLAIN_TAGS:
                    # Memory that no helper of ours can read: without a target type nothing can be read through it.
                    return Pointer(VOID, AddressSpace.KERNEL)
            target = inner[inside + 2]
        return Pointer(self.type(target), space)

    def _array(self, words: Sequence[int], at: int, _type_id: int) -> Type:
        element, count = words[at + 3], words[at + 5]
        base = self.resolved(element)
        # A flexible array has no capacity that a string could take.
        if count and self.btf.kind(base) == Kind.INT and self.btf.type_name(base) in _CHARACTERS:
            return String(count)
        return Array(self.type(element), count)

    def _struct(self, words: Sequence[int], at: int, type_id: int) -> Type:
        name = self.btf.text(words[at])
        kind = "struct" if self.btf.kind(type_id) == Kind.STRUCT else "union"
        origin = self.btf.owner(type_id).name
        size = words[at + 2]
        origin = origin if name else f"{origin}#{type_id}"
        return Struct(kind, name, size, FieldLoader(lambda: self._fields(type_id, size)), origin)

    def _forward(self, words: Sequence[int], at: int, _type_id: int) -> Type:
        kind = "union" if words[at + 1] >> 31 else "struct"
        return Struct(kind, self.btf.text(words[at]), 0, (), origin="forward", alignment=1)

    def _enum(self, words: Sequence[int], at: int, type_id: int) -> Type:
        members = tuple(self.enumerators(type_id))
        return Enum(self.btf.text(words[at]), words[at + 2], bool(words[at + 1] >> 31), members)

    def _float(self, words: Sequence[int], at: int, _type_id: int) -> Type:
        size = words[at + 2]
        return Float(size) if size in (4, 8) else Array(UINT8, size)

    def _nothing(self, _words: Sequence[int], _at: int, _type_id: int) -> Type:
        return VOID

    def _referred(self, words: Sequence[int], at: int, _type_id: int) -> Type:
        return self.type(words[at + 2])

    # ---- parts

    def enumerators(self, type_id: int) -> list[tuple[str, int]]:
        """Members of an enumeration with their values."""
        words, at = self.place(type_id)
        count, signed = words[at + 1] & 0xFFFF, words[at + 1] >> 31
        wide = self.btf.kind(type_id) == Kind.ENUM64
        step, bits, text = (3, 64, self.btf.text) if wide else (2, 32, self.btf.text)
        enumerators = []
        for i in range(at + 3, at + 3 + step * count, step):
            value = words[i + 1] | (words[i + 2] << 32 if wide else 0)
            if signed and value >> (bits - 1):
                value -= 1 << bits
            enumerators.append((text(words[i]), value))
        return enumerators

    def members(self, type_id: int) -> list[Member]:
        """Members of a struct or union in order."""
        words, at = self.place(type_id)
        count, flagged, text = words[at + 1] & 0xFFFF, words[at + 1] >> 31, self.btf.text
        members = []
        for i in range(at + 3, at + 3 + 3 * count, 3):
            packed = words[i + 2]
            size, offset = (packed >> 24, packed & 0xFFFFFF) if flagged else (0, packed)
            members.append(Member(text(words[i]), words[i + 1], offset, size or self._old_bitfield(words[i + 1])))
        return members

    def _old_bitfield(self, type_id: int) -> int:
        """Width of a bitfield in the older form, where the integer type itself is narrower than its size."""
        base = self.resolved(type_id)
        if self.btf.kind(base) != Kind.INT:
            return 0
        words, at = self.place(base)
        bits = words[at + 3] & 0xFF
        return bits if bits != 8 * words[at + 2] and words[at + 2] <= 8 else 0

    def _fields(self, type_id: int, size: int) -> tuple[Field, ...]:
        return tuple(
            place_field(m.name, self.type(m.type_id), m.bit_offset, m.bit_size, size) for m in self.members(type_id)
        )

    def prototype(self, function_id: int, skip: int = 0) -> FunctionPrototype:
        """The prototype of a ``FUNC`` type, without its first *skip* parameters."""
        words, at = self.place(function_id)
        return self.prototype_of(self.btf.text(words[at]), words[at + 2], function_id, skip)

    def prototype_of(self, name: str, proto_id: int, btf_id: int, skip: int = 0) -> FunctionPrototype:
        """A ``FUNC_PROTO`` as the prototype of *name*."""
        words, at = self.place(proto_id)
        parameters = self.parameters(proto_id)
        variadic = bool(parameters) and parameters[-1] == ("", 0)
        named = tuple(
            (text or f"arg{number}", self.type(kind))
            for number, (text, kind) in enumerate(parameters[: len(parameters) - variadic][skip:])
        )
        owner = self.btf.owner(btf_id).name
        return FunctionPrototype(name, owner, named, self.type(words[at + 2]), variadic, btf_id)

    def parameters(self, proto_id: int) -> list[tuple[str, int]]:
        """Names and type ids of a ``FUNC_PROTO``'s parameters; ``("", 0)`` stands for ``…``."""
        words, at = self.place(proto_id)
        count = words[at + 1] & 0xFFFF
        return [(self.btf.text(words[i]), words[i + 1]) for i in range(at + 3, at + 3 + 2 * count, 2)]


def place_field(name: str, type_: Type, bit_offset: int, bit_size: int, struct_size: int) -> Field:
    """A member *bit_offset* bits into a struct; for a bitfield the aligned unit that holds it, where there is one."""
    if not bit_size:
        return Field(name, type_, bit_offset // 8)
    unit = type_.size
    offset = bit_offset // (8 * unit) * unit
    if bit_offset + bit_size > 8 * (offset + unit) or offset + unit > struct_size:
        # Packed: no aligned unit holds it, so count from the byte where it starts.
        offset = bit_offset // 8
    return Field(name, type_, offset, bit_offset - 8 * offset, bit_size)
