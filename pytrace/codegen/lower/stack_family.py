"""Stacks: written to their destination by ``bpf_get_stack``, or unwound by
:mod:`pytrace.codegen.walkers.user_stacks` or :mod:`pytrace.codegen.walkers.python_stacks`.

Stacks in chunks (:data:`pytrace.core.types.CHUNK_SIZE`): keys and events have digests, frames are stored once. The
digests are those of large keys, with the same random words.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from msgspec.structs import replace

from pytrace.base.dispatch import handles_names
from pytrace.codegen.emit import memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I64, Made, Memory, Number, Operand, Ptr, global_pointer
from pytrace.codegen.lower.expressions import Builtins
from pytrace.codegen.lower.map_access import KeyDigests
from pytrace.codegen.walkers import frame_pointers, program_filters
from pytrace.codegen.walkers.frame_pointers import FramePointers, StackTruncation
from pytrace.codegen.walkers.known_stacks import KnownStacks
from pytrace.codegen.walkers.memory_images import MemoryImages
from pytrace.codegen.walkers.python_stacks import PythonStacks
from pytrace.codegen.walkers.user_stacks import MixedStacks, UserUnwinding, VisitedStacks
from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import MapType
from pytrace.core.probe_kinds import FENTRY, FEXIT, RAWTRACEPOINT, UPROBE, URETPROBE, UserTarget
from pytrace.core.types import CHUNK_FRAMES, CHUNK_LINK, CHUNK_MAP, CHUNK_SIZE, Stack, StackMode
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import location

Node = nodes.Call | nodes.Identifier

_USER_STACK = 1 << 8
_USER_BUILD_ID = 1 << 11
SKIPPED = 2
"""Frames that do not belong to the traced stack: the program and its caller, ``bpf_trace_run1`` … or a trampoline,
whose address kallsyms resolves to an unrelated symbol."""
_SKIP = 0xFF
"""``BPF_F_SKIP_FIELD_MASK``."""
_WORD = 8
_RUN_BY_OTHERS = frozenset({RAWTRACEPOINT, FENTRY, FEXIT})
"""Probe kinds whose stacks begin inside the program itself."""


def _emission(flat: Callable[..., Operand]) -> Callable[..., Operand]:
    """Emits a stack that *flat* writes with all of its frames, in chunks if it is of such a type."""

    def emit(family: StackBuiltins, node: Node) -> Operand:
        e = family.e
        type_ = e.type(node)
        if not isinstance(type_, Stack):
            raise InternalError("not a stack")
        if not type_.chunked:
            return flat(family, node, type_, False)
        return family._write_chunks(node, flat(family, node, replace(type_, chunked=False), True), type_)

    return emit


LOST = "chunks_full"
"""Counter of stacks of which a chunk was not stored, as the map was full."""
_LEFT, _KEY, _FULL, _CHUNK = 0, 8, 24, 32
"""Offsets of the state: number of frames that are not stored yet, digest of the last chunk, whether a chunk had no
room, and the chunk."""


class StackBuiltins(Builtins):
    """Stacks."""

    def __init__(self, e: Emitter) -> None:
        super().__init__(e)
        self.digests = KeyDigests(e)

    def _stack(self, node: Node, type_: Stack, chunked: bool) -> Operand:
        if memory.iterates_tasks(self.program):
            return VisitedStacks(self.e).stack(node, type_)
        way = self.checked.config.stack_unwinding
        if type_.user and way == "tables" and type_.mode is not StackMode.BUILD_ID:
            return UserUnwinding(self.e).stack(node, type_)
        walked = self._walked(node, type_)
        if MixedStacks(self.e).usable(type_):
            entry = self._may_lack_caller(type_)
            return MixedStacks(self.e).stack(node, type_, entry, lambda pointer: walked.write(pointer, 8))
        sampled = self.program.unit.kind.program_type == "perf_event"
        # The kernel walks no more than perf_event_max_stack frames, which is all that a user probe has by frame
        # pointers.
        deep = chunked and self.program.unit.kind.user
        if (way == "auto" or (way == "sampled" and (sampled or deep))) and UserUnwinding(self.e).usable(type_):
            entry = self._may_lack_caller(type_)
            return UserUnwinding(self.e).chosen(node, type_, entry, lambda pointer: walked.write(pointer, 8))
        return walked

    def _walked(self, node: Node, type_: Stack) -> Made:
        """A stack by frame pointers, or of the kernel."""
        flags = (_USER_STACK if type_.user else 0) | (_USER_BUILD_ID if type_.mode is StackMode.BUILD_ID else 0)
        if not type_.user and self.program.unit.kind.name in _RUN_BY_OTHERS:
            flags |= SKIPPED
        context = self.e.raw_context

        def get_stack(place: Ptr, limit: int) -> I64:
            # The helper zeroes the rest after the last frame, and everything if it fails (__bpf_get_stack), which keys
            # require. Kernels before 5.13 read the memory first, as far as the verifier knows.
            if not self.script.kernel.feature("stack_to_unset"):
                self.e.memory.zero(place, limit * type_.frame_size)
            length = self.b.helper(helpers.GET_STACK, context, place, limit * type_.frame_size, flags)
            self._check(node, type_, length)
            return length

        def write(pointer: Ptr, _align: int) -> None:
            process = MemoryImages(self.e).of_stack(type_)
            frames = self.b.offset(pointer, type_.header)

            def whole(count: Number, inserted: Number = 0) -> Number:
                skipped = flags & _SKIP
                return StackTruncation(self.e).of_kernel(node, type_, count, skipped, get_stack, inserted)

            def helped() -> Number:
                known = KnownStacks(self.e)
                if known.usable(type_):
                    length = known.length(type_, frames, lambda: get_stack(frames, type_.limit))
                else:
                    length = get_stack(frames, type_.limit)
                return whole(
                    self.b.select(self.b.icmp("slt", length, 0), length, self.b.op("udiv", length, type_.frame_size))
                )

            if FramePointers(self.e).walks(type_):
                count = FramePointers(self.e).walk(type_, frames, node, helped)
            elif program_filters.in_caller(self.program.unit) and type_.mode is not StackMode.BUILD_ID:
                count = helped()
                # By frame pointers it is the second frame, or left out: at the end of a function they are its caller's.
                if type_.user and type_.limit and self.script.kernel.arch == "x86_64":
                    self.b.helper(helpers.PROBE_READ_USER, frames, _WORD, self.e.probe.register("sp"))
            elif self._may_lack_caller(type_):
                count = self._with_caller(type_, frames, get_stack, helped, whole)
            else:
                count = helped()
            self.b.store(count, pointer, 32)
            self.b.store(process, self.b.offset(pointer, 4), 32)

        return Made(type_, write)

    def _may_lack_caller(self, type_: Stack) -> bool:
        """Whether such a stack may lack the caller."""
        unit = self.program.unit
        if not type_.user or type_.mode is StackMode.BUILD_ID or type_.limit < 2 or self.script.kernel.arch != "x86_64":
            return False
        if unit.kind.name not in (UPROBE, URETPROBE):
            return False
        targets = [target.of(UserTarget) for target in unit.targets]
        if unit.kind.returns:
            return all(target.leaving is not None and target.go for target in targets)
        return all(target.symbol and not target.inside for target in targets)

    def _with_caller(
        self,
        type_: Stack,
        frames: Ptr,
        get_stack: Callable[[Ptr, int], I64],
        helped: Callable[[], Number],
        whole: Callable[[Number, Number], Number],
    ) -> Number:
        """Write the frames of a user stack at the first or last instruction of a function (x86-64), including the
        caller.

        There the frame pointer is still the caller's, so a walk along frame pointers skips the caller. Its
        address is on top of the stack, and is inserted as the second frame. Kernels since 6.11 insert it
        themselves if the function begins with ``push %rbp`` or ``endbr64`` (``is_uprobe_at_func_entry`` of
        arch/x86/events/core.c). Returns the number of frames, or the helper's error.
        """
        b, result = self.b, self.b.register()
        caller = self.e.temporary(_WORD)
        plain, done = b.block(), b.block()
        b.store(0, caller)
        b.helper(helpers.PROBE_READ_USER, caller, _WORD, self.e.probe.register("sp"))
        # One word too far, to leave room for the caller.
        length = get_stack(b.offset(frames, _WORD), type_.limit - 1)
        b.store(0, frames)
        b.store(length, result)
        b.jump_if(b.icmp("slt", length, _WORD), done, likely=False)
        address = b.load(caller, again=True)
        segment = b.op("and", self.e.probe.register("cs"), 0xFFFF)
        address = b.select(b.icmp("eq", segment, frame_pointers.CODE_64), address, 0)
        second = b.load(b.offset(frames, 2 * _WORD), again=True) if type_.limit > 2 else 0
        missing = b.select(b.icmp("eq", address, 0), 0, second)  # there is no address to insert
        b.jump_if(b.icmp("eq", address, missing), plain, likely=False)
        b.store(b.load(b.offset(frames, _WORD), again=True), frames)
        b.store(address, b.offset(frames, _WORD))
        b.store(whole(b.add(b.op("udiv", length, _WORD), 1), 1), result)
        b.jump(done)
        b.start(plain)
        b.store(helped(), result)
        b.jump(done)
        b.start(done)
        return b.load(result)

    def _check(self, node: Node, type_: Stack, result: Number) -> None:
        """Count and report a stack that could not be walked, which has a negative error code instead of a frame
        count.

        The helper answers EFAULT both for a task that has no user stack (a thread of the kernel, a task that
        has given up its memory) and where the kernel had no buffer left (get_perf_callchain): only the second
        is a loss.
        """
        b = self.b
        with b.when(b.icmp("slt", result, 0), likely=False):
            counted, passed = b.block(), b.block()
            task = self.script.kernel.struct("struct", "task_struct") if type_.user else None
            if task is not None and task.find("mm") is not None:
                b.jump_if(b.icmp("ne", result, -errno.EFAULT), counted)
                b.branch(b.truth(self.e.tasks.pointer_member("mm")), counted, passed)
            else:
                b.jump(counted)
            b.start(counted)
            self.e.events.failed_stack(node, "bpf_get_stack", "user_stack" if type_.user else "kernel_stack")
            b.jump(passed)
            b.start(passed)

    def _dwarf(self, node: Node, type_: Stack, _chunked: bool) -> Operand:
        return UserUnwinding(self.e).stack(node, type_)

    def _python(self, node: Node, type_: Stack, _chunked: bool) -> Operand:
        return PythonStacks(self.e).stack(node, type_)

    def _write_chunks(self, node: nodes.Call | nodes.Identifier, flat: Operand, type_: Stack) -> Memory:
        """Store the frames of a stack that lies *flat* in memory, and write the chunked one of *type_* to memory."""
        b = self.b
        if not self.script.chunks_stacks:
            self.script.chunks_stacks = True
            # Of each stack a quarter of its chunks, as callers are shared.
            config = self.checked.config
            size = config.max_map_keys * max(1, config.max_stack_depth // CHUNK_FRAMES // 4)
            layout = {"type": MapType.HASH, "key_size": CHUNK_LINK, "value_size": CHUNK_SIZE, "max_entries": size}
            self.module.map(CHUNK_MAP, layout)
        # Room for a whole chunk after the frames of a small stack.
        source, out = self.e.reserve(type_.header + 8 * max(type_.limit, CHUNK_FRAMES)), self.e.reserve(type_.size)
        state = self.e.reserve(_CHUNK + CHUNK_SIZE)
        if type_.limit < CHUNK_FRAMES:
            self.e.memory.zero(self.e.area(source), type_.header + 8 * CHUNK_FRAMES)
        self.e.memory.write(flat, self.e.area(source), flat.type)
        count = b.load(self.e.area(source), 32, signed=True)
        b.store(b.select(b.icmp("slt", count, 0), 0, b.select(b.icmp("sgt", count, type_.limit), type_.limit, count)),
                self.e.area(state + _LEFT))  # fmt: skip
        for offset in (_KEY, _KEY + 8, _FULL):
            b.store(0, self.e.area(state + offset))
        chunks = (type_.limit + CHUNK_FRAMES - 1) // CHUNK_FRAMES
        frames, most = source + type_.header, max(type_.limit - CHUNK_FRAMES, 0)
        self.e.loops.run(
            node.span, chunks, lambda inner, _index: StackBuiltins(inner)._store_chunk(frames, most, state)
        )
        with b.when(b.truth(b.load(self.e.area(state + _FULL))), likely=False):
            self.e.counter(LOST, self.script.layout.site(node.name, location(node.span)))
        b.store(b.load(self.e.area(source)), self.e.area(out))
        for offset in (0, 8):
            b.store(b.load(self.e.area(state + _KEY + offset)), self.e.area(out + type_.header + offset))
        return Memory(self.e.area(out), type_)

    def _store_chunk(self, frames: int, most: int, state: int) -> None:
        """One iteration, from the outermost chunk on: digest the next one, and store it unless it is there."""
        b, chunk, key = self.b, self.e.area(state + _CHUNK), self.e.area(state + _KEY)
        left = b.load(self.e.area(state + _LEFT))
        with b.when(b.icmp("eq", left, 0)):
            self.e.loops.leave()
        start = b.sub(left, CHUNK_FRAMES)
        start = b.select(b.icmp("slt", start, 0), 0, start)
        b.store(start, self.e.area(state + _LEFT))
        for offset in (0, 8):
            b.store(b.load(b.offset(key, offset)), b.offset(chunk, offset))
        first = b.offset(self.e.area(frames), b.op("shl", b.at_most(start, most), 3))
        self.e.memory.copy(b.offset(chunk, CHUNK_LINK), first, 8 * CHUNK_FRAMES)
        self.digests.write_words(chunk, CHUNK_SIZE // 8, key)
        known = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(CHUNK_MAP), key)
        with b.when(b.is_null(known)):
            failed = b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(CHUNK_MAP), key, chunk, 0)
            with b.when(b.truth(failed), likely=False):
                b.store(1, self.e.area(state + _FULL))

    _dwarf_stack = handles_names("dw_ustack")(_emission(_dwarf))
    _stack_of_helper = handles_names("kstack", "ustack")(_emission(_stack))
    _python_stack = handles_names("pystack")(_emission(_python))
