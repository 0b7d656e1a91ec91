"""Offsets of hosts' clocks, measured by round trips as NTP does (RFC 5905, section 8), and times corrected by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec
from msgspec.structs import replace

from pytrace.core import types
from pytrace.remote.messages import Clock
from pytrace.results.snapshot import MapData, Run, SnapshotData
from pytrace.results.values import Portable, Series, Value

LATEST = (1 << 63) - 1
"""The latest time that snapshots hold; hosts may send any."""


class Offset(msgspec.Struct, frozen=True):
    """How far the wall clock of a host is ahead of the controller's, in nanoseconds."""

    ahead: int
    error: int
    """The true value is at most so far from *ahead*."""

    @property
    def correction(self) -> int:
        """What is subtracted from times of the host: nothing if the clocks may well be equal."""
        return self.ahead if abs(self.ahead) > self.error else 0

    def after(self, other: Offset) -> Offset:
        """The offset by two steps: this one was measured by a clock that has the *other*."""
        ahead = min(max(self.ahead + other.ahead, -LATEST), LATEST)
        return Offset(ahead, min(self.error + other.error, LATEST))


def measured(clock: Clock, back: int) -> Offset | None:
    """The offset by an answer that came at *back* by the clock of the controller; None if it cannot be true."""
    trip = (back - clock.sent) - (clock.answered - clock.received)
    if clock.answered < clock.received or trip < 0:
        return None
    ahead = ((clock.received - clock.sent) + (clock.answered - back)) // 2
    return Offset(ahead, trip // 2 + 1)


def better(known: Offset | None, other: Offset | None) -> Offset | None:
    """The offset with the smaller error."""
    if known is None or other is None:
        return known or other
    return min(known, other, key=lambda offset: offset.error)


def aligned(snapshot: SnapshotData, offset: Offset) -> SnapshotData:
    """A snapshot of one host, or of those of a gateway, whose times are the controller's; runs say what was measured.

    Intervals of time series move as a whole, so they are right to half of their length.
    """
    by = offset.correction
    maps = {name: _map(data, by) for name, data in snapshot.maps.items()} if by else snapshot.maps
    return replace(snapshot, runs=tuple(_run(run, offset) for run in snapshot.runs), maps=maps)


def _moved(time: int, by: int) -> int:
    return min(max(time - by, 0), LATEST)


def _run(run: Run, offset: Offset) -> Run:
    by = offset.correction
    # Of a gateway: it has measured its hosts' clocks by its own.
    whole = offset if run.clock is None else Offset(*run.clock).after(offset)
    gaps = tuple((_moved(start, by), duration) for start, duration in run.gaps)
    return replace(
        run, start=_moved(run.start, by), end=_moved(run.end, by), gaps=gaps, clock=(whole.ahead, whole.error)
    )


def _map(data: MapData, by: int) -> MapData:
    times = None if data.times is None else {key: _moved(time, by) for key, time in data.times.items()}
    entries: Mapping[Portable, Value] = data.entries
    if isinstance(data.value, types.TSeries):
        # Values of this type are of this form.
        series = cast("Mapping[Portable, Series]", data.entries)
        entries = {key: _series(data.value, value, by) for key, value in series.items()}
    return replace(data, times=times, entries=entries)


def _series(type_: types.TSeries, value: Series, by: int) -> Series:
    """A time series with other numbers of its intervals."""
    intervals, latest = round(by / type_.interval), LATEST // type_.interval
    # Without a reduction, the time of the sample that was kept.
    kept = 0 if type_.reduce else by
    return {min(max(number - intervals, 0), latest): (one, _moved(meta, kept)) for number, (one, meta) in value.items()}
