"""Stacks that a program has met before: recognised without a walk (x86-64).

Of the kernel (:class:`KnownStacks`)
------------------------------------

``bpf_get_stack`` takes 0.2 µs for each frame where the kernel unwinds by ORC tables, and threads wait at the same
places again and again. The context of a raw tracepoint or of a trampoline lies on the kernel's stack, in the frame of
what runs the program. From there on a stack is decided frame by frame: with the same return address in the same place
the caller is the same code at the same call, and has its own return address at the same distance. So a stack is one
that was walked before if all of its return addresses are where they were then. Only the outermost one, right below the
registers of user mode, is where these are: between it and the others the kernel leaves room of random size
(``randomize_kstack_offset``).

Where the return addresses of a stack are is found out when it is walked: its frames are among the words of the stack,
in their order. Earlier calls leave addresses behind in room that later ones do not overwrite, so the first and the last
place of each frame that this order allows are looked for, and a stack is kept only if the two are the same: next time,
the room has another size. Addresses that returns through a trampoline (``kretprobe``) have put aside are not on the
stack, and no stack with one is kept.

Of user code, by unwind tables (:class:`KnownUserStacks`)
---------------------------------------------------------

A walk takes 0.2 µs for each frame, most of it for finding the rule of its address. Rules belong to addresses, so with
the same tables, the same first instruction, and the same words at all places where a walk has read one, a walk would
read the same again. The places are distances from the stack pointer; words are return addresses, and such values of rbp
as later frames were found by, which are compared as distances, too. Only stacks are kept whose frames were all found by
rsp and rbp: none of a signal, of code without a table, or with a return address that a ``uretprobe`` replaced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from pytrace.codegen.emit.program import Part, Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block, Builder
from pytrace.codegen.ir.values import I64, Number, Ptr, global_pointer, number_parameter, pointer_parameter
from pytrace.codegen.walkers import unwinding
from pytrace.core.manifest import MapType
from pytrace.core.probe_kinds import FENTRY, FEXIT, RAWTRACEPOINT
from pytrace.core.types import Stack, StackMode

_CONTEXT_ON_STACK = frozenset({RAWTRACEPOINT, FENTRY, FEXIT})

SETS = 16
"""Sets of stacks that a program keeps on each CPU, by remainders of system call and caller."""

WAYS = 4
"""Stacks of a set."""

WINDOW = 2048
"""Maximum bytes of a stack that is kept, to the registers of user mode."""

FRAMES = 32
"""Its maximum number of frames."""

_WORD = 8
_EXTENT, _COUNT, _INNER, _STAYS, _FOUND = (_WORD * index for index in range(5))
"""Offsets in a record: end of its inner return addresses (0: it has none), number of frames, how many of them are inner
ones (the outermost one may not be), how often it may be missed before another stack takes its place, and how many are
found while it is made."""
_FRAMES_AT = 40
_PLACES_AT = _FRAMES_AT + FRAMES * _WORD
"""Then frames, and the offsets of inner ones from the context."""
RECORD = _PLACES_AT + FRAMES * _WORD
"""Size of a record."""
_KNOWN_STAYS, _UNCLEAR_STAYS = 3, 12
"""The last: of a stack whose places were not clear, so that not each time is spent on looking for them."""

_SAME, _LEARN = "same_stack", "learn_stack"
_FIRST, _LAST, _STATE = "first_places", "last_places", 24
"""Turns of the loops of the last function, and the size of their state: record, window and depth."""


class KnownStacks(Part):
    """Recognises kernel stacks."""

    def usable(self, type_: Stack) -> bool:
        """Whether such a stack may be recognised."""
        unit, kernel = self.program.unit, self.script.kernel
        return (
            not type_.user
            and type_.limit > 0
            and type_.mode is not StackMode.BUILD_ID
            and unit.kind.name in _CONTEXT_ON_STACK
            and len(unit.targets) == 1
            and kernel.arch == "x86_64"
            and kernel.feature("bpf_loop")
            and kernel.feature("current_task_btf")
        )

    def length(self, type_: Stack, frames: Ptr, walk: Callable[[], I64]) -> I64:
        """Write the frames of the stack.

        Returns their bytes, or the error of *walk*, which emits the call of the kernel's helper.
        """
        b, length = self.b, self.b.register()
        walked, known, unknown, done = (b.block() for _ in range(4))
        window, kept = self.e.area(self.e.reserve(WINDOW)), min(type_.limit, FRAMES) * _WORD
        table, saved = self.e.probe.registers(), b.helper(helpers.TASK_PT_REGS, b.helper(helpers.GET_CURRENT_TASK_BTF))
        depth = b.opaque(b.sub(saved, b.address(self.e.raw_context)))
        b.jump_if(b.icmp("ugt", b.sub(depth, 1), WINDOW - 1), walked, likely=False)
        call, ip = (b.load(b.offset(b.pointer(saved), table.offset(name))) for name in ("orig_ax", "ip"))
        b.helper(helpers.PROBE_READ_KERNEL, window, b.at_most(depth, WINDOW), b.address(self.e.raw_context))
        # Callers are 16 bytes apart, most often.
        index = b.op("and", b.op("xor", call, b.op("xor", ip, b.op("lshr", ip, 4))), SETS - 1)
        b.store(index, self.e.cell, 32)
        records = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(self._map(type_.limit)), self.e.cell)
        b.jump_if(b.is_null(records), walked, likely=False)
        way = b.call(self._function(_SAME, _emit_same), [records, window], [depth])
        b.branch(b.truth(way), known, unknown, likely=True)
        b.start(known)
        record = _record(b, records, way)
        self.e.memory.copy(frames, b.offset(record, _FRAMES_AT), kept)
        self.e.memory.zero(b.offset(frames, kept), type_.limit * _WORD - kept)
        b.store(b.mul(b.load(b.offset(record, _COUNT)), _WORD), length)
        b.jump(done)
        b.start(unknown)
        walk_length = walk()
        b.store(walk_length, length)
        b.jump_if(b.icmp("ugt", b.sub(walk_length, _WORD), (FRAMES - 1) * _WORD), done, likely=False)
        way = b.call(_choose(self.script, RECORD, _STAYS), [records])
        b.jump_unless(b.truth(way), done)
        record = _record(b, records, way)
        b.store(0, b.offset(record, _EXTENT))
        b.helper(helpers.PROBE_READ_KERNEL, b.offset(record, _FRAMES_AT), kept, b.address(frames))
        b.call(self._function(_LEARN, _emit_learn), [record, window], [depth, b.op("lshr", walk_length, 3)])
        b.jump(done)
        b.start(walked)
        b.store(walk(), length)
        b.jump(done)
        b.start(done)
        return b.load(length)

    def _map(self, limit: int) -> str:
        """The map of stacks of at most *limit* frames."""
        name = f"{self.program.unit.symbol}_stacks_{limit}"
        attributes = {"type": MapType.PERCPU_ARRAY, "key_size": 4, "value_size": WAYS * RECORD, "max_entries": SETS}
        return self.script.once(name, lambda: self.module.map(name, attributes))

    def _function(self, name: str, emit: Callable[[Script], None]) -> str:
        return self.script.once(name, lambda: emit(self.script))


def _begin(script: Script, name: str, sizes: dict[str, int], *numbers: str) -> tuple[Builder, list[Ptr]]:
    """A function with pointers to so many bytes, and numbers; and the pointers."""
    parameters = (*(f"*{name}" for name in sizes), *numbers)
    b = script.module.function(name, parameters, script.checked.units[0].span, apart=True, sizes=sizes)
    return b, [pointer_parameter(name) for name in sizes]


def _record(b: Builder, records: Ptr, way: I64, size: int = RECORD) -> Ptr:
    """The record of a set with this number, from 1 on."""
    return b.offset(records, b.mul(b.at_most(b.sub(way, 1), WAYS - 1), size))


def _each(b: Builder, first: int, limit: int, count: I64, body: Callable[[I64], None]) -> None:
    """A loop from *first* on to *count*, which is at most *limit*."""
    number, head, following, done = b.register(), b.block(), b.block(), b.block()
    b.store(first, number)
    b.jump(head)
    b.start(head)
    index = b.load(number)
    b.branch(b.icmp("ult", index, limit), following, done, likely=True)
    b.start(following)
    b.jump_if(b.icmp("uge", index, count), done)
    body(index)
    b.store(b.add(index, 1), number)
    b.jump(head)
    b.start(done)


def _frame(b: Builder, known: Ptr, index: I64) -> Ptr:
    return b.offset(known, b.add(b.op("shl", index, 3), _FRAMES_AT))


def _outermost(b: Builder, window: Ptr, depth: Number) -> I64:
    """The word right below the registers: a whole stack ends with it."""
    return b.load(b.offset(window, b.at_most(b.sub(depth, _WORD), WINDOW - _WORD)))


def _emit_same(script: Script) -> None:
    """``same_stack(records, window, depth)``: which of the records has the stack in *window*, from 1 on; 0: none."""
    b, (records, window) = _begin(script, _SAME, {"records": WAYS * RECORD, "window": WINDOW}, "depth")
    depth = number_parameter("depth")
    outermost = _outermost(b, window, depth)
    for way in range(WAYS):
        known = b.offset(records, way * RECORD)
        differs = b.block()
        extent = b.load(known)
        b.jump_if(b.icmp("eq", extent, 0), differs)
        # Beyond are the registers of user mode, which are whatever the user likes.
        b.jump_if(b.icmp("ugt", b.add(extent, _WORD), depth), differs, likely=False)
        inner, count = b.load(b.offset(known, _INNER)), b.load(b.offset(known, _COUNT))
        with b.when(b.icmp("ult", inner, count)):
            last = b.at_most(b.sub(count, 1), FRAMES - 1)
            b.jump_unless(b.icmp("eq", b.load(_frame(b, known, last)), outermost), differs, likely=True)
        _compare(b, known, window, inner, differs)
        b.store(_KNOWN_STAYS, b.offset(known, _STAYS))
        b.ret(way + 1)
        b.start(differs)
    b.ret(0)


def _compare(b: Builder, known: Ptr, window: Ptr, inner: I64, differs: Block) -> None:
    """Continue at *differs* unless the *inner* frames of a record are where they were."""

    def compare(index: I64) -> None:
        frame = _frame(b, known, index)
        at = b.opaque(b.load(b.offset(frame, _PLACES_AT - _FRAMES_AT)))
        b.jump_if(b.icmp("ugt", at, WINDOW - _WORD), differs, likely=False)
        b.jump_unless(b.icmp("eq", b.load(b.offset(window, at)), b.load(frame)), differs, likely=True)

    _each(b, 0, FRAMES, inner, compare)


def _choose(script: Script, size: int, stays_at: int) -> str:
    """A function of a set of records of a size, which have at an offset how often they may be missed.

    It returns whose place another stack may take, from 1 on; 0: none, but sooner next time.
    """
    name = f"choose_record_{size}"
    script.once(name, lambda: _emit_choose(script, name, size, stays_at))
    return name


def _emit_choose(script: Script, name: str, size: int, stays_at: int) -> None:
    b, (records,) = _begin(script, name, {"records": WAYS * size})
    stays = [b.offset(records, way * size + stays_at) for way in range(WAYS)]
    for way, place in enumerate(stays, start=1):
        with b.when(b.icmp("eq", b.load(place), 0)):
            b.ret(way)
    for place in stays:
        b.store(b.sub(b.load(place), 1), place)
    b.ret(0)


def _emit_learn(script: Script) -> None:
    """``learn_stack(known, window, depth, count)``: complete a record that has the *count* frames of a walk.

    The stack, to the registers of user mode, is in *window*.
    """
    b, (known, window) = _begin(script, _LEARN, {"known": RECORD, "window": WINDOW}, "depth", "count")
    depth, count = number_parameter("depth"), number_parameter("count")
    found, inner, state, none = b.offset(known, _FOUND), b.register(), b.alloca(_STATE), b.block()
    b.store(count, b.offset(known, _COUNT))
    b.store(_UNCLEAR_STAYS, b.offset(known, _STAYS))
    b.store(count, inner)
    last = b.at_most(b.sub(count, 1), FRAMES - 1)
    with b.when(b.icmp("eq", b.load(_frame(b, known, last)), _outermost(b, window, depth))):
        b.store(last, inner)
    number = b.opaque(b.load(inner))
    b.store(number, b.offset(known, _INNER))
    b.store(0, found)
    b.store_pointer(known, state)
    b.store_pointer(window, b.offset(state, 8))
    b.store(depth, b.offset(state, 16))
    words = b.sub(b.op("lshr", depth, 3), 1)
    b.helper(helpers.LOOP, words, global_pointer(_FIRST), state, 0)
    b.jump_unless(b.icmp("eq", b.load(found, again=True), number), none, likely=True)
    b.helper(helpers.LOOP, words, global_pointer(_LAST), state, 0)
    b.jump_if(b.truth(b.load(found, again=True)), none)
    final = b.at_most(b.sub(number, 1), FRAMES - 1)
    place = b.load(b.offset(_frame(b, known, final), _PLACES_AT - _FRAMES_AT))
    b.store(b.add(b.select(b.icmp("eq", number, 0), 0, place), _WORD), b.offset(known, _EXTENT))
    b.store(_KNOWN_STAYS, b.offset(known, _STAYS))
    b.jump(none)
    b.start(none)
    b.ret(0)
    _emit_search(script, _FIRST, backwards=False)
    _emit_search(script, _LAST, backwards=True)


def _emit_search(script: Script, name: str, *, backwards: bool) -> None:
    """A turn of the loop over the words of a stack, from the context on, or *backwards* from the outermost one on.

    Of the frames that are left the next one is looked for; backwards its place has to be the one that was found before.
    """
    b = script.module.function(name, ("index", "*state"), script.checked.units[0].span)
    state = pointer_parameter("state")
    known, window = b.load_pointer(state), b.load_pointer(b.offset(state, 8))
    at = b.op("shl", number_parameter("index"), 3)
    found, following, end = b.offset(known, _FOUND), b.block(), b.block()
    index = b.load(found, again=True)
    if backwards:
        at = b.sub(b.sub(b.load(b.offset(state, 16)), 2 * _WORD), at)
        b.jump_if(b.icmp("eq", index, 0), end)
        index = b.sub(index, 1)
    else:
        b.jump_if(b.icmp("uge", index, b.load(b.offset(known, _INNER))), end)
    at, index = b.opaque(at), b.opaque(index)
    b.jump_if(b.icmp("ugt", at, WINDOW - _WORD), end, likely=False)
    b.jump_if(b.icmp("uge", index, FRAMES), end, likely=False)
    frame = _frame(b, known, index)
    b.jump_unless(b.icmp("eq", b.load(frame), b.load(b.offset(window, at))), following)
    place = b.offset(frame, _PLACES_AT - _FRAMES_AT)
    if backwards:
        b.jump_unless(b.icmp("eq", b.load(place), at), end)
    else:
        b.store(at, place)
    b.store(index if backwards else b.add(index, 1), found)
    b.jump(following)
    b.start(following)
    b.ret(0)
    b.start(end)
    b.ret(1)


USER_SETS = 32
"""Sets of user stacks that a script keeps on each CPU."""
USER_WINDOW = 8192
"""Maximum bytes between the stack pointer and the last word that a walk has read."""
USER_FRAMES = 64
"""Maximum number of frames, with the 0 in place of another one that ends some stacks."""

_U_SPACE, _U_KEY, _U_EXTENT, _U_COUNT, _U_WORDS, _U_RBPS, _U_END, _U_STAYS = (_WORD * index for index in range(8))
"""Offsets in a record of a user stack: its ranges (0: there is none), what it was asked for, bytes from the stack
pointer to the end of the last word, number of frames, of these and the 0 after them, and of those that rbp found;
distance of the last stack pointer, how often it may be missed."""
_U_FRAMES_AT = 64
_U_PLACES_AT = _U_FRAMES_AT + USER_FRAMES * _WORD
"""Then frames, the distances of their return addresses (of 16 bits), and :data:`unwinding.RBP_LIST`."""
_U_RBPS_AT = _U_PLACES_AT + USER_FRAMES * 2
USER_RECORD = _U_RBPS_AT + unwinding.RBP_LIMIT * 4

_U_SETS, _U_MEMORY = "known_user_stacks", "user_stack_window"
"""Maps: of sets, and of a word that is 1 while a program of this CPU uses either, then the window."""
_U_SAME, _U_LEARN = "same_user_stack", "learn_user_stack"


class KnownUserStacks(Part):
    """Recognises user stacks that are unwound by tables.

    Programs of a CPU have the records in common, and one may interrupt another: while one of them uses the records,
    others walk.
    """

    @staticmethod
    def pointers_size(limit: int) -> int:
        """Bytes of the stack pointers of *limit* frames, and of their callers."""
        return _WORD * (max(limit, USER_FRAMES) + 1)

    def walk(self, frames: Ptr, state: int, pointers: int, key: int, limit: int, walk: Callable[[], None]) -> None:
        """Write frames, stack pointers and state as *walk* does, which emits the walk.

        Args:
            frames: where it writes the frames.
            state: scratch offset of the unwinder's state.
            pointers: scratch offset of the stack pointers in each frame and after the last, of :meth:`pointers_size`.
            key: of all walks that would write the same.
            limit: maximum number of frames.
            walk: see there.
        """
        b, state_at, copied = self.b, self.e.area(state), min(limit, USER_FRAMES) * _WORD
        same = self.script.once(_U_SAME, lambda: _declare_user(self.script))
        ip, sp = (b.load(b.offset(state_at, offset)) for offset in (unwinding.IP, unwinding.SP))
        # Threads of one pool have the same places in their pages, most often.
        index, places = b.register(), b.op("lshr", b.op("and", sp, 0xFFF), 4)
        words = (ip, b.op("lshr", ip, 5), places, b.op("lshr", places, 5))
        b.store(b.op("and", functools.reduce(lambda one, other: b.op("xor", one, other), words), USER_SETS - 1), index)
        unknown, walked, done = b.block(), b.block(), b.block()
        memory, records = self._claim(b.load(index), unknown)
        for way in range(WAYS):
            record, other = b.offset(records, way * USER_RECORD), b.block()
            arguments = [record, state_at, b.offset(memory, _WORD), self.e.area(pointers)]
            b.jump_unless(b.truth(b.call(same, arguments, [key])), other)
            self.e.memory.copy(frames, b.offset(record, _U_FRAMES_AT), copied)
            b.fetch("and", memory, 0)
            b.jump(done)
            b.start(other)
        b.fetch("and", memory, 0)
        b.jump(unknown)
        b.start(unknown)
        walk()
        b.jump_unless(b.truth(b.load(b.offset(state_at, unwinding.PLAIN), again=True)), done)
        memory, records = self._claim(b.load(index), done)
        way_number = b.call(_choose(self.script, USER_RECORD, _U_STAYS), [records])
        b.jump_unless(b.truth(way_number), walked)
        record = _record(b, records, way_number, USER_RECORD)
        b.store(0, b.offset(record, _U_SPACE))
        self.e.memory.copy(b.offset(record, _U_FRAMES_AT), frames, copied)
        b.call(_U_LEARN, [record, state_at, self.e.area(pointers)], [key])
        b.jump(walked)
        b.start(walked)
        b.fetch("and", memory, 0)
        b.jump(done)
        b.start(done)

    def _claim(self, index: I64, otherwise: Block) -> tuple[Ptr, Ptr]:
        """The memory of the CPU, claimed for this program, and a set; *otherwise*: another program has claimed it."""
        b = self.b
        b.store(index, self.e.cell, 32)
        records = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(_U_SETS), self.e.cell)
        b.jump_if(b.is_null(records), otherwise, likely=False)
        b.store(0, self.e.cell, 32)
        memory = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(_U_MEMORY), self.e.cell)
        b.jump_if(b.is_null(memory), otherwise, likely=False)
        b.jump_if(b.truth(b.fetch("or", memory, 1)), otherwise, likely=False)
        return memory, records


_USER_SIZES = {
    "record": USER_RECORD,
    "state": unwinding.STATE_SIZE,
    "window": USER_WINDOW,
    "pointers": KnownUserStacks.pointers_size(0),
}


def _declare_user(script: Script) -> None:
    """Declare maps and functions."""
    for name, size, entries in ((_U_SETS, WAYS * USER_RECORD, USER_SETS), (_U_MEMORY, _WORD + USER_WINDOW, 1)):
        attributes = {"type": MapType.PERCPU_ARRAY, "key_size": 4, "value_size": size, "max_entries": entries}
        script.module.map(name, attributes)
    _emit_same_user(script)
    _emit_learn_user(script)


def _emit_same_user(script: Script) -> None:
    """``same_user_stack(record, state, window, pointers, key)``: whether a walk would find the stack of the record.

    Then the stack pointers and the state are as after the walk.
    """
    b, (record, state, window, pointers) = _begin(script, _U_SAME, _USER_SIZES, "key")
    differs = b.block()

    def same(one: Number, other: Number) -> None:
        b.jump_unless(b.icmp("eq", one, other), differs, likely=True)

    ip, sp, bp, space = (
        b.load(b.offset(state, at)) for at in (unwinding.IP, unwinding.SP, unwinding.BP, unwinding.SPACE)
    )
    for at, value in ((_U_FRAMES_AT, ip), (_U_SPACE, space), (_U_KEY, number_parameter("key"))):
        same(b.load(b.offset(record, at)), value)
    extent = b.at_most(b.load(b.offset(record, _U_EXTENT)), USER_WINDOW)
    same(b.helper(helpers.PROBE_READ_USER, window, extent, sp), 0)

    def frame(index: I64) -> None:
        at = b.opaque(b.load(b.offset(record, b.add(b.op("shl", index, 1), _U_PLACES_AT)), 16))
        b.jump_if(b.icmp("ugt", at, USER_WINDOW - _WORD), differs, likely=False)
        place = b.op("shl", index, 3)
        b.store(b.add(b.add(sp, at), _WORD), b.offset(pointers, place))
        same(b.load(b.offset(window, at)), b.load(b.offset(record, b.add(place, _U_FRAMES_AT))))

    def rbp(index: I64) -> None:
        entry = b.load(b.offset(record, b.add(b.op("shl", index, 2), _U_RBPS_AT)), 32)
        at = b.op("and", entry, 0xFFFF)
        word = b.load(b.offset(window, b.at_most(at, USER_WINDOW - _WORD)))
        word = b.select(b.icmp("eq", at, unwinding.RBP_FIRST), bp, word)
        same(b.sub(word, sp), b.op("lshr", entry, 16))

    _each(b, 1, USER_FRAMES, b.load(b.offset(record, _U_WORDS)), frame)
    _each(b, 0, unwinding.RBP_LIMIT, b.load(b.offset(record, _U_RBPS)), rbp)
    b.store(sp, pointers)
    b.store(b.add(sp, b.load(b.offset(record, _U_END))), b.offset(state, unwinding.SP))
    b.store(b.load(b.offset(record, _U_COUNT)), b.offset(state, unwinding.COUNT))
    b.store(_KNOWN_STAYS, b.offset(record, _U_STAYS))
    b.ret(1)
    b.start(differs)
    b.ret(0)


def _emit_learn_user(script: Script) -> None:
    """``learn_user_stack(record, state, pointers, key)``: complete a record that has the frames of a walk."""
    sizes = {name: size for name, size in _USER_SIZES.items() if name != "window"}
    b, (record, state, pointers) = _begin(script, _U_LEARN, sizes, "key")
    none, last = b.block(), b.register()
    start, end, count = (b.load(b.offset(state, at)) for at in (unwinding.START, unwinding.SP, unwinding.COUNT))
    # What ends some stacks is a return address that is 0.
    zero = b.number(b.icmp("eq", b.load(b.offset(state, unwinding.IP)), 0))
    words = b.add(count, zero)
    b.jump_if(b.icmp("ugt", b.sub(words, 1), USER_FRAMES - 1), none)
    b.store(end, b.offset(pointers, b.op("shl", b.at_most(count, USER_FRAMES), 3)))
    with b.when(b.truth(zero)):
        b.store(0, b.offset(record, b.add(b.op("shl", b.at_most(count, USER_FRAMES - 1), 3), _U_FRAMES_AT)))
    b.store(-_WORD, last)

    def frame(index: I64) -> None:
        at = b.sub(b.load(b.offset(pointers, b.op("shl", index, 3))), b.add(start, _WORD))
        b.jump_if(b.icmp("ugt", at, USER_WINDOW - _WORD), none, likely=False)
        b.store(at, b.offset(record, b.add(b.op("shl", index, 1), _U_PLACES_AT)), 16)
        b.store(at, last)

    _each(b, 1, USER_FRAMES, words, frame)
    b.copy(b.offset(record, _U_RBPS_AT), b.offset(state, unwinding.RBP_LIST), 4 * unwinding.RBP_LIMIT)
    for offset, value in (
        (_U_SPACE, b.load(b.offset(state, unwinding.SPACE))), (_U_KEY, number_parameter("key")),
        (_U_EXTENT, b.add(b.load(last), _WORD)), (_U_COUNT, count), (_U_WORDS, words),
        (_U_RBPS, b.load(b.offset(state, unwinding.RBPS))), (_U_END, b.sub(end, start)), (_U_STAYS, _KNOWN_STAYS),
    ):  # fmt: skip
        b.store(value, b.offset(record, offset))
    b.jump(none)
    b.start(none)
    b.ret(0)
