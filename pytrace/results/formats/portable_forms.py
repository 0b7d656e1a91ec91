"""Portable values in the forms that output decodes and prints (:mod:`pytrace.runtime.output.render`).

What the machine of the run resolved already (symbols, users, times, stacks) stays as it is, and :class:`PortableNames`
gives it as text.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from pytrace.core import types
from pytrace.core.types import StackMode
from pytrace.results.snapshot import MapData
from pytrace.results.values import StackTrace, Value
from pytrace.runtime.output.render.decoders import ByType, named_fields
from pytrace.runtime.output.render.json import JsonForms
from pytrace.runtime.output.render.map_printer import Entry, MapPrinter
from pytrace.runtime.output.render.names import build_id_line, no_stack, symbol_lines
from pytrace.runtime.output.render.text import TextForms

Restore = Callable[[Any], Any]
"""From the portable form of a value to the decoded one."""

PortableForm = Callable[[Value], bytes]
"""The form of a portable value."""


def encoded(text: str) -> bytes:
    """Text as the bytes that it had on the machine of the run."""
    return text.encode("utf-8", "surrogateescape")


class PortableNames:
    """Names of values that were resolved when the snapshot was taken."""

    def kernel_symbol(self, address: bytes) -> bytes:
        return address

    def user_symbol(self, value: bytes) -> bytes:
        return value

    def user(self, identity: bytes) -> bytes:
        return identity

    def interface(self, index: bytes) -> bytes:
        return index

    def network_namespace(self, inode: bytes) -> bytes:
        return inode

    def timestamp(self, value: bytes) -> bytes:
        return value

    def cgroup(self, value: bytes) -> bytes:
        return value

    def stack(self, kind: types.Stack, indent: bytes = b"        ") -> Callable[[StackTrace], bytes]:
        """How stacks of type *kind* print: as the run prints them, with addresses as they are in the module."""
        mode = kind.mode

        def text(value: StackTrace) -> bytes:
            if value.error:
                return no_stack(indent, value.error)
            if mode is StackMode.RAW:
                return b"\n" + b"".join([b"%x\n" % frame.address for frame in value.frames])
            if mode is StackMode.BUILD_ID:
                return b"\n" + b"".join([build_id_line(frame.build_id, frame.address) for frame in value.frames])
            perf = mode is StackMode.PERF
            return b"\n" + b"".join([symbol_lines((frame,), frame.address, indent, perf) for frame in value.frames])

        return text


class Restored(ByType[Restore]):
    """Makes functions from portable to decoded values."""

    def _make(self, kind: types.Type) -> Restore:
        return ROWS[type(kind)](self, kind)


# ---------------------------------------------------------------------------------------------- rows


def _same(_restored: Restored, _kind: types.Type) -> Restore:
    return lambda value: value


def _text(_restored: Restored, _kind: types.Type) -> Restore:
    return encoded


def _members(parts: list[Restore]) -> Restore:
    if len(parts) == 1:
        only = parts[0]
        return lambda value: (only(value[0]),)
    return lambda value: tuple([part(item) for part, item in zip(parts, value, strict=True)])


def _array(restored: Restored, kind: types.Array) -> Restore:
    element = restored.made(kind.element)
    return lambda value: tuple([element(item) for item in value])


def _tuple(restored: Restored, kind: types.Tuple | types.Record) -> Restore:
    return _members([restored.made(member) for member in kind.members])


def _struct(restored: Restored, kind: types.Struct) -> Restore:
    return _members([restored.made(field.type) for field in named_fields(kind)])


def _inet(_restored: Restored, _kind: types.Type) -> Restore:
    def restore(value: str) -> tuple[int, bytes]:
        if not value:
            return 0, b""
        family = socket.AF_INET6 if ":" in value else socket.AF_INET
        return family, socket.inet_pton(family, value)

    return restore


def _mac(_restored: Restored, _kind: types.Type) -> Restore:
    return lambda value: bytes.fromhex(value.replace(":", ""))


def _extreme(_restored: Restored, _kind: types.Type) -> Restore:
    return lambda value: (value, 1)


def _buckets(_restored: Restored, kind: types.Hist | types.LHist) -> Restore:
    count = kind.buckets

    def restore(value: Mapping[int, int]) -> tuple[int, ...]:
        counts = [0] * count
        for bucket, number in value.items():
            counts[bucket] = number
        return tuple(counts)

    return restore


def _series(_restored: Restored, _kind: types.Type) -> Restore:
    return lambda value: tuple((number + 1, found, meta) for number, (found, meta) in sorted(value.items()))


_T = TypeVar("_T", bound=types.Type)
_Make = Callable[[Restored, types.Type], Restore]


def _row(kind: type[_T], make: Callable[[Restored, _T], Restore]) -> tuple[type[types.Type], _Make]:
    """A row of the table, whose function is only called with values of its own class."""
    return kind, cast(_Make, make)


ROWS: dict[type[types.Type], _Make] = dict((
    _row(types.Void, _same),
    _row(types.Bool, _same),
    _row(types.Int, _same),
    _row(types.Enum, _same),
    _row(types.Pointer, _same),
    _row(types.String, _text),
    _row(types.Buffer, _same),
    _row(types.Array, _array),
    _row(types.Tuple, _tuple),
    _row(types.Record, _tuple),
    _row(types.Struct, _struct),
    _row(types.Stack, _same),
    _row(types.KSym, _text),
    _row(types.USym, _text),
    _row(types.Inet, _inet),
    _row(types.Mac, _mac),
    _row(types.Timestamp, _text),
    _row(types.Username, _text),
    _row(types.InterfaceName, _text),
    _row(types.NetworkNamespace, _text),
    _row(types.CgroupPath, _text),
    _row(types.Count, _same),
    _row(types.Sum, _same),
    _row(types.Avg, _same),
    _row(types.Stats, _same),
    _row(types.Min, _extreme),
    _row(types.Max, _extreme),
    _row(types.Hist, _buckets),
    _row(types.LHist, _buckets),
    _row(types.TSeries, _series),
))


# ---------------------------------------------------------------------------------------------- maps


class Printers:
    """Prints maps of snapshots, in text and JSON, as the end of a run prints them."""

    def __init__(self) -> None:
        self.texts = TextForms(PortableNames())
        self.jsons = JsonForms(self.texts)
        self._restored = Restored()

    def printer(self, data: MapData) -> MapPrinter:
        """What prints entries of a map that :meth:`entries` gave."""
        return MapPrinter(data.name, data.key, data.value, self.texts, self.jsons)

    def entries(self, data: MapData) -> list[Entry]:
        """The entries of a map, decoded."""
        value = self._restored.made(data.value)
        if data.key is None:
            return [((), value(item)) for item in data.entries.values()]
        key = self._restored.made(data.key)
        return [(key(name), value(item)) for name, item in data.entries.items()]

    def restored(self, type_: types.Type) -> Restore:
        """What decodes portable values of a type."""
        return self._restored.made(type_)

    def portable_text(self, type_: types.Type) -> PortableForm:
        """The text form of portable values of a type."""
        restore, form = self._restored.made(type_), self.texts.form(type_)
        return lambda value: form(restore(value))

    def portable_json(self, type_: types.Type) -> PortableForm:
        """The JSON form of portable values of a type."""
        restore, form = self._restored.made(type_), self.jsons.form(type_)
        return lambda value: form(restore(value))
