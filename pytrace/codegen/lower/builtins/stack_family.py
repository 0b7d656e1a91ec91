"""Stacks: written to their destination by ``bpf_get_stack``, or unwound by
:mod:`pytrace.codegen.services.user_unwinding`.
"""

from __future__ import annotations

from pytrace.codegen.emit import events
from pytrace.codegen.emit.current_task import process_ids
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.ir_values import Number, Ptr
from pytrace.codegen.ir.operands import Made, Operand
from pytrace.codegen.lower.builtins.families import Emission
from pytrace.codegen.services import frame_pointers, uprobe_entries, user_unwinding
from pytrace.core.diagnostics import InternalError
from pytrace.core.probes.kinds import FENTRY, FEXIT, RAWTRACEPOINT
from pytrace.core.types import Stack, StackMode
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.typed_program import location

Node = nodes.Call | nodes.Identifier

USER_STACK = 1 << 8
USER_BUILD_ID = 1 << 11
SKIPPED = 2
"""Frames that do not belong to the traced stack: the program and its caller, ``bpf_trace_run1`` … or a trampoline,
whose address kallsyms resolves to an unrelated symbol."""
_RUN_BY_OTHERS = frozenset({RAWTRACEPOINT, FENTRY, FEXIT})
"""Probe kinds whose stacks begin inside the program itself."""


def _stack(e: Emitter, node: Node) -> Operand:
    type_ = e.type(node)
    if not isinstance(type_, Stack):
        raise InternalError("not a stack")
    flags = (USER_STACK if type_.user else 0) | (USER_BUILD_ID if type_.mode is StackMode.BUILD_ID else 0)
    if not type_.user and e.program.unit.kind.name in _RUN_BY_OTHERS:
        flags |= SKIPPED
    room = type_.limit * type_.frame_size
    context = e.raw_context
    tgid = process_ids(e, "tracer")[0] if type_.user else 0

    def write(pointer: Ptr, _align: int) -> None:
        frames = e.b.offset(pointer, type_.header)

        def helped() -> Number:
            # The helper zeroes the rest after the last frame, and everything if it fails (__bpf_get_stack), which keys
            # require.
            length = e.b.helper(helpers.GET_STACK, context, frames, room, flags)
            _check(e, node, type_, length)
            return e.b.select(e.b.icmp("slt", length, 0), length, e.b.op("udiv", length, type_.frame_size))

        if frame_pointers.walks(e, type_):
            count = frame_pointers.walk(e, type_, frames, helped)
        elif uprobe_entries.begins_function(e, type_):
            call = uprobe_entries.StackCall(context, flags, helped, lambda length: _check(e, node, type_, length))
            count = uprobe_entries.stack(e, type_, frames, call)
        else:
            count = helped()
        e.b.store(count, pointer, 32)
        e.b.store(tgid, e.b.offset(pointer, 4), 32)

    return Made(type_, write)


def _check(e: Emitter, node: Node, type_: Stack, result: Number) -> None:
    """Count and report a stack that could not be walked, which has a negative error code instead of a frame count."""
    with e.b.when(e.b.icmp("slt", result, 0), likely=False):
        site = e.script.layout.site("bpf_get_stack", location(node.span))
        before = e.counter("user_stack" if type_.user else "kernel_stack", site)
        if e.script.options.checks:
            error = "user_stack" if type_.user else "kernel_stack"
            events.first_ones(e, before, lambda: events.report(e, node, error))


def _dwarf(e: Emitter, node: Node) -> Operand:
    type_ = e.type(node)
    if not isinstance(type_, Stack):
        raise InternalError("not a stack")
    return user_unwinding.stack(e, node, type_)


EMIT: dict[str, Emission] = {"dw_ustack": _dwarf, "kstack": _stack, "ustack": _stack}
