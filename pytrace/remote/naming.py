"""Functions of user stacks that only hosts can name: each place is asked of one host, after its run.

Hosts send places in binaries, by build id and address, and how much they know of these binaries. A host is asked for
the places of which it knows more than this machine and those that were asked before: of many hosts with the same
binaries the first one. Hosts that know as much wait meanwhile, as it may be lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Array, Record, Stack, StackMode, Tuple, Type
from pytrace.remote import messages
from pytrace.remote.answer import leaf_types
from pytrace.remote.messages import NamedPlace, NamePlaces, Place
from pytrace.results.snapshot import Frame, SnapshotData, StackTrace

_AS_PLACES = frozenset({StackMode.RAW, StackMode.BUILD_ID})
"""Modes of stacks that the script has chosen to have without names."""
_BUILD_ID = re.compile(r"[0-9a-f]{8,64}", re.ASCII)

Own = Callable[[str, str], int]
"""How much this machine knows of a binary, by build id and path: :data:`pytrace.remote.messages.Detail`."""

ANSWERING = 20.0
"""Seconds in which it answers at least a part of a question."""


def _no_detail(_build_id: str, _path: str) -> int:
    """What a gateway knows: its controller names functions."""
    return 0


class _Waiting(msgspec.Struct):
    """A host that waits for questions."""

    offered: dict[Place, int]
    """Places of which it may be asked, and how much it knows of their binaries."""
    since: float
    heard: float = inf
    """When it was asked, or has answered."""


class Naming:
    """Which host is asked for which places, and what was answered. *tell* is called with each new name."""

    def __init__(self, own: Own = _no_detail, tell: Callable[[NamedPlace], object] = lambda _: None) -> None:
        self.names: dict[Place, NamedPlace] = {}
        """What hosts have said; also of places that they do not know."""
        self._own, self._tell = own, tell
        self._waiting: dict[str, _Waiting] = {}
        self._asked: dict[Place, str] = {}

    @property
    def waiting(self) -> list[str]:
        """Hosts that wait for questions."""
        return list(self._waiting)

    def waits(self, host: str) -> bool:
        """Whether a host waits for questions."""
        return host in self._waiting

    def begin(self, host: str, snapshot: SnapshotData, details: Mapping[str, int], now: float) -> None:
        """A host has ended its run, and waits for questions about its last snapshot."""
        offered = {}
        for frame in places(snapshot):
            detail, place = details.get(frame.build_id, 0), place_of(frame)
            if place is not None and detail > self._own(frame.build_id, frame.module):
                offered[place] = detail
        self._waiting[host] = _Waiting(offered, now)

    def said(self, host: str, now: float) -> bytes | None:
        """The question to a host that waits; empty while others are asked, None if it need not wait any longer."""
        waiting = self._waiting[host]
        waiting.offered = {place: detail for place, detail in waiting.offered.items() if detail > self._known(place)}
        if not waiting.offered:
            self.gone(host)
            return None
        wanted = [place for place in waiting.offered if place not in self._asked][: messages.MOST_PLACES]
        if not wanted:
            return b""
        waiting.heard = now
        self._asked |= dict.fromkeys(wanted, host)
        return messages.encode(NamePlaces(tuple(wanted)))

    def _known(self, place: Place) -> int:
        known = self.names.get(place)
        return 0 if known is None else known.detail

    def answered(self, host: str, named: Iterable[NamedPlace], now: float) -> None:
        """Take the answer of a host, or a part of it.

        Raises:
            TraceError: it has names of places that it was not asked for.
        """
        waiting = self._waiting.get(host)
        for one in named:
            if waiting is None or self._asked.get(one.place) != host:
                raise TraceError("it names functions that it was not asked for")
            del self._asked[one.place]
            self._learn(replace(one, detail=waiting.offered.pop(one.place)))
            waiting.heard = now

    def learn(self, snapshot: SnapshotData, named: Iterable[NamedPlace]) -> None:
        """Take what a gateway has asked its hosts, as far as it is of stacks in its results."""
        own = {place_of(frame) for frame in places(snapshot)}
        for one in named:
            if one.place in own and one.detail > self._known(one.place):
                self._learn(one)

    def _learn(self, one: NamedPlace) -> None:
        known = self.names.get(one.place)
        if known is not None and known.functions and not one.functions:
            one = replace(one, functions=known.functions)
        self.names[one.place] = one
        self._tell(one)

    def gone(self, host: str) -> None:
        """A host does not wait any longer: what it has not answered is asked of others."""
        if self._waiting.pop(host, None) is not None:
            self._asked = {place: asked for place, asked in self._asked.items() if asked != host}

    def late(self, now: float) -> list[str]:
        """Hosts that have not answered in time, or have waited long enough; they are gone."""
        found = [
            host for host, waiting in self._waiting.items()
            if now - waiting.since > messages.NAMING or now - waiting.heard > ANSWERING
        ]  # fmt: skip
        for host in found:
            self.gone(host)
        return found


def place_of(frame: Frame) -> Place | None:
    """The byte by which the function of a frame is named; None of frames that have a name, or no place."""
    if frame.function or not frame.address or not _BUILD_ID.fullmatch(frame.build_id):
        return None
    called = frame.offset and frame.address - frame.offset == 1
    address = frame.offset if called else frame.address
    return Place(frame.build_id, address) if 0 < address < 1 << 63 else None


def has_stacks(type_: Type | None) -> bool:
    """Whether values of a type have user stacks whose functions are shown."""
    return any(isinstance(leaf, Stack) and leaf.user and leaf.mode not in _AS_PLACES for leaf in leaf_types(type_))


def places(snapshot: SnapshotData) -> list[Frame]:
    """Frames of user stacks without a function, each once."""
    found: dict[int, Frame] = {}
    for data in snapshot.maps.values():
        for type_, values in ((data.key, data.entries), (data.value, data.entries.values())):
            if has_stacks(type_):
                for value in values:
                    _collect(type_, value, found)
    for table in snapshot.tables:
        if has_stacks(table.type):
            for row in (row for rows in table.rows.values() for row in rows):
                _collect(table.type, row, found)
    return list(dict.fromkeys(frame for frame in found.values() if place_of(frame) is not None))


def _collect(type_: Type | None, value: object, found: dict[int, Frame]) -> None:
    """Add the frames of a value by their identity: those of a file are shared objects, of many stacks."""
    for trace in _stacks(type_, value):
        for frame in trace.frames:
            found[id(frame)] = frame


def _stacks(type_: Type | None, value: object) -> Iterator[StackTrace]:
    match type_, value:
        case Stack(), StackTrace():
            if has_stacks(type_):
                yield value
        case Tuple() | Record(), tuple():
            for member, each in zip(type_.members, value, strict=True):
                yield from _stacks(member, each)
        case Array(), tuple():
            for each in value:
                yield from _stacks(type_.element, each)
