"""Loops: the body becomes a callback of ``bpf_loop`` or ``bpf_for_each_map_elem``.

A callback's result 0 goes on, 1 ends the loop.  ``return`` inside a body stores what is returned and a flag in scratch
memory, ends the loop, and the code behind the loop leaves too.  Where the kernel has no ``bpf_loop`` (before 5.17) the
body stays in place and the verifier follows each round, at most :data:`FOLLOWED` of them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from pytrace.codegen.emit import events, memory
from pytrace.codegen.emit.comparison import counted
from pytrace.codegen.emit.emitter import Emitter, Loop
from pytrace.codegen.ir.builder import Value
from pytrace.codegen.ir.operands import Memory, Operand, Scalar
from pytrace.codegen.lower import aggregates, maps
from pytrace.core.diagnostics import InternalError
from pytrace.core.source import Span
from pytrace.core.types import INT64, Tuple
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.typed_program import VariableInfo

FOLLOWED = 1024
"""Rounds of a loop that the verifier has to follow one by one."""

MOST = 1 << 23
"""``BPF_MAX_LOOPS`` of the kernel."""

Body = Callable[[Emitter, Value], None]


def for_each(e: Emitter, node: nodes.For) -> None:
    """``for``: over a range or a map."""
    if isinstance(node.source, nodes.Range):
        _for_range(e, node, node.source)
    else:
        _for_map(e, node)


def leave(e: Emitter) -> None:
    """End the innermost loop."""
    loop = e.loops[-1]
    if loop.leave is not None:
        e.b.jump(loop.leave)
    else:
        e.b.ret("1")


def _for_range(e: Emitter, node: nodes.For, span: nodes.Range) -> None:
    start, stop = e.number(span.start), e.number(span.stop)
    info = e.checked.variables[node.variable]
    kept = e.reserve(8)
    e.b.store(start, e.area(kept))
    # The verifier (seen in 6.18) removes the callback of a loop that it knows to run no time, but not its address: an
    # empty range goes round the loop.
    some, over = e.b.block(), e.b.block()
    e.b.branch(e.b.icmp("slt", start, stop), some, over)
    e.b.start(some)

    def body(inner: Emitter, index: Value) -> None:
        value = inner.b.add(inner.b.load(inner.area(kept)), index)
        _set(inner, info, Scalar(memory.fit(inner, value, info.type), INT64))
        _body(inner, node.body)

    run(e, node.span, e.b.sub(stop, start), body, told=node)
    e.b.jump(over)
    e.b.start(over)


def _set(e: Emitter, info: VariableInfo, operand: Operand) -> None:
    place = e.variable(info)
    if place.register is not None:
        e.b.store(memory.number(e, operand), place.register)
    else:
        memory.write(e, operand, e.variable_pointer(info), info.type)


def _body(e: Emitter, block: nodes.Block) -> None:
    from pytrace.codegen.lower import statements

    statements.block(e, block)


def while_true(e: Emitter, node: nodes.While) -> None:
    """``while``: a counted loop without a count of its own, left when the condition fails."""

    def body(inner: Emitter, _index: Value) -> None:
        go, stop = inner.b.block(), inner.b.block()
        with inner.temporaries():
            inner.b.branch(memory.truth(inner, inner.value(node.condition)), go, stop)
        inner.b.start(stop)
        leave(inner)
        inner.b.start(go)
        _body(inner, node.body)

    run(e, node.span, str(MOST), body, told=node)


def run(e: Emitter, span: Span, count: Value, body: Body, *, told: nodes.For | nodes.While | None = None) -> None:
    """Run *body* for index 0 … count - 1.

    The kernel refuses more than :data:`MOST` rounds, which is reported for the loop *told*; so is a ``while`` that has
    not ended until then.
    """
    if e.script.kernel.feature("bpf_loop"):
        _with_callback(
            e,
            span,
            ("index", "*frame"),
            lambda inner: body(inner, "%index"),
            lambda name, frame: _bpf_loop(e, count, name, frame, told),
        )
        return

    def step(index: Value, leave: Callable[[], None]) -> None:
        done, again = e.b.block(), e.b.block()
        e.loops.append(Loop(done, again))
        body(e, index)
        e.loops.pop()
        e.b.jump(again)
        e.b.start(done)
        leave()
        e.b.start(again)

    counted(e, count, step, most=FOLLOWED)


def _bpf_loop(
    e: Emitter, count: Value, callback: str, frame: Value, told: nodes.For | nodes.While | None
) -> None:
    """Kernels since 6.8 cannot load a call whose count the verifier knows to be 0: they drop the callback only."""
    some, done = e.b.block(), e.b.block()
    e.b.branch(e.b.icmp("ne", count, "0"), some, done)
    e.b.start(some)
    # Where the verifier inlines the helper, its error number is only 32 bits wide.
    rounds = e.b.fit(e.b.helper("loop", count, f"@{callback}", frame, "0"), 32, signed=True)
    if isinstance(told, nodes.While):
        # That many rounds mean that the kernel ended the loop.
        rounds = e.b.select(e.b.icmp("eq", rounds, str(MOST)), str(-errno.E2BIG), rounds)
    if told is not None:
        events.check_helper(e, told, "bpf_loop", rounds)
    e.b.jump(done)
    e.b.start(done)


def _with_callback(
    e: Emitter,
    span: Span,
    parameters: tuple[str, ...],
    body: Callable[[Emitter], None],
    call: Callable[[str, Value], object],
) -> None:
    program = e.program
    name = program.name("loop")
    text, scope = e.module.function(name, parameters, span)
    inner = Emitter(program, text, scope, span, e.depth + 1, "%frame")
    inner.loops.append(Loop(None, None))
    flag, returned = e.returned_flag, False

    def leave_all(value: Operand | None) -> None:
        nonlocal returned
        returned = True
        e.keep_result(inner, value)
        inner.b.store("1", inner.area(flag))
        inner.b.ret("1")

    inner.leave = leave_all
    inner.share_result(e)
    body(inner)
    inner.b.ret("0")
    returned = returned or inner.inner_returned
    if returned:
        e.b.store("0", e.area(flag))
    call(name, e.frame)
    if returned:
        _leave_too(e, flag)


def in_function(e: Emitter, span: Span, body: Callable[[Emitter], None]) -> None:
    """Run *body* once, in a function of its own."""
    _with_callback(e, span, ("*frame",), body, lambda name, frame: e.b.call(name, [("ptr", frame)]))


def _leave_too(e: Emitter, flag: int) -> None:
    """Behind a loop whose body may have returned."""
    out, on = e.b.block(), e.b.block()
    e.b.branch(e.b.truth(e.b.load(e.area(flag))), out, on, likely=False)
    e.b.start(out)
    e.leave_again()
    e.b.start(on)


# ---------------------------------------------------------------------------------------------- maps


def _for_map(e: Emitter, node: nodes.For) -> None:
    if not isinstance(node.source, nodes.Expr):
        raise InternalError("not a map")
    info, _ = maps.info_of(e, node.source)
    variable = e.checked.variables[node.variable]
    pair = variable.type
    if not isinstance(pair, Tuple) or info.key is None:
        raise InternalError("a map gives pairs")
    key_type = info.key

    def body(inner: Emitter) -> None:
        inner.variable(variable)
        pointer = inner.variable_pointer(variable)
        key_place, value_place = inner.b.offset(pointer, pair.offsets[0]), inner.b.offset(pointer, pair.offsets[1])
        memory.zero(inner, pointer, pair.size)
        memory.write(inner, Memory("%key", key_type), key_place, pair.members[0])
        with inner.temporaries():
            value: Operand = Memory("%value", info.value)
            if info.value.aggregate:
                value = aggregates.read(inner, info, "%key", pair.members[1])
            memory.write(inner, value, value_place, pair.members[1], memory.natural(8, pair.offsets[1]))
        _body(inner, node.body)

    _with_callback(
        e,
        node.span,
        ("*map", "*key", "*value", "*frame"),
        body,
        lambda name, frame: e.b.helper("for_each_map_elem", maps.map_symbol(e, info), f"@{name}", frame, "0"),
    )
