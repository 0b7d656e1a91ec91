"""Portable values in the forms that output decodes and prints (:mod:`pytrace.render`).

Values that the machine of the run resolved already (symbols, users, times, stacks) stay as they are, and
:class:`PortableNames` prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeVar

from pytrace.core import types
from pytrace.core.types import StackMode
from pytrace.render.forms import JsonForms, TextForms
from pytrace.render.map_printer import Entry, MapPrinter
from pytrace.render.names import StackForm, frame_names, unread_name
from pytrace.render.text import Value as Decoded
from pytrace.render.values import value_kind_of
from pytrace.results import external_sort
from pytrace.results.snapshot import TRUNCATED_FRAME, Frame, MapData, Portable, SnapshotData, StackTrace, Table, Value

Made = TypeVar("Made")

PortableForm = Callable[[Value], bytes]
"""The form of a portable value."""


def _place(frame: Frame) -> int:
    return types.TRUNCATED if frame == TRUNCATED_FRAME else frame.address


class PortableNames:
    """Names of values that were resolved when the snapshot was taken."""

    @staticmethod
    def _name(value: bytes, /) -> bytes:
        return value

    kernel_symbol = user_symbol = user = interface = network_namespace = timestamp = cgroup = _name

    def stack(self, type_: types.Stack, indent: bytes = b"        ") -> Callable[[StackTrace], bytes]:
        """The text form of stacks of type *type_*: as in the run, with addresses as they are in the module."""
        mode, form = type_.mode, StackForm(type_, indent)

        def text(value: StackTrace) -> bytes:
            if value.error:
                return form.unread(value.error)
            if mode.one_line:
                return form.joined(form.word(frame, frame.address) for frame in value.frames)
            return b"\n" + b"".join(map(line, value.frames))

        def line(frame: Frame) -> bytes:
            if mode is StackMode.RAW:
                return form.place(_place(frame))
            if mode is StackMode.BUILD_ID:
                return form.build_id(frame.build_id, _place(frame))
            return form.truncated if frame == TRUNCATED_FRAME else form.symbols((frame,), frame.address)

        return text

    many_stacks = stack

    def frames(self, _type: types.Stack, /, *, lines: bool, offsets: bool) -> Callable[[StackTrace], list[bytes]]:
        """The names of a stack's functions, the innermost first."""

        def texts(value: StackTrace) -> list[bytes]:
            if value.error:
                return [unread_name(value.error)]
            return [
                line
                for frame in value.frames
                for line in frame_names((frame,), frame.address, lines=lines, offsets=offsets)
            ]

        return texts


def rows_of(snapshot: SnapshotData, table: Table) -> Iterator[tuple[Portable, ...]]:
    """The rows of a table: those of each run in the order of their arrival, runs in their order."""
    return chain.from_iterable(table.rows.get(run.identity, ()) for run in snapshot.runs)


# ---------------------------------------------------------------------------------------------- maps


class Printers:
    """Prints maps of snapshots, in text and JSON, as the end of a run prints them."""

    def __init__(self) -> None:
        self.texts = TextForms(PortableNames())
        self.jsons = JsonForms(self.texts)

    def printer(self, data: MapData) -> MapPrinter:
        """A printer of the entries of a map, as :meth:`entries` returns them."""
        return MapPrinter(data.name, data.key, data.value, self.texts, self.jsons, {data.name: data.mark})

    def entries(self, data: MapData) -> Iterator[Entry]:
        """The entries of a map, decoded."""
        return map(self._decoded(data), data.entries.items())

    def _decoded(self, data: MapData) -> Callable[[tuple[Value, ...]], Entry]:
        value = value_kind_of(data.value).restored()
        if data.key is None:
            return lambda item: ((), value(item[1]))
        key = value_kind_of(data.key).restored()
        return lambda item: (key(item[0]), value(item[1]))

    def in_order(self, data: MapData) -> Iterator[list[Entry]]:
        """The entries of a map, decoded, as they print; some at a time."""
        decoded = self._decoded(data)
        for block in self.portable_in_order(data):
            yield list(map(decoded, block))

    def portable_in_order(self, data: MapData) -> Iterator[list[tuple[Value, ...]]]:
        """The entries of a map, portable, as they print; some at a time."""
        decoded, order = self._decoded(data), self.printer(data).order_key()
        if data.key is None:
            yield from filter(None, [[*data.entries.items()]])
            return
        if not external_sort.is_large(data.entries):
            entries: list[tuple[Value, ...]] = [*data.entries.items()]
            entries.sort(key=lambda item: order(decoded(item)))
            yield from external_sort.batches(entries, external_sort.CHUNK)
            return
        type_ = types.Tuple((data.key, data.value))
        yield from external_sort.in_order(data.entries.items(), lambda item: order(decoded(item)), type_)

    def last_interval(self, data: MapData) -> int:
        """Of a map of time series the number of the last interval; 0 of others."""
        if not isinstance(data.value, types.TSeries):
            return 0
        series = (value for value in data.entries.values() if isinstance(value, dict))
        return max((number for value in series for number in value), default=0)

    def restored(self, type_: types.Type) -> Callable[[Value], Decoded]:
        """The decoder of portable values of a type."""
        return value_kind_of(type_).restored()

    def portable(self, type_: types.Type, form: Callable[[Decoded], Made]) -> Callable[[Value], Made]:
        """*form* for portable values of a type."""
        restore = value_kind_of(type_).restored()
        return lambda value: form(restore(value))

    def portable_text(self, type_: types.Type) -> PortableForm:
        """The text form of portable values of a type."""
        return self.portable(type_, self.texts.form(type_))

    def portable_json(self, type_: types.Type) -> PortableForm:
        """The JSON form of portable values of a type."""
        return self.portable(type_, self.jsons.form(type_))
