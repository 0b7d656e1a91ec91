"""Snapshots of a run: its maps, rows and losses as plain data, stacks as functions; during the run and after it."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Never, TypeAlias, TypeVar

import msgspec

import pytrace
from pytrace.base import kernel_files
from pytrace.core import types
from pytrace.core.event_layout import PrintedMap, Quantiles
from pytrace.core.types import TRUNCATED, Record, Stack, StackMode, settled
from pytrace.render import names
from pytrace.render.forms import PortableForms
from pytrace.render.map_printer import Entry, MapView
from pytrace.render.values import value_kind_of, with_div
from pytrace.results.snapshot import TRUNCATED_FRAME, Frame, MapData, Print, Run, SnapshotData, StackTrace, Table
from pytrace.runtime.output import messages
from pytrace.runtime.stacks.image_places import ImagePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytrace.core.manifest import Manifest, MapSpec
    from pytrace.core.options import RunOptions
    from pytrace.core.value_tables import RowTable
    from pytrace.render.text import Value as Decoded
    from pytrace.render.text import Values
    from pytrace.results.snapshot import Portable, Value
    from pytrace.runtime.output.map_output import PrintKeeper
    from pytrace.runtime.session.session import Resources
    from pytrace.runtime.stacks.lazy_symbols import LazySymbols

SLICE = 1024
"""Entries between two calls of what else has to go on."""
_NAMED_TARGETS = 4
"""Processes that a snapshot names; of more it says how many."""
KEPT = 65_536
"""Rows of each table that are kept unless told otherwise."""


class ReadMap(NamedTuple):
    """The entries of a map, and the wall time of reading them in nanoseconds."""

    view: MapView
    entries: list[Entry]
    time: int
    others: int = 0
    """Entries that were left out."""

    @classmethod
    def of(cls, view: MapView, most: int = 0, pause: Callable[[], None] = lambda: None) -> ReadMap:
        """Read a map, or at most *most* of its entries, the last ones in the order in which it prints; then pause."""
        moment = time.time_ns()
        if most:
            entries, total = view.greatest(most, pause)
        else:
            entries = view.contents()
            total = len(entries)
        pause()
        return cls(view, entries, moment, total - len(entries))


class Snapshots:
    """Takes snapshots of a run."""

    def __init__(self, run: Resources) -> None:
        self._run = run
        self._manifest = run.loaded.manifest
        self._identity = str(uuid.uuid4())
        self._script_hash = _script_hash(self._manifest, run.options)
        self._target = _target(run.options)

    def take(self) -> SnapshotData:
        """A snapshot: of this moment, or of the end once the probes are detached."""
        return self._take(0)[0]

    def last(self) -> SnapshotData:
        """The snapshot of the end: with what was printed of maps during the run, and which maps were never shown.

        What an end probe printed and emptied is in it: only helper maps are emptied without being shown.
        """
        keeper = self._run.renderer.state.prints
        snapshot, _ = self._take(0, {} if keeper is None else keeper.at_end)
        for name, data in snapshot.maps.items():
            data.hidden |= name not in self._printed and not data.entries
        if keeper is not None:
            snapshot.prints = prints(keeper, self._forms())
        return snapshot

    def greatest(self, count: int) -> tuple[SnapshotData, dict[str, int]]:
        """A snapshot with at most *count* entries of each map, the last ones as maps print, and none of the rows.

        Returns:
            the snapshot, and the number of entries that each map has besides.
        """
        snapshot, contents = self._take(count)
        return snapshot, {item.view.spec.name: item.others for item in contents}

    def clear(self, name: str) -> None:
        """Empty a map; of a double-buffered one no update is lost."""
        self._views[name].reset(self._collect)

    def map_data(self, name: str) -> MapData:
        """The current content of the map *name*."""
        self._run.symbols.poll()
        return map_data(ReadMap.of(self._views[name]), self._forms(), self._collect)

    def element(self, name: str, key: bytes) -> MapData | None:
        """What the map *name* has at *key*, as a map of no more than that; None where one look-up is not enough."""
        self._run.symbols.poll()
        view = self._views[name]
        moment, entries = time.time_ns(), view.element(key)
        return None if entries is None else map_data(ReadMap(view, entries, moment), self._forms(), lambda: None)

    def change(self, name: str, key: bytes | None, value: bytes | None) -> bool:
        """Store *value* at *key*, or remove the key; without both empty the map."""
        if key is None and value is None:
            self.clear(name)
            return True
        return self._views[name].change(key, value)

    def _take(self, most: int, emptied: Mapping[str, list[Entry]] | None = None) -> tuple[SnapshotData, list[ReadMap]]:
        """A snapshot; with *most* entries of each map (0: all of them, rows and costs), and what was read.

        *emptied* is what maps held when they were emptied at the end.
        """
        run = self._run
        run.symbols.poll()
        losses = messages.by_kind(self._manifest, run.renderer.all_losses(run.losses.totals()))
        if run.probes.untraced:
            losses["untraced"] = dict(run.probes.untraced)
        described, costs = self._described(), {}
        if not most and run.costs is not None:
            costs[self._identity] = run.costs.read()
        forms = self._forms()
        # All are read before any is converted, which takes longer: they are to be of one moment as far as may be.
        contents = [ReadMap.of(view, most, self._collect) for view in self._views.values()]
        if emptied:
            contents = [item._replace(entries=emptied.get(item.view.name, item.entries)) for item in contents]
        maps = {item.view.spec.name: map_data(item, forms, self._collect) for item in contents}
        for spec in self._manifest.maps:
            if spec.private or not self._manifest.config.print_maps_on_exit:
                maps[spec.name].hidden = spec.name not in self._printed
        moments = {item.view.spec.name: item.time for item in contents}
        tables = run.rows.tables(self._identity, forms) if not most and run.rows is not None else ()
        return SnapshotData((described,), maps, tables, losses, moments, costs), contents

    @cached_property
    def _views(self) -> dict[str, MapView]:
        return {view.spec.name: view for view in self._run.renderer.views()}

    @cached_property
    def _printed(self) -> set[str]:
        """The maps that statements of the script print."""
        statics = (event.static for event in self._manifest.events)
        return {static.map for static in statics if isinstance(static, PrintedMap | Quantiles)}

    def _forms(self) -> PortableForms:
        stacks = StackTraces(self._run.symbols, places=self._run.options.places)
        return PortableForms(self._run.renderer.forms.raw_texts, stacks)

    def _collect(self) -> None:
        """Free the ring for new events; the collected ones are handled later."""
        while self._run.ring.collect():
            pass

    def _described(self) -> Run:
        system, options = os.uname(), self._run.options
        start, end = self._run.probes.period()
        return Run(
            identity=self._identity,
            host=system.nodename,
            kernel=system.release,
            machine=system.machine,
            script=options.script,
            script_hash=self._script_hash,
            parameters=_parameters(self._manifest, options),
            start=start[0],
            end=end[0],
            start_monotonic=start[1],
            end_monotonic=end[1],
            version=pytrace.__version__,
            gaps=tuple(self._run.losses.gaps),
            text="" if self._manifest.ahead is not None else options.text,
            target=self._target,
        )


def _script_hash(manifest: Manifest, options: RunOptions) -> str:
    """SHA-256 of the script's text; an ahead-of-time file, which has no text any more, has it from its compilation."""
    if manifest.ahead is not None:
        return manifest.ahead.script_hash
    return hashlib.sha256(options.text.encode("utf-8", "surrogateescape")).hexdigest()


def _process(pid: int) -> str:
    name = kernel_files.process_name(pid)
    return f"{pid} ({name})" if name else str(pid)


def _target(options: RunOptions) -> str:
    """What is traced, as its reader would name it: see :attr:`pytrace.results.snapshot.Run.target`."""
    if options.command is not None:
        return options.command
    filters = options.filters
    names = [_process(pid) for pid in filters.pids[:_NAMED_TARGETS]]
    names += filters.comms[: _NAMED_TARGETS - len(names)]
    more = len(filters.pids) + len(filters.comms) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _parameters(manifest: Manifest, options: RunOptions) -> tuple[str, ...]:
    """Parameters as they were given; those that an ahead-of-time file fixed need not be given again."""
    if manifest.ahead is None:
        return options.parameters
    fixed = manifest.ahead.parameters
    positional = [text for text in options.parameters if not text.startswith("--")]
    named = [text for text in options.parameters if text.startswith("--")]
    positional += fixed.positional[len(positional) :]
    named += [f"--{name}" if value is None else f"--{name}={value}" for name, value in fixed.fixed]
    return (*positional, *dict.fromkeys(named))


# ---------------------------------------------------------------------------------------------- maps


def map_data(found: ReadMap, forms: PortableForms, pause: Callable[[], None]) -> MapData:
    """The contents of a map as snapshots have them. *pause* is called now and then while it takes long.

    Keys that refer to equal things (the same functions at other addresses) are one key, and their values are joined.
    """
    spec, entries = found.view.spec, found.entries
    key_type = None if spec.key is None else settled(spec.key)
    values = portable(spec, entries, forms, pause)
    return MapData(
        spec.name, key_type, settled(spec.value), values,
        help=spec.help, mark=found.view.mark, key_names=spec.key_names,
    )  # fmt: skip


def portable(
    spec: MapSpec, entries: list[Entry], forms: PortableForms, pause: Callable[[], None] = lambda: None, div: int = 1
) -> dict[Portable, Value]:
    """Decoded entries of a map as portable ones, numbers divided by *div* as ``print()`` does."""
    if isinstance(spec.value, types.Min | types.Max):
        entries = [(name, item) for name, item in entries if _is_set(item)]
    key = _without_key if spec.key is None else forms.form(spec.key)
    value, join = with_div(forms.form(spec.value), spec.value, div), value_kind_of(spec.value).join()
    values: dict[Portable, Value] = {}
    for start in range(0, len(entries), SLICE):
        for name, item in entries[start : start + SLICE]:
            portable, converted = key(name), value(item)
            if portable in values:
                converted = join(values[portable], converted)
            values[portable] = converted
        pause()
    return values


def _without_key(_key: Decoded) -> None:
    """The portable key of a map without keys."""


def _is_set(value: Decoded) -> bool:
    """True if a least or greatest value is one at all."""
    return isinstance(value, tuple) and bool(value[1])


def prints(keeper: PrintKeeper, forms: PortableForms) -> tuple[Print, ...]:
    """What *keeper* has, by the times."""
    found = [
        Print(view.name, kept.time, portable(view.spec, kept.entries, forms, div=kept.div), kept.cleared, kept.number)
        for view, kept in keeper
    ]
    return tuple(sorted(found, key=lambda item: item.time))


# ---------------------------------------------------------------------------------------------- rows


class _Rows(msgspec.Struct):
    table: RowTable
    kept: deque[Values]
    seen: int = 0


class RowKeeper:
    """Keeps rows as they were decoded, by their table.

    Names (symbols, users) are resolved when a snapshot is taken.
    """

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._rows: dict[int, _Rows] = {}

    def keep(self, table: RowTable, values: Values) -> None:
        """Keep one row: the decoded values of its columns; the oldest row goes when there are too many."""
        rows = self._rows.get(table.number)
        if rows is None:
            rows = self._rows[table.number] = _Rows(table, deque(maxlen=self._most))
        rows.kept.append(values)
        rows.seen += 1

    def tables(self, identity: str, forms: PortableForms) -> tuple[Table, ...]:
        """The rows as tables of the run *identity*, in the order in which their first rows came."""
        return tuple(_table(rows, identity, forms) for rows in self._rows.values())


def _table(rows: _Rows, identity: str, forms: PortableForms) -> Table:
    schema = rows.table.schema
    record = Record(schema.paths, tuple(column.type for column in schema.columns))
    kept = list(map(forms.row_form(record), rows.kept))
    type_ = settled(record)
    assert isinstance(type_, Record)
    return Table(type_, {identity: kept}, rows.seen - len(kept), rows.table.number)


# ---------------------------------------------------------------------------------------------- stacks
# Resolved once for each address and each stack of a snapshot.

KERNEL = "[kernel]"
"""Module of what is in the kernel proper."""
_BUILD_ID_VALID = 1
"""``BPF_STACK_BUILD_ID_VALID`` (``include/uapi/linux/bpf.h``); otherwise the frame has an address."""

Addresses: TypeAlias = tuple[int, tuple[int, ...], int]
"""A stack as it is decoded: process, addresses, error."""
_BuildIds: TypeAlias = tuple[int, tuple[tuple[int, bytes, int], ...], int]
"""The same in mode ``build_id``: status, build id, and position in the file, or address, of each frame."""
_Decoded = TypeVar("_Decoded", Addresses, _BuildIds)


class _Resolved(msgspec.Struct, frozen=True):
    """Functions of an address: as that of the innermost frame, and as one where a call returns to.

    *interrupted*: handlers of signals return there, so the frame after it was interrupted and called nothing.
    """

    innermost: tuple[Frame, ...]
    calling: tuple[Frame, ...]
    interrupted: bool = False


_MARK = _Resolved((TRUNCATED_FRAME,), (TRUNCATED_FRAME,))


class StackTraces:
    """Resolves stacks. One object is for one snapshot: processes may run other programs before the next.

    *places*: functions in binaries with build ids are left to others, as :class:`pytrace.results.snapshot.Frame` says.
    """

    def __init__(self, symbols: LazySymbols, *, places: bool = False) -> None:
        self._symbols, self._places = symbols, places
        self._kernel: dict[int, _Resolved] = {TRUNCATED: _MARK}
        self._processes: dict[int, dict[int, _Resolved]] = {}
        self._frames: dict[tuple[Frame, ...], tuple[Frame, ...]] = {}
        """The same place in many processes is one object."""

    def form(self, type_: Stack) -> Callable[[Never], StackTrace]:
        """A function that converts decoded stacks of a type to portable ones; equal ones are one object."""
        if type_.mode is StackMode.BUILD_ID:
            return _form(type_.user, _by_build_id)
        if type_.mode is StackMode.RAW:
            return _form(type_.user, _raw)
        return _form(type_.user, self._in_process if type_.user else self._in_kernel)

    def _in_kernel(self, value: Addresses) -> list[Frame]:
        return _joined(value[1], self._kernel, self._kernel_address)

    def _in_process(self, value: Addresses) -> list[Frame]:
        process, addresses, _ = value
        known = self._processes.setdefault(process, {TRUNCATED: _MARK})
        return _joined(addresses, known, lambda address: self._user_address(process, address))

    def _kernel_address(self, address: int) -> _Resolved:
        symbols = self._symbols
        frames = symbols.kernel(address)
        innermost = calling = _kernel_frames(frames, symbols.kernel_place(address))
        if names.in_source(frames):
            place = _after(symbols.kernel_place(address - 1))
            calling = _kernel_frames(symbols.kernel(address, caller=True), place)
        return _Resolved(innermost, calling)

    def _user_address(self, process: int, address: int) -> _Resolved:
        innermost = self._once(self._user_frames(process, address, caller=False))
        if self._symbols.trampoline(process, address):
            return _Resolved(innermost, innermost, interrupted=True)
        return _Resolved(innermost, self._once(self._user_frames(process, address, caller=True)))

    def _user_frames(self, process: int, address: int, *, caller: bool) -> tuple[Frame, ...]:
        """Frames of an address; *caller*: of one where a call returns to, by the last byte of the call."""
        symbols, byte = self._symbols, address - caller
        if self._places and (linked := symbols.linked(process, byte)) is not None:
            return (Frame("", linked.address, linked.module, linked.build_id, address=linked.address + caller),)
        place = symbols.user_place(process, byte)
        return _frames(symbols.user(process, address, caller=caller), _after(place) if caller else place)

    def _once(self, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        return self._frames.setdefault(frames, frames)


def _form(user: bool, frames: Callable[[_Decoded], list[Frame]]) -> Callable[[_Decoded], StackTrace]:
    traces: dict[_Decoded, StackTrace] = {}

    def convert(value: _Decoded) -> StackTrace:
        trace = traces.get(value)
        if trace is None:
            error = value[2]
            trace = traces[value] = StackTrace(tuple(frames(value)), user, names.unread(error))
        return trace

    return convert


def _joined(
    addresses: Sequence[int], known: dict[int, _Resolved], resolve: Callable[[int], _Resolved]
) -> list[Frame]:
    """The frames of all addresses; see :meth:`pytrace.render.names.Names.stack` for the rule."""
    frames: list[Frame] = []
    called = False
    for address in addresses:
        place = known.get(address)
        if place is None:
            place = known[address] = resolve(address)
        frames += place.calling if called else place.innermost
        called = not place.interrupted
    return frames


def _after(place: ImagePlace) -> ImagePlace:
    """The place of a return address, given that of the last byte of the call."""
    return ImagePlace(place.build_id, place.address + 1) if place.address else place


def _frames(found: Sequence[names.NamedFrame], place: ImagePlace) -> tuple[Frame, ...]:
    """Portable frames of one address."""
    return tuple(
        Frame(
            one.name, one.offset, one.module, place.build_id, one.file, one.line, one.inlined, place.address
        )
        for one in found
    )  # fmt: skip


def _kernel_frames(found: Sequence[names.NamedFrame], place: ImagePlace) -> tuple[Frame, ...]:
    return tuple(
        frame._replace(module=KERNEL) if frame.function and not frame.module else frame
        for frame in _frames(found, place)
    )


# ---------------------------------------------------------------------------------------------- modes of numbers


def _raw(value: Addresses) -> list[Frame]:
    return [TRUNCATED_FRAME if address == TRUNCATED else Frame("", address=address) for address in value[1]]


def _by_build_id(value: _BuildIds) -> list[Frame]:
    return [
        TRUNCATED_FRAME if place == TRUNCATED
        else Frame("", build_id=identity.hex() if status == _BUILD_ID_VALID else "", address=place)
        for status, identity, place in value[1]
    ]  # fmt: skip
