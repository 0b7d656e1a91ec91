"""Calls of functions by thread: which are under way, and in what order they are shown.

A call is shown when it returns; one that has called another before that is opened first. Calls that are left
(``longjmp``, an exception, the end of a thread, ``exec``) are recognized by a later entry at or above their place on
the stack, by the return of a call that they were part of, or by the event itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

import msgspec

from pytrace.base.kernel_files import ONE_STACK
from pytrace.calls.function_values import GO_REGISTERS
from pytrace.calls.functions import ENTER, LEAVE, WHOLE, Function

Word = int | str | bytes
"""A value of an event."""

MOST_THREADS = 16384
DEEPEST = 65536
"""Calls of one thread that are under way at once; what deeper ones do is not shown."""


Thread = int | tuple[int, int]
"""A thread, or a process and the number of a goroutine in it."""


class FunctionCall(msgspec.Struct):
    """A call of a function; *words* and *reads* are what was read at its entry. Of Go, *tid* is the goroutine."""

    start: int
    tid: int
    pid: int
    function: Function
    place: int
    depth: int
    words: Sequence[int] = ()
    reads: Sequence[Word] = ()
    known: bool = True
    """Its entry was not lost."""
    opened: bool = False
    duration: int | None = None
    result: int = 0
    result_reads: Sequence[Word] = ()

    @property
    def thread(self) -> Thread:
        """The thread or goroutine whose calls are in one nest with this one."""
        return _thread(self.function, self.pid, self.tid)


def _thread(function: Function, pid: int, tid: int) -> Thread:
    return (pid, tid) if function.go else tid


class Shown(Enum):
    """How a call is shown: its head alone, as a whole, its end after what it has called, its end without a return."""

    HEAD = 1
    WHOLE = 2
    END = 3
    LEFT = 4


Step = tuple[Shown, FunctionCall]


class Tree:
    """The calls of all threads. *functions* are by the name in events; *depth* is how deep calls are shown."""

    def __init__(self, functions: Mapping[str, Function], words: int, depth: int | None) -> None:
        self._functions, self._words = functions, words
        self._deepest = DEEPEST if depth is None else depth
        self._stacks: dict[Thread, list[FunctionCall]] = {}
        self.returned = 0
        """Events of returns."""
        self.unknown = 0
        """Returns of which the entry is lost."""
        self.too_deep = 0
        self.moment = 0
        """The time of the last event."""

    def take(self, values: Sequence[Word]) -> Iterator[Step]:
        """Take the event of a call; yields what is shown by it."""
        kind, start, tid, pid, name = values[:5]
        assert isinstance(start, int)
        assert isinstance(tid, int)
        assert isinstance(pid, int)
        function = self._functions.get(str(name)) or Function(str(name), _last(str(name)), "")
        self.moment = max(self.moment, start)
        count = 0 if function.python else len(GO_REGISTERS) if function.go else self._words
        if kind == ENTER:
            place, words = values[5], values[6 : 6 + count]
            assert isinstance(place, int)
            yield from self._entered(FunctionCall(
                start, tid, pid, function, place, 0, [word for word in words if isinstance(word, int)],
                values[6 + count :],
            ))  # fmt: skip
        elif kind == LEAVE:
            self.returned += 1
            duration, result = values[5:7]
            assert isinstance(duration, int)
            assert isinstance(result, int)
            self.moment = max(self.moment, start + duration)
            yield from self._returned(start, tid, pid, function, duration, result, values[7:])
        elif kind == WHOLE:
            duration, unfinished, result = values[5:8]
            assert isinstance(duration, int)
            assert isinstance(result, int)
            self.returned += not unfinished
            entry = 8 + count + len(function.entry_reads)
            numbers = [word for word in values[8 : 8 + count] if isinstance(word, int)]
            yield Shown.LEFT if unfinished else Shown.WHOLE, FunctionCall(
                start, tid, pid, function, 0, 0, numbers, values[8 + count : entry],
                duration=duration, result=result, result_reads=values[entry:],
            )  # fmt: skip

    def _entered(self, call: FunctionCall) -> Iterator[Step]:
        stack = self._stacks.get(call.thread)
        if stack is None:
            if len(self._stacks) >= MOST_THREADS:
                del self._stacks[next(iter(self._stacks))]
            stack = self._stacks[call.thread] = []
        while stack and stack[-1].place and 0 <= call.place - stack[-1].place < ONE_STACK:
            yield from self._left(stack.pop())
        if len(stack) >= DEEPEST:
            self.too_deep += 1
            return
        call.depth = len(stack)
        stack.append(call)
        if call.depth < self._deepest:
            yield from self._open(stack[:-1])

    def _returned(
        self, start: int, tid: int, pid: int, function: Function, duration: int, result: int, reads: Sequence[Word]
    ) -> Iterator[Step]:
        stack = self._stacks.get(_thread(function, pid, tid), [])
        index = next((index for index in range(len(stack) - 1, -1, -1) if stack[index].start == start), None)
        if index is None:
            self.unknown += 1
            call = FunctionCall(start, tid, pid, function, 0, len(stack), known=False)
        else:
            while len(stack) > index + 1:
                yield from self._left(stack.pop())
            call = stack.pop()
        call.duration, call.result, call.result_reads = duration, result, reads
        if call.depth < self._deepest:
            yield Shown.END if call.opened else Shown.WHOLE, call

    def _left(self, call: FunctionCall) -> Iterator[Step]:
        if call.depth < self._deepest:
            yield Shown.LEFT, call

    @staticmethod
    def _open(stack: Sequence[FunctionCall]) -> Iterator[Step]:
        """The heads of calls that have called another one."""
        waiting = []
        for call in reversed(stack):
            if call.opened:
                break
            waiting.append(call)
        for call in reversed(waiting):
            call.opened = True
            yield Shown.HEAD, call

    def inside(self, tid: int) -> tuple[list[Step], int | None]:
        """What is shown before something else that a thread does, and how deep that is (None: it is not shown)."""
        stack = self._stacks.get(tid, [])
        if len(stack) >= self._deepest:
            return [], None
        return list(self._open(stack)), len(stack)

    def waiting(self) -> Iterator[Step]:
        """Calls that may take long: nothing else comes."""
        for stack in self._stacks.values():
            yield from self._open(stack[: self._deepest])

    def ended(self, tid: Thread) -> Iterator[Step]:
        """A thread has ended."""
        for call in reversed(self._stacks.pop(tid, [])):
            yield from self._left(call)

    def executed(self, pid: int) -> Iterator[Step]:
        """A process runs another program."""
        for tid in [tid for tid, stack in self._stacks.items() if stack and stack[0].pid == pid]:
            yield from self.ended(tid)

    def rest(self) -> list[FunctionCall]:
        """Calls that have not returned at the end, in the order in which they began."""
        calls = [call for stack in self._stacks.values() for call in stack if call.depth < self._deepest]
        return sorted(calls, key=lambda call: call.start)


def _last(name: str) -> str:
    return name.rpartition(":")[2].strip('"')
