"""Loops: the body becomes a callback of ``bpf_loop`` or ``bpf_for_each_map_elem``.

A callback's result 0 continues, 1 ends the loop.  ``return`` inside a body stores the result and a flag in scratch
memory and ends the loop, and the code after the loop returns as well.  On kernels without ``bpf_loop`` (before 5.17)
the body is inline and the verifier follows each iteration, at most :data:`FOLLOWED` of them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytrace.codegen.analysis.loop_bounds import MOST
from pytrace.codegen.emit import events
from pytrace.codegen.emit.emitter import Emitter, Loop
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import FRAME, I64, Number, Ptr, global_pointer, number_parameter
from pytrace.frontend.ast import nodes

if TYPE_CHECKING:
    from pytrace.codegen.ir.operands import Operand
    from pytrace.core.source import Span

FOLLOWED = 1024
"""Maximum iterations of a loop that the verifier follows one by one."""

BUDGET = 16
"""Bytes of the budget of all loops: the number of iterations that is left, and whether it was exceeded."""

SPENT = 8
"""Offset of the latter."""

Body = Callable[[Emitter, I64], None]


def leave(e: Emitter) -> None:
    """End the innermost loop."""
    loop = e.loops[-1]
    if loop.leave is not None:
        e.b.jump(loop.leave)
    else:
        e.b.ret(1)


Step = Callable[[I64, Callable[[], None]], None]


def counted(e: Emitter, count: Number, step: Step, most: int | None = None) -> None:
    """An inline loop, for short bodies: ``step(index, leave)`` for index 0 … count-1.

    *most* is the constant bound that the verifier sees when *count* is a register.
    """
    index = e.b.register()
    e.b.store(0, index)
    head, body, done = e.b.block(), e.b.block(), e.b.block()
    e.b.jump(head)
    e.b.start(head)
    at = e.b.load(index)
    e.b.branch(e.b.icmp("ult", at, count), body, done)
    e.b.start(body)
    if most is not None:
        inside = e.b.block()
        e.b.branch(e.b.icmp("ult", at, most), inside, done)
        e.b.start(inside)
    step(at, lambda: e.b.jump(done))
    e.b.store(e.b.add(at, 1), index)
    e.b.jump(head)
    e.b.start(done)


def run(e: Emitter, span: Span, count: Number, body: Body, *, told: nodes.For | nodes.While | None = None) -> None:
    """Run *body* for index 0 … count - 1.

    The kernel rejects more than :data:`MOST` iterations, which is reported for the loop *told*; so is a ``while`` that
    has not ended by then.
    """
    if e.script.kernel.feature("bpf_loop"):
        with_callback(
            e,
            span,
            ("index", "*frame"),
            lambda inner: turn(inner, told, lambda: body(inner, number_parameter("index"))),
            lambda name, frame: _bpf_loop(e, count, name, frame, told),
        )
        return

    def step(index: I64, leave: Callable[[], None]) -> None:
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
    e: Emitter, count: Number, callback: str, frame: Ptr, told: nodes.For | nodes.While | None
) -> None:
    """Call ``bpf_loop``. Kernels since 6.8 reject a call with a known count of 0: they remove only the callback."""
    with budget(e, told, count) as (turns, spend):
        some, done = e.b.block(), e.b.block()
        e.b.branch(e.b.icmp("ne", turns, 0), some, done)
        e.b.start(some)
        # If the verifier inlines the helper, its error number is only 32 bits wide.
        rounds = e.b.fit(e.b.helper(helpers.LOOP, turns, global_pointer(callback), frame, 0), 32, signed=True)
        spend(rounds)
        if isinstance(told, nodes.While):
            # This number of iterations means that the kernel ended the loop.
            rounds = e.b.select(e.b.icmp("eq", rounds, MOST), -errno.E2BIG, rounds)
        if told is not None:
            events.check_helper(e, told, "bpf_loop", rounds)
        e.b.jump(done)
        e.b.start(done)


@contextmanager
def budget(
    e: Emitter, told: nodes.For | nodes.While | None, count: Number
) -> Iterator[tuple[Number, Callable[[Number], None]]]:
    """Limit a loop of *count* iterations to what is left of ``max_loop_iterations``.

    Gives the number of iterations to make, and a function that takes how many were made (negative: an error). When
    they were not enough, that is reported at *told*, once in each run of the program, and the loops around this one
    end as well (:func:`turn`), also those that call the function with this one.
    """
    offset = e.program.loop_budget
    if told is None or offset is None:
        yield count, lambda _rounds: None
        return
    left, made = e.b.load(e.area(offset)), e.b.register()
    short = e.b.icmp("ult", left, count)
    turns = e.b.select(short, left, count)
    e.b.store(0, made)

    def spend(rounds: Number) -> None:
        used = e.b.select(e.b.icmp("slt", rounds, 0), 0, rounds)
        e.b.store(used, made)
        # Loops inside this one have spent some of it, too.
        now = e.b.load(e.area(offset))
        e.b.store(e.b.select(e.b.icmp("ugt", now, used), e.b.sub(now, used), 0), e.area(offset))

    yield turns, spend
    spent = e.area(offset + SPENT)
    out, first, on = e.b.block(), e.b.block(), e.b.block()
    e.b.branch(e.b.both(short, e.b.icmp("eq", e.b.load(made), turns)), out, on, likely=False)
    e.b.start(out)
    e.b.branch(e.b.truth(e.b.load(spent)), on, first)
    e.b.start(first)
    events.failed_call(e, told, "bpf_loop", -errno.ELOOP)
    e.b.store(0, e.area(offset))
    e.b.store(1, spent)
    if e.loops and not e.part:
        leave(e)
    else:
        e.b.jump(on)
    e.b.start(on)


def turn(e: Emitter, told: nodes.For | nodes.While | None, body: Callable[[], None]) -> None:
    """One iteration of the loop *told*, which ends instead where the budget of all loops is spent."""
    offset = e.program.loop_budget
    if told is not None and offset is not None:
        out, on = e.b.block(), e.b.block()
        e.b.branch(e.b.truth(e.b.load(e.area(offset + SPENT))), out, on, likely=False)
        e.b.start(out)
        leave(e)
        e.b.start(on)
    body()


def with_callback(
    e: Emitter,
    span: Span,
    parameters: tuple[str, ...],
    body: Callable[[Emitter], None],
    call: Callable[[str, Ptr], object],
    *,
    part: bool = False,
) -> None:
    """Emit *body* into a function of its own; ``call(name, frame)`` emits the helper call that runs it.

    A ``return`` in the body also returns from the function around the loop.
    """
    program = e.program
    name = program.name("loop")
    text, scope = e.module.function(name, parameters, span)
    inner = Emitter(program, text, scope, span, e.depth + 1, FRAME)
    inner.loops.append(Loop(None, None))
    inner.part = part
    flag, returned = e.returned_flag, False

    def leave_all(value: Operand | None) -> None:
        nonlocal returned
        returned = True
        e.keep_result(inner, value)
        inner.b.store(1, inner.area(flag))
        inner.b.ret(1)

    inner.leave = leave_all
    inner.share_result(e)
    body(inner)
    inner.b.ret(0)
    returned = returned or inner.inner_returned
    if returned:
        e.b.store(0, e.area(flag))
    call(name, e.frame)
    if returned:
        _leave_too(e, flag)


def in_function(e: Emitter, span: Span, body: Callable[[Emitter], None]) -> None:
    """Emit *body* into a function of its own, and call it once."""
    with_callback(e, span, ("*frame",), body, lambda name, frame: e.b.call(name, [frame]), part=True)


def _leave_too(e: Emitter, flag: int) -> None:
    """After a loop whose body may have returned: return as well."""
    out, on = e.b.block(), e.b.block()
    e.b.branch(e.b.truth(e.b.load(e.area(flag))), out, on, likely=False)
    e.b.start(out)
    e.leave_again()
    e.b.start(on)
