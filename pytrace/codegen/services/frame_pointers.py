"""``ustack`` by frame pointers, walked by the BPF program itself (x86-64).

The kernel's walk (``perf_callchain_user``) reads frames one by one, which takes about 50 ns each, and ends most stacks
with a page fault, which takes as long as ten frames: the frame pointer of a process's first function is often a small
number. The program copies a window of the user stack at once and follows the frame pointers in the copy. It finds the
same frames, but ends at a frame that points to itself. The kernel's helper is called where it does more than that:
for 32-bit programs, tasks with uprobes (return addresses may be replaced), and tasks without a user stack.
"""

from __future__ import annotations

from collections.abc import Callable

from pytrace.codegen.emit import memory, stack_truncation
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block, Builder
from pytrace.codegen.ir.values import Number, Ptr, global_pointer, number_parameter, pointer_parameter
from pytrace.core.probes.kinds import Context
from pytrace.core.source import Span
from pytrace.core.types import Stack, StackMode
from pytrace.frontend.syntax import nodes

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
_RESULT, _FP, _START, _VALID, _COUNT, _WORDS = (WINDOW + 8 * word for word in range(6))
"""Offsets of words after the window: a result, and the state of a walk between iterations: frame pointer, address of
which the window is a copy, end of the valid offsets, number of frames. Values loaded from there are unknown to the
verifier, which would otherwise follow the code after them for each value."""


def walks(e: Emitter, type_: Stack) -> bool:
    """Whether the program may walk such a stack."""
    unit, kernel = e.program.unit, e.script.kernel
    if not type_.user or type_.mode is StackMode.BUILD_ID or kernel.arch != "x86_64":
        return False
    if unit.kind.user or unit.kind.special or unit.kind.context is Context.ITERATOR:
        return False
    if unit.kind.program_type not in ("tracepoint", "raw_tracepoint", "tracing", "kprobe"):
        return False
    return kernel.feature("bpf_loop") and e.tasks.has_members({"task_struct": _TASK})


def walk(
    e: Emitter, type_: Stack, frames: Ptr, node: nodes.Call | nodes.Identifier, helper: Callable[[], Number]
) -> Number:
    """Write the frames of the current task's user stack, followed by zeros.

    Args:
        e: the emitter.
        type_: the type of the stack, for which :func:`walks` holds.
        frames: destination with room for ``type_.limit`` frames.
        node: the call, for :mod:`pytrace.codegen.emit.stack_truncation`.
        helper: emits the call of the kernel's helper instead.

    Returns:
        The number of frames, or the helper's error.
    """
    b, result = e.b, e.b.register()
    plain, done = b.block(), b.block()
    window = e.area(e.reserve(_WORDS))
    b.jump_if(b.icmp("eq", e.tasks.member("mm", 64), 0), plain, likely=False)
    b.jump_if(b.truth(b.op("and", e.tasks.member("flags", 32), WITHOUT_STACK)), plain, likely=False)
    b.jump_if(b.truth(e.tasks.member("utask", 64)), plain, likely=False)
    task = b.helper(helpers.GET_CURRENT_TASK_BTF)
    saved, table = b.pointer(b.helper(helpers.TASK_PT_REGS, task)), e.probe.registers()
    ip, fp, segment = (b.load(b.offset(saved, table.offset(name))) for name in ("ip", "bp", "cs"))
    b.jump_unless(b.icmp("eq", b.op("and", segment, 0xFFFF), CODE_64), plain, likely=True)
    room = type_.limit * type_.frame_size
    if memory.inline(room, 8):
        b.clear(frames, room)
    else:
        b.helper(helpers.PROBE_READ_USER, frames, room, NOWHERE)
    marked = stack_truncation.marked(node)
    function = _function(e.script, type_.limit, e.program.unit.span, marked=marked)
    count = b.call(function, [frames, window], [ip, fp])
    stack_truncation.tell(e, node, type_, count)
    b.store(count, result)
    b.jump(done)
    b.start(plain)
    b.store(helper(), result)
    b.jump(done)
    b.start(done)
    return b.load(result)


def _function(script: Script, limit: int, span: Span, *, marked: bool) -> str:
    """``walk_LIMIT(frames, window, ip, fp)`` writes at most LIMIT frames and returns their number.

    If *marked*, that is one more where there are more.
    """
    name = f"walk_{limit}_marked" if marked else f"walk_{limit}"
    if name in script.walks:
        return name
    if not script.walks:
        _read_function(script, span)
    script.walks.add(name)
    b = script.module.function(name, ("*frames", "*window", "ip", "fp"), span)
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
    return name


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
    b = script.module.function(READ, ("*window", "fp"), span)
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
    # Through memory, so that the verifier does not know the result: it would follow the next code for each value.
    b.ret(b.through(b.sub(b.load(size), FRAME - 1), b.offset(window, _RESULT)))
