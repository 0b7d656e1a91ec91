"""Kernel stacks that a program has met before: recognised without a walk (x86-64).

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
"""

from __future__ import annotations

from collections.abc import Callable

from pytrace.codegen.emit.program import Part, Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block, Builder
from pytrace.codegen.ir.values import I64, Number, Ptr, global_pointer, number_parameter, pointer_parameter
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

_SAME, _CHOOSE, _LEARN = "same_stack", "choose_record", "learn_stack"
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
        way = b.call(self._function(_CHOOSE, _emit_choose), [records])
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


def _record(b: Builder, records: Ptr, way: I64) -> Ptr:
    """The record of a set with this number, from 1 on."""
    return b.offset(records, b.mul(b.at_most(b.sub(way, 1), WAYS - 1), RECORD))


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
    place, head, following, same = b.register(), b.block(), b.block(), b.block()
    b.store(0, place)
    b.jump(head)
    b.start(head)
    index = b.load(place)
    b.branch(b.icmp("ult", index, FRAMES), following, same, likely=True)
    b.start(following)
    b.jump_if(b.icmp("uge", index, inner), same)
    frame = _frame(b, known, index)
    at = b.opaque(b.load(b.offset(frame, _PLACES_AT - _FRAMES_AT)))
    b.jump_if(b.icmp("ugt", at, WINDOW - _WORD), differs, likely=False)
    b.jump_unless(b.icmp("eq", b.load(b.offset(window, at)), b.load(frame)), differs, likely=True)
    b.store(b.add(index, 1), place)
    b.jump(head)
    b.start(same)


def _emit_choose(script: Script) -> None:
    """``choose_record(records)``: whose place another stack may take, from 1 on; 0: none, but sooner next time."""
    b, (records,) = _begin(script, _CHOOSE, {"records": WAYS * RECORD})
    stays = [b.offset(records, way * RECORD + _STAYS) for way in range(WAYS)]
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
