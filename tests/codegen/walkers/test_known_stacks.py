"""Stacks that are recognised: which are kept, and what has to be the same."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from functools import cache

import pytest

from pytrace.codegen.walkers.frame_pointers import CODE_64
from pytrace.codegen.walkers.known_stacks import (
    FRAMES,
    RECORD,
    SETS,
    USER_FRAMES,
    USER_RECORD,
    USER_SETS,
    USER_WINDOW,
    WAYS,
    WINDOW,
)
from pytrace.codegen.walkers.unwinding import ASKED, RANGES, ROWS, SPACES
from pytrace.core.manifest import CompiledScript, MapType
from pytrace.core.stack_formats import Rule
from pytrace.core.types import UINT64, Field
from tests.codegen.running import compiled, task_structs
from tests.support.bpf_machine import FAULT, BpfMap, Machine, lookup
from tests.support.recorded import Facts

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


# ---------------------------------------------------------------------------------------------------------- user stacks

READ_USER = 112
IP, FP, CS, SP = 128, 32, 136, 152
"""Offsets in ``struct pt_regs``."""
MEMORY, TABLED, STACK = 0xFFFF_8880_0000_1000, 0x10000, 0x7000_0000
SMALL, FRAMED, SAVES, STUB, PLAIN, SIGNALLED, ALIGNED, OUTER = range(TABLED, TABLED + 0x800, 0x100)
"""Functions: with two words of stack; whose frame rbp points to, at two words; with four words, which save rbp at the
third; a stub of the PLT; without a rule; of the signal frame; that align their stack; without a caller."""
ROWS_OF = {
    SMALL: 2 << 12 | Rule.RSP,
    FRAMED: 2 << 12 | 2 << 4 | Rule.RBP,
    SAVES: 4 << 12 | 2 << 4 | Rule.RSP,
    STUB: 11 << 12 | Rule.PLT,
    PLAIN: Rule.FRAME,
    SIGNALLED: Rule.SIGNAL,
    ALIGNED: 0xFFFFF << 12 | Rule.AT_RBP,
    OUTER: Rule.LAST,
}


class UnwindingKernel(Facts):
    """A machine whose programs can unwind by tables."""

    def __init__(self) -> None:
        super().__init__()
        self.structs = task_structs(Field("real_parent", UINT64, 56))


@cache
def _user_script(body: str) -> CompiledScript:
    return compiled(f"config = {{ stack_unwinding = auto }} kprobe:vfs_read {{ {body} }}", UnwindingKernel())


@dataclass
class Frames:
    """Registers and words of a user stack, as they come about by calls; the innermost function is the last called."""

    sp: int = STACK + 0x2000
    bp: int = 77
    ip: int = 0
    words: dict[int, int] = field(default_factory=dict)

    def call(self, function: int, at: int = 5) -> None:
        """Go on in a function, at a place; the one before it is left at its own."""
        if self.ip:
            self._push(self.ip)
        self.ip = function + at
        if function == FRAMED:
            self._push(self.bp)
            self.bp = self.sp
            self._push(self.ip ^ 0x5A)
        elif function == SAVES:
            self._push(self.bp)
            self.sp -= 16
            self.bp = self.ip * 31
        elif function == SMALL:
            self._push(1)

    def _push(self, word: int) -> None:
        self.sp -= 8
        self.words[self.sp] = word


def _called(*functions: int, start: int = STACK + 0x2000) -> Frames:
    found = Frames(start)
    for number, function in enumerate(functions):
        found.call(function, 5 + number)
    return found


class Users:
    """A machine whose program takes user stacks, one after the other."""

    def __init__(self, body: str = "@[ustack] = count();", keeps: bool = True) -> None:
        self.found = Machine(_user_script(body), task=struct.pack("<ii16sQIIQQQ", 4321, 4321, b"", MEMORY, *[0] * 5))
        for name, size, values in (
            ("known_user_stacks", WAYS * USER_RECORD, USER_SETS),
            ("user_stack_window", 8 + USER_WINDOW, keeps),
        ):
            self._map(name, size, [bytes(size)] * values)
        self.found.maps[self.found.names[ASKED]] = BpfMap(MapType.LRU_HASH, 4, 16)
        self._map(ROWS, 8, [struct.pack("<Q", at - TABLED << 32 | row) for at, row in ROWS_OF.items()])
        self.window = self.found.maps[self.found.names["user_stack_window"]].entries.get((bytes(4), 0), 0)
        self.put(1)

    def _map(self, name: str, size: int, values: list[bytes]) -> None:
        made = self.found.maps[self.found.names[name]] = BpfMap(MapType.ARRAY, 4, size)
        for at, value in enumerate(values):
            made.entries[struct.pack("<I", at), 0] = self.found.region(value)

    def put(self, number: int, first: int = 0) -> None:
        """Write the ranges of the process: rows from *first* on are those of its code."""
        entry = struct.pack("<3QII", TABLED, TABLED + 0x1000, TABLED, first, len(ROWS_OF) - first)
        self._map(RANGES, 32, [entry])
        spaces = self.found.maps[self.found.names[SPACES]] = BpfMap(MapType.HASH, 4, 16)
        spaces.entries[struct.pack("<I", 4321), 0] = self.found.region(struct.pack("<HHIQ", 0, 1, number, MEMORY))

    def run(self, user: Frames) -> tuple[list[int], bool]:
        """A stack, and whether it was walked."""
        registers = bytearray(168)
        for place, value in ((IP, user.ip), (FP, user.bp), (SP, user.sp), (CS, CODE_64)):
            struct.pack_into("<Q", registers, place, value)
        saved = self.found.region(bytes(registers))

        def read(target: int, size: int, source: int, *_: int) -> int:
            size &= 0xFFFFFFFF
            inside = source >= STACK and source + size <= STACK + 0x4000
            words = (user.words.get(source + at, 0) for at in range(0, size, 8))
            self.found.write(target, struct.pack(f"<{-(-size // 8)}Q", *words)[:size])
            return 0 if inside or not size else FAULT

        self.found.helpers.update({PT_REGS: lambda *_: saved, READ_USER: read, GET_STACK: lambda *_: FAULT})
        for spec in self.found.script.manifest.maps:
            self.found.maps[self.found.names[spec.symbol]].entries.clear()
        self.found.calls.clear()
        self.found.run()
        (key,) = self.found.entries("@")
        count = int.from_bytes(key[:4], "little", signed=True)
        # What is compared is read at once; a walk reads words, or finds at the first frame that it is the last.
        walked = {target for number, (target, *_) in self.found.calls if number == READ_USER} != {self.window + 8}
        return list(struct.unpack(f"<{len(key) // 8 - 1}Q", key[8:]))[: max(count, 0)], walked


DEEP = (OUTER, FRAMED, SMALL, SAVES, FRAMED, FRAMED, SMALL, SMALL)


def _stack(*functions: int) -> list[int]:
    return [function + 5 + number for number, function in reversed([*enumerate(functions)])]


def test_a_user_stack_is_walked_once_wherever_it_lies() -> None:
    users = Users()
    assert users.run(_called(*DEEP)) == (_stack(*DEEP), True)
    for start in range(STACK + 0x1000, STACK + 0x4000, 0x1000):
        # The same thread, and others.
        assert users.run(_called(*DEEP, start=start)) == (_stack(*DEEP), False)
    moved = [users.run(_called(*DEEP, start=STACK + 0x1000 + 16 * step))[1] for step in range(2 * USER_SETS)]
    assert sum(moved) <= USER_SETS


@pytest.mark.parametrize("change", [8, 0x1000000])
def test_each_word_of_a_user_stack_counts(change: int) -> None:
    """A return address, or an rbp by which a frame is found, that another call has put there."""
    users, plain, before = Users(), Users(keeps=False), _called(*DEEP)
    users.run(before)
    for place in sorted(before.words):
        other = _called(*DEEP)
        other.words[place] ^= change
        assert users.run(other)[0] == plain.run(other)[0], hex(place)
        assert users.run(before)[0] == _stack(*DEEP)


def test_the_rbp_of_the_innermost_frame_counts_if_it_is_used() -> None:
    users = Users()
    for functions, same in (((OUTER, FRAMED, SMALL), False), ((OUTER, SMALL), True)):
        first, other = _called(*functions), _called(*functions)
        other.bp += 8
        assert users.run(first) == (_stack(*functions), True)
        assert users.run(other)[1] is not same
        assert users.run(other)[0] == Users(keeps=False).run(other)[0]


NOT_KEPT = {
    "a frame without a rule": _called(OUTER, FRAMED, PLAIN, SMALL),
    "a signal": _called(OUTER, SIGNALLED, SMALL),
    "an aligned stack": _called(OUTER, ALIGNED, SMALL),
    "it ends in code that is not known": _called(0x50000, FRAMED, SMALL),
    "it ends in memory that cannot be read": _called(SMALL, SMALL, start=STACK + 0x4000),
}


@pytest.mark.parametrize("what", NOT_KEPT)
def test_user_stacks_that_are_walked_each_time(what: str) -> None:
    users = Users()
    assert [users.run(NOT_KEPT[what])[1] for _ in range(PATIENT)] == [True] * PATIENT


@pytest.mark.parametrize("depth", [1, 2, USER_FRAMES - 1, USER_FRAMES, USER_FRAMES + 1, 127])
@pytest.mark.parametrize("end", [(OUTER,), (SMALL,)])
def test_long_user_stacks(depth: int, end: tuple[int, ...]) -> None:
    """The last frame has no caller, or 0 in place of its return address."""
    functions = (*end, *[SMALL] * (depth - 1))
    users, user = Users(), _called(*functions, start=STACK + 0x3000)
    assert users.run(user) == (_stack(*functions), True)
    words = depth + (end == (SMALL,))
    assert users.run(user) == (_stack(*functions), words > USER_FRAMES)
    if end == (SMALL,) and words <= USER_FRAMES:
        user.words[STACK + 0x3000] = SMALL + 9
        assert users.run(user)[0] == [*_stack(*functions), SMALL + 9]


def test_user_stacks_that_take_much_room() -> None:
    users = Users()
    for room, walked in ((USER_WINDOW - 0x200, False), (USER_WINDOW + 0x200, True)):
        user = _called(OUTER, SMALL, FRAMED, start=STACK + 0x3000)
        user.sp -= room
        user.words[user.sp], user.ip = 0, FRAMED + 40
        first = users.run(user)
        assert len(first[0]) == 3
        assert users.run(user) == (first[0], walked)


def test_other_tables_other_user_stacks() -> None:
    """New ranges, and such that lie where those of another process lay."""
    users, user = Users(), _called(OUTER, SMALL, SMALL)
    assert users.run(user) == (_stack(OUTER, SMALL, SMALL), True)
    users.put(2, len(ROWS_OF) - 1)
    assert users.run(user)[0] != _stack(OUTER, SMALL, SMALL)
    users.put(3)
    assert users.run(user) == (_stack(OUTER, SMALL, SMALL), True)
    assert users.run(user)[1] is False


def test_limits_of_user_stacks_do_not_mix() -> None:
    body = "@short[ustack(3)] = count(); @[ustack(5)] = count();"
    users = Users(body)
    for _ in range(3):
        assert users.run(_called(*DEEP))[0] == _stack(*DEEP)[:5]
        (short,) = users.found.entries("@short")
        assert list(struct.unpack("<3Q", short[8:])) == _stack(*DEEP)[:3]


def test_programs_that_interrupt_another_walk() -> None:
    users = Users()
    users.run(_called(*DEEP))
    assert users.found.load(users.window, 8) == 0, "it is free after each run"
    users.found.write(users.window, struct.pack("<Q", 1))
    assert users.run(_called(*DEEP)) == (_stack(*DEEP), True)
    assert users.found.load(users.window, 8) == 1, "it belongs to who claimed it"


def test_any_user_stacks_one_after_the_other() -> None:
    """What is recognised is what a walk finds, whatever the stacks before had in the same places."""
    drawn = random.Random(5)
    users, plain = Users(), Users(keeps=False)
    recognised = 0
    for _ in range(200):
        functions = [drawn.choice((OUTER, SMALL)), *drawn.choices([SMALL, FRAMED, SAVES, STUB], k=drawn.randint(0, 4))]
        user = _called(*functions, start=STACK + 0x1000 * drawn.randint(1, 3))
        if drawn.random() < 0.3 and user.words:
            user.words[drawn.choice(sorted(user.words))] = drawn.choice([0, SMALL + 7, FRAMED + 6, user.sp + 16])
        frames, walked = users.run(user)
        assert frames == plain.run(user)[0]
        recognised += not walked
    assert recognised > 50
