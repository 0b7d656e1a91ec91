"""Stacks that are walked by frame pointers in the program, and where truncated stacks are counted.

A stack whose limit the script does not name has one more in its number of frames when it is truncated
(:class:`~pytrace.core.types.Stack`). pytrace's own walkers look for one more frame. ``bpf_get_stack`` copies at most as
many frames as ``kernel.perf_event_max_stack`` says: a stack that has that many is taken as truncated. Where the kernel
walks more than are kept, it is asked for one more, which only full stacks need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pytrace.codegen.emit import memory
from pytrace.codegen.emit.program import Part, Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block, Builder
from pytrace.codegen.ir.module import SHARED
from pytrace.codegen.ir.values import I64, Number, Ptr, global_pointer, number_parameter, pointer_parameter
from pytrace.core.probe_kinds import Context
from pytrace.core.source import Span
from pytrace.core.types import Stack, StackMode
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import location

TRUNCATED = "truncated"
_MODES = frozenset(mode.value for mode in StackMode)

Node = nodes.Call | nodes.Identifier


def marks_truncation(node: Node) -> bool:
    """Whether truncated stacks of a call are marked: the script does not say how many frames it wants."""
    if not isinstance(node, nodes.Call) or not node.args:
        return True
    first = node.args[0]
    return len(node.args) == 1 and isinstance(first, nodes.Identifier) and first.name in _MODES


def _stacks_of_maps(body: nodes.Node) -> Iterator[tuple[nodes.Node, str]]:
    for node in walk(body):
        if isinstance(node, nodes.MapIndex):
            name, parts = node.map.name, node.keys
        elif isinstance(node, nodes.Assign) and isinstance(node.target, nodes.MapRef | nodes.MapIndex):
            target = node.target
            name, parts = target.name if isinstance(target, nodes.MapRef) else target.map.name, (node.value,)
        else:
            continue
        for part in parts:
            yield from ((each, name) for each in walk(part) if isinstance(each, nodes.Call | nodes.Identifier))


WINDOW = 2048
"""Maximum bytes of the user stack that are copied at once: a read takes as long as five frames of the loop."""

PAGE, ENOUGH = 4096, 1024
"""A stack ends at a page boundary, so the rest of the page is copied, unless that is less than *ENOUGH*."""

FRAME = 16
"""Size of a frame record: the caller's frame pointer, then the return address."""

BLOCK = 8
"""Frames per iteration of the loop."""

LOWEST = 4096
"""Lowest address of a frame: nothing is mapped below."""

CODE_64 = 0x33
"""``__USER_CS``, the code segment of 64-bit programs."""

WITHOUT_STACK = 0x00200000 | 0x4000 | 0x10
"""``PF_KTHREAD``, ``PF_USER_WORKER`` and ``PF_IO_WORKER`` of include/linux/sched.h, the same in all kernels."""

NOWHERE = -4096
"""An address outside of user memory: a read from it zeroes its destination."""

_TASK = ("mm", "flags", "utask")
_FP, _START, _VALID, _COUNT, _WORDS = (WINDOW + 8 * word for word in range(5))
"""Offsets of words after the window: the state of a walk between iterations: frame pointer, address of
which the window is a copy, end of the valid offsets, number of frames. Values loaded from there are unknown to the
verifier, which would otherwise follow the code after them for each value."""


def _function(script: Script, limit: int, span: Span, *, marked: bool) -> str:
    """``walk_LIMIT(frames, window, ip, fp)`` writes at most LIMIT frames and returns their number.

    If *marked*, that is one more where there are more.
    """
    name = f"walk_{limit}_marked" if marked else f"walk_{limit}"
    return script.once(name, lambda: _emit_walk(script, name, limit, span, marked=marked))


def _emit_walk(script: Script, name: str, limit: int, span: Span, *, marked: bool) -> None:
    script.once(READ, lambda: _read_function(script, span))
    sizes = {"frames": limit * 8, "window": _WORDS}
    b = script.module.function(name, ("*frames", "*window", "ip", "fp"), span, apart=True, sizes=sizes)
    steps = _Steps(b, limit, pointer_parameter("frames"), pointer_parameter("window"))
    steps.begin(number_parameter("fp"))
    b.store(number_parameter("ip"), steps.frames)
    done = b.block()
    for number in range(1, min(limit, 1 + BLOCK)):
        steps.step(number, done)
    rest = limit - 1 - BLOCK + marked
    if rest <= 0 and marked:
        steps.look_beyond(done)
    elif rest > 0:
        callback = f"{name}_more"
        both = b.alloca(16)
        b.store_pointer(steps.frames, both)
        b.store_pointer(steps.window, b.offset(both, 8))
        steps.save()
        b.helper(helpers.LOOP, (rest + BLOCK - 1) // BLOCK, global_pointer(callback), both, 0)
        b.store(b.load(b.offset(steps.window, _COUNT), again=True), steps.count)
        _callback(script, callback, limit, span, marked=marked)
    b.jump(done)
    b.start(done)
    b.ret(b.load(steps.count))


def _callback(script: Script, name: str, limit: int, span: Span, *, marked: bool) -> None:
    """Walk over the next :data:`BLOCK` frames."""
    b, both = script.module.function(name, ("index", "*both"), span), pointer_parameter("both")
    steps = _Steps(b, limit, b.load_pointer(both), b.load_pointer(b.offset(both, 8)))
    steps.restore()
    first = b.add(b.mul(number_parameter("index"), BLOCK), 1 + BLOCK)
    ended = b.block()
    full = b.block() if marked else ended
    for number in range(BLOCK):
        steps.step(b.add(first, number), ended, full)
    steps.save()
    b.ret(0)
    if marked:
        b.start(full)
        steps.look_beyond(ended)
        b.jump(ended)
    b.start(ended)
    steps.save()
    b.ret(1)


class _Steps:
    """State of a walk in registers, and the code of one step."""

    def __init__(self, b: Builder, limit: int, frames: Ptr, window: Ptr) -> None:
        self.b, self.limit, self.frames, self.window = b, limit, frames, window
        self.fp, self.start, self.valid, self.count = (b.register() for _ in range(4))

    def begin(self, fp: Number) -> None:
        """Initial state: the window is empty, and the first frame is the instruction pointer."""
        self.b.store(fp, self.fp)
        self.b.store(0, self.start)
        self.b.store(0, self.valid)
        self.b.store(1, self.count)

    def save(self) -> None:
        """Store the state after the window."""
        for register, offset in self._places():
            self.b.store(self.b.load(register), self.b.offset(self.window, offset))

    def restore(self) -> None:
        """Load the state."""
        for register, offset in self._places():
            self.b.store(self.b.load(self.b.offset(self.window, offset), again=True), register)

    def _places(self) -> tuple[tuple[Ptr, int], ...]:
        return (self.fp, _FP), (self.start, _START), (self.valid, _VALID), (self.count, _COUNT)

    def look_beyond(self, ended: Block) -> None:
        """After as many frames as there may be: count one more if it can be read, else jump to *ended*."""
        b, fp = self.b, self.b.load(self.fp)
        b.jump_if(b.icmp("ult", fp, LOWEST), ended, likely=False)
        b.jump_if(b.icmp("eq", b.call(READ, [self.window], [fp]), 0), ended, likely=False)
        b.store(self.limit + 1, self.count)

    def step(self, number: Number, ended: Block, full: Block | None = None) -> None:
        """Write frame *number*, or jump to *ended*, or to *full* where there is no room."""
        b = self.b
        if not isinstance(number, int):
            number = b.opaque(number)
            b.jump_if(b.icmp("uge", number, self.limit), full or ended, likely=False)
        fp, place = b.load(self.fp), b.register()
        b.jump_if(b.icmp("ult", fp, LOWEST), ended, likely=False)
        offset = b.sub(fp, b.load(self.start))
        b.store(offset, place)
        with b.unless(b.icmp("ult", offset, b.load(self.valid)), likely=True):
            valid = b.call(READ, [self.window], [fp])
            b.jump_if(b.icmp("eq", valid, 0), ended, likely=False)
            b.store(valid, self.valid)
            b.store(fp, self.start)
            # An opaque 0: the verifier would follow the code after it once more for a known one.
            b.store(b.sub(fp, b.opaque(fp)), place)
        inside = b.opaque(b.load(place))
        # Always holds, but the verifier does not know the valid range.
        b.jump_if(b.icmp("ugt", inside, WINDOW - FRAME), ended, likely=False)
        frame = b.offset(self.window, inside)
        following = b.load(frame, again=True)
        # A frame that points to itself is the last one (glibc's clone3, in threads): it would repeat forever.
        b.store(b.select(b.icmp("eq", following, fp), 0, following), self.fp)
        b.store(b.load(b.offset(frame, 8), again=True), b.offset(self.frames, b.op("shl", number, 3)))
        b.store(b.add(number, 1), self.count)


READ = "read_frames"


def _read_function(script: Script, span: Span) -> None:
    """``read_frames(window, fp)`` copies the stack from *fp* on. Returns the end of the valid offsets in the copy."""
    b = script.module.function(READ, ("*window", "fp"), span, apart=True, sizes={"window": WINDOW})
    window, fp = pointer_parameter("window"), number_parameter("fp")
    left = b.sub(PAGE, b.op("and", fp, PAGE - 1))
    far, near, done, none = (b.block() for _ in range(4))
    size = b.register()
    b.branch(b.icmp("ult", left, ENOUGH), far, near, likely=False)
    b.start(far)
    b.store(WINDOW, size)
    b.branch(b.truth(b.helper(helpers.PROBE_READ_USER, window, WINDOW, fp)), near, done, likely=False)
    b.start(near)
    b.store(b.at_most(b.select(b.icmp("ult", left, FRAME), FRAME, left), WINDOW), size)
    b.branch(b.truth(b.helper(helpers.PROBE_READ_USER, window, b.load(size), fp)), none, done, likely=False)
    b.start(none)
    b.store(FRAME - 1, size)
    b.jump(done)
    b.start(done)
    b.ret(b.sub(b.load(size), FRAME - 1))


class StackTruncation(Part):
    """Counts truncated stacks."""

    def count_truncated(self, node: Node, type_: Stack, count: Number) -> None:
        """Count the stack if it is truncated."""
        if marks_truncation(node):
            with self.b.when(self.b.icmp("sgt", count, type_.limit), likely=False):
                self.count(node)

    def count(self, node: Node) -> None:
        """Count a truncated stack, by its place in the script, and by the map that it is a key or value of."""
        maps = self.script.stack_maps
        if maps is None:
            maps, checked = {}, self.checked
            self.script.stack_maps = maps
            for body in [unit.body for unit in checked.units] + [function.body for function in checked.functions]:
                maps.update(_stacks_of_maps(body))
        name = maps.get(node)
        what = f"{node.name} of {name}" if name else node.name
        self.e.counter(TRUNCATED, self.script.layout.site(what, location(node.span)))

    def of_kernel(
        self, node: Node, type_: Stack, count: Number, skipped: int, get_stack: Callable[[Ptr, int], I64],
        inserted: Number = 0,
    ) -> Number:  # fmt: skip
        """The number of frames that ``bpf_get_stack`` wrote, or one more than the limit, which is counted.

        Args:
            e: the emitter.
            node: the call.
            type_: its type.
            count: the number of frames, or a negative error.
            skipped: frames that the helper was told to skip, which count in the kernel's limit.
            get_stack: emits a call of the helper, to a place with room for a number of frames; it returns a length.
            inserted: the number of frames in *count* that the helper did not find.
        """
        if not marks_truncation(node):
            return count
        b, result = self.b, self.b.register()
        b.store(count, result)
        place = self.script.layout.place_stack_depth(type_.limit)
        full = b.load(global_pointer(SHARED, place))
        with b.when(b.icmp("sge", b.add(count, skipped), full), likely=False):
            room = self.e.area(self.e.reserve((type_.limit + 1) * type_.frame_size))
            size = type_.frame_size
            length = get_stack(room, type_.limit + 1)
            most = b.mul(b.load(global_pointer(SHARED, place + 8)), size)
            more = b.either(
                b.icmp("sgt", b.add(length, b.mul(inserted, size)), type_.limit * size),
                b.icmp("sge", b.add(length, skipped * size), most),
            )
            with b.when(more):
                b.store(type_.limit + 1, result)
                self.count(node)
        return b.load(result)


class FramePointers(Part):
    """Walks stacks by frame pointers."""

    def walks(self, type_: Stack) -> bool:
        """Whether the program may walk such a stack."""
        unit, kernel = self.program.unit, self.script.kernel
        if not type_.user or type_.mode is StackMode.BUILD_ID or kernel.arch != "x86_64":
            return False
        if unit.kind.user or unit.kind.special or unit.kind.context is Context.ITERATOR:
            return False
        if unit.kind.program_type not in ("tracepoint", "raw_tracepoint", "tracing", "kprobe"):
            return False
        return kernel.feature("bpf_loop") and self.e.tasks.has_members({"task_struct": _TASK})

    def walk(
        self, type_: Stack, frames: Ptr, node: nodes.Call | nodes.Identifier, helper: Callable[[], Number]
    ) -> Number:
        """Write the frames of the current task's user stack, followed by zeros.

        Args:
            e: the emitter.
            type_: the type of the stack, for which :func:`walks` holds.
            frames: destination with room for ``type_.limit`` frames.
            node: the call, for :mod:`pytrace.codegen.walkers.frame_pointers`.
            helper: emits the call of the kernel's helper instead.

        Returns:
            The number of frames, or the helper's error.
        """
        b, result = self.b, self.b.register()
        plain, done = b.block(), b.block()
        window = self.e.area(self.e.reserve(_WORDS))
        b.jump_if(b.icmp("eq", self.e.tasks.pointer_member("mm"), 0), plain, likely=False)
        b.jump_if(b.truth(b.op("and", self.e.tasks.member("flags", 32), WITHOUT_STACK)), plain, likely=False)
        b.jump_if(b.truth(self.e.tasks.pointer_member("utask")), plain, likely=False)
        task = b.helper(helpers.GET_CURRENT_TASK_BTF)
        saved, table = b.pointer(b.helper(helpers.TASK_PT_REGS, task)), self.e.probe.registers()
        ip, fp, segment = (b.load(b.offset(saved, table.offset(name))) for name in ("ip", "bp", "cs"))
        b.jump_unless(b.icmp("eq", b.op("and", segment, 0xFFFF), CODE_64), plain, likely=True)
        room = type_.limit * type_.frame_size
        if memory.inline(room, 8):
            b.clear(frames, room)
        else:
            b.helper(helpers.PROBE_READ_USER, frames, room, NOWHERE)
        marked = marks_truncation(node)
        if type_.limit == 1 and not marked:
            b.store(ip, frames)
            b.store(1, result)
        else:
            function = _function(self.script, type_.limit, self.program.unit.span, marked=marked)
            count = b.call(function, [frames, window], [ip, fp])
            StackTruncation(self.e).count_truncated(node, type_, count)
            b.store(count, result)
        b.jump(done)
        b.start(plain)
        b.store(helper(), result)
        b.jump(done)
        b.start(done)
        return b.load(result)
