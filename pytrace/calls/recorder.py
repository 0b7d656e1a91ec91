"""From the events of the recording script to calls: what belongs together is joined, losses are counted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytrace.calls.capture import (
    BYTES,
    CALL,
    COMPAT,
    EXIT,
    INPUT,
    SIGNAL,
    STRING,
    TAKEN,
    UNFINISHED,
    Plan,
)
from pytrace.calls.signatures import Signature
from pytrace.calls.values import Recorded
from pytrace.render.value_kind import Plain

MOST_THREADS = 16384
"""Threads whose last input is kept; beyond that the oldest is dropped."""


class Exit(msgspec.Struct):
    """The end of a thread: its status as wait(2) has it."""

    time: int
    tid: int
    pid: int
    status: int


class Signal(msgspec.Struct):
    """A signal that was delivered."""

    time: int
    tid: int
    pid: int
    number: int
    code: int


class Taken(msgspec.Struct):
    """A thread that executes a program takes the number of its process: the first thread is gone, and so is its own."""

    time: int
    tid: int
    pid: int
    old: int


Values = Sequence[Plain]
"""The values of an event: numbers, strings, bytes."""
Item = Recorded | Exit | Signal | Taken

_OTHERS = {EXIT: Exit, SIGNAL: Signal, TAKEN: Taken}


class _Input(msgspec.Struct):
    """What a call that began at *start* has read, so far."""

    start: int
    shape: int = 0
    values: tuple[str | bytes, ...] = ()
    parts: dict[int, bytes] = {}
    listed: int | None = None


class Recorder:
    """Joins the events of calls. *signatures* are by number, *plans* what the script copies of each."""

    def __init__(self, signatures: Mapping[int, Signature], plans: Mapping[int, Plan]) -> None:
        self._signatures, self._plans = signatures, plans
        self._inputs: dict[int, _Input] = {}
        """By thread, what its last call has read."""
        self._waiting: dict[int, Recorded] = {}
        """By thread, a call that has returned, and whose input is still to come."""
        self.calls = 0
        """Calls that returned."""
        self.incomplete = 0
        """Calls whose input was lost."""

    def add(self, values: Values) -> Iterator[Item]:
        """Take an event; returns what is complete by it."""
        kind, start, tid = values[0], values[1], values[2]
        if kind == CALL:
            yield from self._returned(values)
        elif kind in (INPUT, STRING, BYTES):
            self._read(kind, start, tid, values)
            waiting = self._waiting.get(tid)
            if waiting is not None and waiting.start == start and kind == INPUT:
                del self._waiting[tid]
                yield self._complete(waiting)
        else:
            if kind == EXIT:
                yield from self._late(tid)
                self._inputs.pop(tid, None)
            elif kind == TAKEN and (known := self._inputs.pop(values[4], None)) is not None:
                self._inputs[tid] = known
            yield _OTHERS[kind](start, *values[2:])

    def rest(self) -> Iterator[Item]:
        """Calls whose input has not arrived at the end."""
        for tid in list(self._waiting):
            yield from self._late(tid)

    def under_way(self, entries: Mapping[object, object]) -> list[Recorded]:
        """Calls that have not returned, from the map of the script: thread to (time, number, arguments, flags)."""
        found = []
        for tid, value in entries.items():
            assert isinstance(tid, int)
            assert isinstance(value, tuple)
            start, number, *arguments, bits = value
            call = self._call(number, tid, tid, start, 0, 0, bits | UNFINISHED, tuple(arguments), ())
            self._fill(call)
            found.append(call)
        return sorted(found, key=lambda call: call.start)

    # ---- parts

    def _read(self, kind: int, start: int, tid: int, values: Values) -> None:
        known = self._inputs.get(tid)
        if known is None or known.start != start:
            if known is None and len(self._inputs) >= MOST_THREADS:
                del self._inputs[next(iter(self._inputs))]
            known = self._inputs[tid] = _Input(start)
        if kind == INPUT:
            known.shape, known.values = values[3], tuple(values[4:])
        elif kind == BYTES:
            known.parts[values[3]] = _bytes(values[4])
        elif values[3] < 0:
            known.listed = values[4]
        else:
            known.parts[values[4]] = _bytes(values[5])

    def _returned(self, values: Values) -> Iterator[Item]:
        _, start, tid, pid, number, duration, result, bits, *rest = values
        call = self._call(number, pid, tid, start, duration, result, bits, tuple(rest[:6]), rest[6:])
        yield from self._late(tid)
        plan = self._plans.get(number) if call.signature is not None else None
        known = self._inputs.get(tid)
        expected = plan is not None and plan.before and not plan.read_if
        if expected and (known is None or known.start != start or not known.shape):
            self._waiting[tid] = call
            if len(self._waiting) > MOST_THREADS:
                yield from self._late(next(iter(self._waiting)))
            return
        yield self._complete(call)

    def _late(self, tid: int) -> Iterator[Item]:
        """The call of a thread whose input did not arrive before the next one."""
        call = self._waiting.pop(tid, None)
        if call is not None:
            call.lost = True
            self.incomplete += 1
            yield self._complete(call)

    def _complete(self, call: Recorded) -> Recorded:
        self.calls += 1
        self._fill(call)
        return call

    def _call(
        self, number: int, pid: int, tid: int, start: int, duration: int, result: int, bits: int,
        arguments: tuple[int, ...], written: Values,
    ) -> Recorded:
        signature = None if bits & COMPAT else self._signatures.get(number)
        call = Recorded(
            -1 - number if bits & COMPAT else number, signature, pid, tid, start, duration, result, arguments,
            not bits & UNFINISHED,
        )
        plan = self._plans.get(number)
        if plan is not None and written:
            call.after = {copy.argument: _bytes(data) for copy, data in zip(plan.after, written, strict=False)}
        return call

    def _fill(self, call: Recorded) -> None:
        plan, known = self._plans.get(call.number), self._inputs.get(call.tid)
        if known is None or plan is None or known.start != call.start:
            return
        call.parts, call.listed = known.parts, known.listed
        if known.shape:
            call.before = {copy.argument: _bytes(value) for copy, value in zip(plan.before, known.values, strict=False)}


def _bytes(value: str | bytes) -> bytes:
    return os.fsencode(value) if isinstance(value, str) else value
