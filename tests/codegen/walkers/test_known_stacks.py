"""Kernel stacks that are recognised: which are kept, and what has to be the same."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cache

import pytest

from pytrace.codegen.walkers.known_stacks import FRAMES, RECORD, SETS, WAYS, WINDOW
from pytrace.core.manifest import CompiledScript
from tests.codegen.running import compiled
from tests.support.bpf_machine import Machine, lookup

LOOKUP, GET_STACK, PT_REGS = 1, 67, 175
CODE = 0xFFFFFFFF81000000
OUTERMOST = CODE + 0x130
INNER = {72: CODE + 1, 120: CODE + 2, 248: CODE + 3}
"""Return addresses by their places."""
PATIENT = 8
"""Runs after which any stack that can be kept has taken the place of another one."""


@cache
def _script(limit: int) -> CompiledScript:
    return compiled(f"rawtracepoint:sched_switch {{ @[kstack(raw, {limit})] = count(); }}")


@dataclass
class Kernel:
    """A machine whose program takes a stack; it counts walks."""

    limit: int = 9
    walks: int = 0
    found: Machine = field(init=False)

    def __post_init__(self) -> None:
        self.found = Machine(_script(self.limit))
        (name,) = (name for name in self.found.names if name.endswith(f"_stacks_{self.limit}"))
        records = self.found.region(RECORD * WAYS * SETS)

        def record(map_: int, key: int, *_: int) -> int:
            if map_ != self.found.names[name]:
                return lookup(self.found, map_, key)
            index = self.found.load(key, 4)
            assert index < SETS
            return records + RECORD * WAYS * index

        self.found.helpers[LOOKUP] = record

    def run(
        self, words: dict[int, int], depth: int = 600, walk: list[int] | None = None, *, away: int = 0, call: int = 0
    ) -> list[int]:
        """The stack that an event has with *words* on its stack; the kernel's walk finds *walk*."""
        frames = [*INNER.values(), OUTERMOST] if walk is None else walk
        memory = bytearray(depth + 168)
        for place, word in {**words, depth - 8: OUTERMOST, **words}.items():
            struct.pack_into("<Q", memory, place, word)
        struct.pack_into("<Q", memory, depth + 120, call)

        def get_stack(_context: int, target: int, size: int, *_: int) -> int:
            self.walks += 1
            data = struct.pack(f"<{len(frames)}Q", *frames)[:size]
            self.found.write(target, data.ljust(size, b"\0"))
            return len(data)

        self.found.helpers[GET_STACK] = get_stack
        self.found.helpers[PT_REGS] = lambda *_: self.found.address_of_context + depth + away
        before = set(self.found.entries("@"))
        self.found.run(context=bytes(memory))
        key = next(iter(set(self.found.entries("@")) - before), b"")
        count = int.from_bytes(key[:4], "little", signed=True)
        return list(struct.unpack(f"<{count}Q", key[8 : 8 + 8 * count]))


def test_one_walk_for_stacks_with_room_of_any_size() -> None:
    kernel = Kernel()
    assert kernel.run(INNER) == [*INNER.values(), OUTERMOST]
    for depth in range(264, WINDOW + 1, 64):
        assert kernel.run(INNER, depth) == []
    assert kernel.walks == 1
    assert [*kernel.found.entries("@").values()] == [1 + len(range(264, WINDOW + 1, 64))]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, FRAMES, FRAMES + 1, 127])
def test_limits(limit: int) -> None:
    kernel = Kernel(limit)
    assert kernel.run(INNER) == [*INNER.values(), OUTERMOST][:limit]
    for _ in range(4):
        assert kernel.run(INNER, 456) == []
    assert kernel.walks == 1


DIFFERENT = {
    "an inner frame": ({**INNER, 120: CODE + 9}, 600),
    "the innermost": ({**INNER, 72: CODE + 9}, 600),
    "its place": ({72: CODE + 1, 128: CODE + 2, 248: CODE + 3}, 600),
    "the outermost": ({**INNER, 592: CODE + 9}, 600),
    "no room: the last word is a register of user mode": ({72: CODE + 1, 120: CODE + 2, 248: CODE + 3}, 248),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_differs_is_walked(what: str) -> None:
    words, depth = DIFFERENT[what]
    kernel = Kernel()
    kernel.run(INNER)
    walk = [CODE + 7, CODE + 8]
    assert kernel.run(words, depth, walk) == walk
    assert kernel.walks == 2


UNCLEAR = {
    "left behind above": {**INNER, 400: CODE + 3},
    "left behind among them": {**INNER, 136: CODE + 2},
    "left behind below": {**INNER, 8: CODE + 1},
    "all of them once more": {**INNER, **{place + 300 // 8 * 8: word for place, word in INNER.items()}},
    "not there": {72: CODE + 1, 248: CODE + 3},
    "in another order": {72: CODE + 2, 120: CODE + 1, 248: CODE + 3},
}


@pytest.mark.parametrize("what", UNCLEAR)
def test_stacks_with_unclear_places_are_not_kept(what: str) -> None:
    kernel = Kernel()
    for _ in range(PATIENT):
        kernel.run(UNCLEAR[what])
    assert kernel.walks == PATIENT


@pytest.mark.parametrize(
    ("depth", "away", "frames"),
    [(600, -(1 << 40), 4), (600, 1 << 40, 4), (WINDOW + 8, 0, 4), (600, 0, 0), (600, 0, FRAMES + 1)],
)
def test_stacks_that_are_not_kept(depth: int, away: int, frames: int) -> None:
    """The context is not on the task's stack, or that is too deep; no frames, or too many."""
    kernel = Kernel(64)
    words = {8 * n: CODE + n for n in range(1, frames)}
    for _ in range(PATIENT):
        kernel.run(words, depth, [*words.values(), OUTERMOST][:frames], away=away)
    assert kernel.walks == PATIENT


def test_stacks_of_one_caller_and_another_one_in_time() -> None:
    stacks = [({place: word + 0x100 * n for place, word in INNER.items()}) for n in range(WAYS + 1)]

    def run(n: int) -> None:
        kernel.run(stacks[n], walk=[*stacks[n].values(), OUTERMOST])

    kernel = Kernel()
    for _ in range(20):
        for n in range(WAYS):
            run(n)
    assert kernel.walks == WAYS
    for _ in range(20):
        run(WAYS)
    assert kernel.walks == WAYS + PATIENT // 2
    assert len(kernel.found.entries("@")) == WAYS + 1


def test_each_of_a_number_of_calls() -> None:
    kernel = Kernel()
    for call in range(SETS):
        kernel.run(INNER, call=call)
    assert kernel.walks == SETS
    for call in range(SETS):
        kernel.run(INNER, call=call)
    assert kernel.walks == SETS
