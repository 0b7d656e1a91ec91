"""Packets of a Perfetto trace for stacks: each count of a stack is a sample of the profiler (``PerfSample``).

A map knows how often a stack was seen and not when: all samples have the time of the snapshot. Keys beside the stacks
are outermost frames, but for ``pid``, ``tid`` and ``comm`` of records, which name process and thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from pytrace.base.protobuf import data, number
from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.types.tables import Column, key_columns
from pytrace.results.snapshot import MapData
from pytrace.results.stack_samples import KERNEL, members_of, paths
from pytrace.results.timeline.row_events import Held, shown, unicode_text
from pytrace.results.timeline.track_packets import packet
from pytrace.results.values import Frame, StackTrace

MOST_SAMPLES = 1_000_000
"""Of a map with more, each sample stands for several."""

_CLEARED, _NEEDED = 1, 2
"""``SequenceFlags``: the packet begins, and needs, what is interned on its sequence."""
_MADE_UP = 1 << 22
"""The first process number that Linux never assigns (``PID_MAX_LIMIT``): processes of maps without one."""


class _Sample(msgspec.Struct, frozen=True):
    frames: tuple[Frame, ...]
    """Outermost first."""
    kernel: bool
    pid: int
    tid: int
    comm: str
    weight: int


def stack_packets(data_: MapData, place: int, time: int) -> Iterator[bytes]:
    """The packets of a map of numbers by stack.

    Args:
        data_: the map.
        place: its number among those of the trace, from 0.
        time: of all samples, nanoseconds since 1970.

    Raises:
        TraceError: it has negative numbers.
    """
    samples = [_sample(data_, key, value, place) for key, value in data_.entries.items()]
    total = sum(sample.weight for sample in samples)
    share = -(-total // MOST_SAMPLES) or 1
    sequence = 2 + place
    interned = _Interned()
    stacks = [interned.stack(sample.frames) for sample in samples]
    title = data_.title if share == 1 else f"{data_.title} (a sample stands for {share})"
    timebase = data(1, number(1, 1) + data(10, title))  # perf_sample_defaults.timebase: period, name
    yield packet(
        number(10, sequence), number(8, time), number(13, _CLEARED),
        data(59, data(12, timebase)), data(12, interned.content()),
    )  # fmt: skip
    yield from _tasks(samples, sequence, title)
    for sample, stack in zip(samples, stacks, strict=True):
        mode = 1 if sample.kernel else 2  # Profiling.CpuMode
        content = number(2, sample.pid) + number(3, sample.tid) + number(5, mode) + number(4, stack)
        one = packet(number(10, sequence), number(8, time), number(13, _NEEDED), data(66, content))
        yield one * (-(-sample.weight // share))


def _tasks(samples: list[_Sample], sequence: int, title: str) -> Iterator[bytes]:
    """Names of processes and threads: ``process_tree``."""
    names = {(sample.pid, sample.tid): sample.comm for sample in samples}
    processes = {pid: comm for (pid, _), comm in names.items()}
    content = b"".join(data(1, number(1, pid) + data(3, comm or title)) for pid, comm in processes.items())
    for (pid, tid), comm in names.items():
        content += data(2, number(1, tid) + (data(2, comm) if comm else b"") + number(3, pid))
    yield packet(number(10, sequence), data(2, content))


# ---------------------------------------------------------------------------------------------- samples


def _sample(data_: MapData, key: Held, value: Held, place: int) -> _Sample:
    assert data_.key is not None
    columns = key_columns(data_.key)
    named: dict[str, Held] = {}
    labels: list[Frame] = []
    members = list(members_of(data_.key, key))
    for column, item in zip(columns, members, strict=True):
        if isinstance(item, StackTrace):
            continue
        if _is_task(column, data_.key):
            named[column.name] = item
        else:
            labels.append(Frame(str(shown(column.type, item))))
    pid: int = named["pid"] if "pid" in named else named.get("tid", _MADE_UP + place)
    tid: int = named.get("tid", pid)
    path = paths([column.type for column in columns])(members)
    return _Sample(
        (*labels, *(frame for frame, _ in path)), path[-1][1] == KERNEL, pid, tid,
        unicode_text(named.get("comm", "")), _weight(data_, value),
    )  # fmt: skip


def _is_task(column: Column, key: types.Type) -> bool:
    if not isinstance(key, types.Record):
        return False
    wanted = types.String if column.name == "comm" else types.Int
    return column.name in ("pid", "tid", "comm") and isinstance(column.type, wanted)


def _weight(data_: MapData, value: Held) -> int:
    """The number of samples of a value: of averages and stats their counts."""
    weight = int(value[1] if isinstance(value, tuple) else value)
    if weight < 0:
        raise TraceError(f"{data_.name} has negative numbers, which a trace cannot show",
                         hints=("differences can be shown as text or json",))  # fmt: skip
    return weight


# ---------------------------------------------------------------------------------------------- interning


class _Interned:
    """Stacks, frames, binaries and texts, to which samples refer by number: ``InternedData`` of one sequence."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, object], int] = {}
        self._counts: dict[int, int] = {}
        self._fields: list[bytes] = []

    def content(self) -> bytes:
        """The message."""
        return b"".join(self._fields)

    def stack(self, frames: tuple[Frame, ...]) -> int:
        """``callstacks``; frames from the outermost."""
        return self._number(7, frames, lambda: b"".join(number(2, self._frame(frame)) for frame in frames))

    def _frame(self, frame: Frame) -> int:
        known = self._numbers.get((6, frame))
        if known is not None:
            return known
        name = frame.function or (f"0x{frame.address:x}" if frame.address else "[unknown]")
        return self._number(6, frame, lambda: (
            number(2, self._text(5, unicode_text(name).encode()))
            + number(3, self._mapping(frame.module, frame.build_id))
            + number(4, frame.address)
            + (number(5, self._text(18, unicode_text(frame.file).encode())) if frame.file else b"")
            + (number(6, frame.line) if frame.line else b"")
        ))  # fmt: skip

    def _mapping(self, module: str, build_id: str) -> int:
        parts = [part for part in unicode_text(module).split("/") if part]
        return self._number(19, (module, build_id), lambda: (
            number(2, self._text(16, _build_id(build_id)))
            + b"".join(number(7, self._text(17, part.encode())) for part in parts)
        ))  # fmt: skip

    def _text(self, field: int, text: bytes) -> int:
        return self._number(field, text, lambda: data(2, text))

    def _number(self, field: int, key: object, content: Callable[[], bytes]) -> int:
        known = self._numbers.get((field, key))
        if known is None:
            inner = content()
            known = self._counts[field] = self._counts.get(field, 0) + 1
            self._numbers[field, key] = known
            self._fields.append(data(field, number(1, known) + inner))
        return known


def _build_id(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return unicode_text(text).encode()
