"""Tracepoints, from tracefs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cached_property

import msgspec

from pytrace.base import kernel_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import DefinedEvent, TracepointField
from pytrace.core.text import name_pattern
from pytrace.core.types import BOOL, INT8, UINT8, VOID, AddressSpace, Array, Enum, Int, Pointer, String, Struct, Type
from pytrace.runtime.machine import fingerprints

_TypeLookup = Callable[[str, str], Type | None]
"""``(kind, name)`` to type: kind ``struct``, ``union``, ``enum`` or ``typedef``; None when the kernel has none."""


class Tracepoints:
    """The tracepoints of a tracefs."""

    def __init__(self, path: str, lookup: _TypeLookup) -> None:
        self.path = path
        self._lookup = lookup
        self._fields: dict[tuple[str, str], tuple[TracepointField, ...] | None] = {}

    @cached_property
    def _events(self) -> list[tuple[str, str]]:
        with open(f"{self.path}/available_events", encoding="ascii") as file:
            rows = [row.partition(":") for row in fingerprints.lasting(file.read())]
        pairs = sorted((category, event) for category, _, event in rows if event)
        # ftrace's own records are no tracepoints, although they have formats.
        return [pair for pair in pairs if pair[0] != "ftrace"]

    def match(self, category: str, event: str) -> list[tuple[str, str]]:
        """``(category, event)`` pairs that two ``*`` patterns accept, in order."""
        if "*" not in category + event:
            # Look at one directory; listing all tracepoints takes longer.
            exists = os.path.exists(f"{self.path}/events/{category}/{event}/id") if category and event else False
            return [(category, event)] if exists else []
        first, second = name_pattern(category).fullmatch, name_pattern(event).fullmatch
        return [pair for pair in self._events if first(pair[0]) and second(pair[1])]

    def format(self, category: str, event: str) -> str | None:
        """The text of a tracepoint's ``format`` file; None when there is no such tracepoint."""
        try:
            with open(f"{self.path}/events/{category}/{event}/format", encoding="utf-8") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def fields(self, category: str, event: str) -> tuple[TracepointField, ...] | None:
        """Fields of a tracepoint's record; None when there is no such tracepoint."""
        key = (category, event)
        if key not in self._fields:
            text = self.format(category, event)
            self._fields[key] = None if text is None else parse_format(text, self._lookup, space_of(category))
        return self._fields[key]

    def defined(self, category: str, event: str) -> DefinedEvent | None:
        """How somebody has defined an event; None for the kernel's own tracepoints."""
        for line in self._definitions:
            words = line.split()
            if len(words) > 1 and words[0].partition(":")[2] == f"{category}/{event}":
                return _definition(line, words)
        return None

    @cached_property
    def _definitions(self) -> list[str]:
        for names in (("dynamic_events",), ("uprobe_events", "kprobe_events")):
            texts = [kernel_files.read_text(f"{self.path}/{name}") for name in names]
            if any(texts):
                return "\n".join(texts).splitlines()
        return []


_PLACE = re.compile(r"(?P<path>/.*):(?P<at>0x[0-9a-f]+)(?:\(.*\))?$")
_FUNCTION = re.compile(r"(?:(?P<module>\w+):)?(?P<function>[A-Za-z_][\w.]*)(?:\+(?P<offset>\d+|0x[0-9a-f]+))?$")


def _definition(line: str, words: list[str]) -> DefinedEvent:
    letter = words[0][:1]
    place, function = _PLACE.match(words[1]), _FUNCTION.match(words[1])
    if letter in "pr" and place is not None:
        return DefinedEvent(line, letter, place["path"], offset=int(place["at"], 16), fetches=tuple(words[2:]))
    if letter in "pr" and function is not None:
        offset = int(function["offset"] or "0", 0)
        return DefinedEvent(line, letter, "", function["function"], function["module"] or "", offset, tuple(words[2:]))
    return DefinedEvent(line, "")


# ---------------------------------------------------------------------------------------------- format files


def space_of(category: str) -> AddressSpace:
    """Where pointers of a tracepoint's record point: those of syscalls into the caller's memory."""
    return AddressSpace.USER if category == "syscalls" else AddressSpace.KERNEL


_FIELD = re.compile(
    r"field:(?P<text>[^;]*);\s*offset:(?P<offset>\d+);\s*size:(?P<size>\d+);\s*(?:signed:(?P<signed>\d+);)?"
)
_DECLARATION = re.compile(r"(?s)(?P<type>.*?)(?P<name>\w+)\s*(?P<count>\[[^\]]*\])?$")
_DYNAMIC = re.compile(r"__(?:data|rel)_loc\s+")
_QUALIFIERS = frozenset(
    ("const", "volatile", "struct", "union", "enum", "__user", "__rcu", "__percpu", "__seg_gs", "__seg_fs")
)

_SIGNED_NAMES = frozenset(("char", "short", "int", "long", "signed"))


class _Declared(msgspec.Struct, frozen=True):
    """A C type as a format file spells it: kind word, name without qualifiers, stars, and if it says ``__user``."""

    kind: str
    name: str
    stars: int
    user: bool


def parse_format(text: str, lookup: _TypeLookup, space: AddressSpace) -> tuple[TracepointField, ...]:
    """Fields of a ``format`` file, in the order of the file; *space* is where pointers point."""
    rows = text.partition("\nprint fmt:")[0]
    return tuple(_field(match, lookup, space) for match in _FIELD.finditer(rows))


def _field(match: re.Match[str], lookup: _TypeLookup, space: AddressSpace) -> TracepointField:
    declaration = " ".join(match["text"].split())
    offset, size, signed = int(match["offset"]), int(match["size"]), match["signed"] == "1"
    dynamic = _DYNAMIC.match(declaration)
    if dynamic:
        text, _, name = declaration[dynamic.end() :].rpartition(" ")
        element = _declared(text.replace("[]", ""))
        return TracepointField(
            name, _dynamic_type(element, lookup, space), offset, size, declaration,
            data_loc=True, relative=dynamic.group().startswith("__rel"),
        )  # fmt: skip
    parts = _DECLARATION.match(declaration)
    if parts is None:
        raise TraceError(f"a tracepoint's format has a field that is not a C declaration: {declaration!r}")
    declared = _declared(parts["type"])
    if parts["count"] is not None and not (declared.stars and size == 8):
        type_ = _array_type(declared, size, lookup, space)
    else:
        type_ = _scalar_type(declared, size, signed, lookup, space)
    return TracepointField(parts["name"], type_, offset, size, declaration)


def _declared(text: str) -> _Declared:
    if "(" in text:
        # A pointer to a function.
        return _Declared("", "void", 1, user=False)
    words = text.replace("*", " * ").split()
    kind = next((word for word in words if word in ("struct", "union", "enum")), "")
    plain = [word for word in words if word not in _QUALIFIERS and word != "*"]
    return _Declared(kind, " ".join(plain), words.count("*"), "__user" in words)


def _dynamic_type(declared: _Declared, lookup: _TypeLookup, space: AddressSpace) -> Type:
    if declared.name in ("char", "s8", "__s8") and not declared.stars:
        return String(0)
    return Array(_target_type(declared, lookup, space), 0)


def _array_type(declared: _Declared, size: int, lookup: _TypeLookup, space: AddressSpace) -> Type:
    if declared.name in ("char", "signed char") and not declared.stars:
        return String(size) if size else Array(INT8, 0)
    element = _target_type(declared, lookup, space)
    if not element.size or size % element.size:
        return Array(UINT8, size)
    return Array(element, size // element.size)


def _scalar_type(declared: _Declared, size: int, signed: bool, lookup: _TypeLookup, space: AddressSpace) -> Type:
    if declared.stars:
        return _target_type(declared, lookup, space)
    if declared.name == "bool" and size == 1:
        return BOOL
    known = lookup(declared.kind or "typedef", declared.name) if not _is_base(declared.name) else None
    if known is not None and known.size == size:
        return known
    if isinstance(known, Int | Enum) and known.size < size <= 8:
        # A syscall's argument takes a whole register, whatever its type; the value is in the low bytes.
        return known
    if size in (1, 2, 4, 8):
        return Int(size, _signed(declared.name, signed))
    return Array(UINT8, size)


def _signed(name: str, flag: bool) -> bool:
    words = name.split()
    if words and all(word in _SIGNED_NAMES | {"unsigned"} for word in words):
        return "unsigned" not in words
    return flag


def _is_base(name: str) -> bool:
    return bool(name) and all(word in _SIGNED_NAMES | {"unsigned", "bool", "_Bool"} for word in name.split())


_C_SIZES = {"char": 1, "short": 2, "int": 4, "long": 8}


def _base_type(name: str) -> Type:
    words = name.split()
    if words in (["bool"], ["_Bool"]):
        return BOOL
    width = next((_C_SIZES[word] for word in ("char", "short", "long") if word in words), 4)
    return Int(width, "unsigned" not in words)


def _target_type(declared: _Declared, lookup: _TypeLookup, space: AddressSpace) -> Type:
    """The declared type without what the record says about its size: the element of an array, or a pointer."""
    if declared.user:
        space = AddressSpace.USER
    if _is_base(declared.name):
        type_ = _base_type(declared.name)
    elif declared.name in ("void", ""):
        type_ = VOID
    else:
        type_ = lookup(declared.kind or "typedef", declared.name) or VOID
        if isinstance(type_, Struct) and not type_.size and not declared.stars:
            type_ = VOID
    for _ in range(declared.stars):
        type_ = Pointer(type_, space)
    return type_
