"""Portable values in the forms that output decodes and prints (:mod:`pytrace.render`).

What the machine of the run resolved already (symbols, users, times, stacks) stays as it is, and :class:`PortableNames`
gives it as text.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Never, TypeVar, cast

from pytrace.core import types
from pytrace.core.types import StackMode
from pytrace.render.decoders import ByType, row
from pytrace.render.decoders import Value as Decoded
from pytrace.render.histogram import all_buckets
from pytrace.render.json import JsonForms
from pytrace.render.map_printer import Entry, MapPrinter
from pytrace.render.names import build_id_line, no_stack, symbol_lines
from pytrace.render.stack_lines import frame_word, joined_words
from pytrace.render.text import TextForms
from pytrace.results import external_sort
from pytrace.results.snapshot import MapData
from pytrace.results.values import Counts, Portable, Series, StackTrace, Value

_T = TypeVar("_T")
Made = TypeVar("Made")

Restore = Callable[[Value], Decoded]
"""From the portable form of a value to the decoded one; stacks stay as they are (:class:`PortableNames`)."""

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

    def many_stacks(self, kind: types.Stack, indent: bytes = b"        ") -> Callable[[StackTrace], bytes]:
        """As :meth:`stack`."""
        return self.stack(kind, indent)

    def stack(self, kind: types.Stack, indent: bytes = b"        ") -> Callable[[StackTrace], bytes]:
        """How stacks of type *kind* print: as the run prints them, with addresses as they are in the module."""
        mode = kind.mode

        def text(value: StackTrace) -> bytes:
            if mode.one_line:
                if value.error:
                    return no_stack(b"", value.error).strip()
                return joined_words([frame_word(frame, frame.address, kind) for frame in value.frames], kind)
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
        return cast(Restore, ROWS[type(kind)](self, kind))


# ---------------------------------------------------------------------------------------------- rows

_Members = tuple[Portable, ...]

def _same(_restored: Restored, _kind: types.Type) -> Callable[[_T], _T]:
    return lambda value: value


def _text(_restored: Restored, _kind: types.Type) -> Callable[[str], bytes]:
    return encoded


def _members(parts: list[Restore]) -> Callable[[_Members], Decoded]:
    if len(parts) == 1:
        only = parts[0]
        return lambda value: (only(value[0]),)
    return lambda value: tuple([part(item) for part, item in zip(parts, value, strict=True)])


def _array(restored: Restored, kind: types.Array) -> Callable[[_Members], Decoded]:
    element = restored.made(kind.element)
    return lambda value: tuple([element(item) for item in value])


def _tuple(restored: Restored, kind: types.Tuple | types.Record) -> Callable[[_Members], Decoded]:
    return _members([restored.made(member) for member in kind.members])


def _struct(restored: Restored, kind: types.Struct) -> Callable[[_Members], Decoded]:
    return _members([restored.made(field.type) for field in types.named_fields(kind)])


def _inet(_restored: Restored, _kind: types.Type) -> Callable[[str], Decoded]:
    def restore(value: str) -> tuple[int, bytes]:
        if not value:
            return 0, b""
        family = socket.AF_INET6 if ":" in value else socket.AF_INET
        return family, socket.inet_pton(family, value)

    return restore


def _mac(_restored: Restored, _kind: types.Type) -> Callable[[str], bytes]:
    return lambda value: bytes.fromhex(value.replace(":", ""))


def _extreme(_restored: Restored, _kind: types.Type) -> Callable[[int], Decoded]:
    return lambda value: (value, 1)


def _buckets(_restored: Restored, kind: types.Hist | types.LHist) -> Callable[[Counts], Decoded]:
    return lambda value: tuple(all_buckets(kind, value))


def _series(_restored: Restored, _kind: types.Type) -> Callable[[Series], Decoded]:
    return lambda value: tuple((number + 1, found, meta) for number, (found, meta) in sorted(value.items()))


ROWS: dict[type[types.Type], Callable[[Restored, types.Type], Callable[[Never], Decoded]]] = dict((
    row(types.Void, _same),
    row(types.Bool, _same),
    row(types.Int, _same),
    row(types.Enum, _same),
    row(types.Pointer, _same),
    row(types.String, _text),
    row(types.Buffer, _same),
    row(types.Array, _array),
    row(types.Tuple, _tuple),
    row(types.Record, _tuple),
    row(types.Struct, _struct),
    row(types.Stack, _same),
    row(types.KSym, _text),
    row(types.USym, _text),
    row(types.Inet, _inet),
    row(types.Mac, _mac),
    row(types.Timestamp, _text),
    row(types.Username, _text),
    row(types.InterfaceName, _text),
    row(types.NetworkNamespace, _text),
    row(types.CgroupPath, _text),
    row(types.Fixed, _same),
    row(types.Joined, _text),
    row(types.Count, _same),
    row(types.Sum, _same),
    row(types.Avg, _same),
    row(types.Stats, _same),
    row(types.Min, _extreme),
    row(types.Max, _extreme),
    row(types.Hist, _buckets),
    row(types.LHist, _buckets),
    row(types.TSeries, _series),
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

    def entries(self, data: MapData) -> Iterator[Entry]:
        """The entries of a map, decoded."""
        value = self._restored.made(data.value)
        if data.key is None:
            return (((), value(item)) for item in data.entries.values())
        key = self._restored.made(data.key)
        return ((key(name), value(item)) for name, item in data.entries.items())

    def in_order(self, data: MapData) -> Iterator[list[Entry]]:
        """The entries of a map, decoded, as they print; some at a time."""
        return external_sort.in_order(self.entries(data), self.printer(data).order_key())

    def last_interval(self, data: MapData) -> int:
        """Of a map of time series the number of the last interval; 0 of others."""
        if not isinstance(data.value, types.TSeries):
            return 0
        return max((number for value in data.entries.values() for number in cast(Series, value)), default=0)

    def restored(self, type_: types.Type) -> Restore:
        """What decodes portable values of a type."""
        return self._restored.made(type_)

    def portable(self, type_: types.Type, form: Callable[[Decoded], Made]) -> Callable[[Value], Made]:
        """What *form* makes of portable values of a type."""
        restore = self._restored.made(type_)
        return lambda value: form(restore(value))

    def portable_text(self, type_: types.Type) -> PortableForm:
        """The text form of portable values of a type."""
        return self.portable(type_, self.texts.form(type_))

    def portable_json(self, type_: types.Type) -> PortableForm:
        """The JSON form of portable values of a type."""
        return self.portable(type_, self.jsons.form(type_))
