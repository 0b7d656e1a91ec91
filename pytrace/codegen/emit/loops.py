"""Loops: the body becomes a callback of ``bpf_loop`` or ``bpf_for_each_map_elem``.

A callback returns 0 to continue and 1 to end the loop.  ``return`` inside a body stores the result and a flag in
scratch memory and ends the loop, and the code after the loop returns as well.  On kernels without ``bpf_loop`` (before
5.17) the body is inline and the verifier follows each iteration, at most :data:`FOLLOWED` of them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytrace.codegen.analysis.loop_bounds import MOST
from pytrace.codegen.emit import events
from pytrace.codegen.emit.emitter import Emitter, Loop
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import FRAME, I64, Number, Ptr, global_pointer, number_parameter
from pytrace.core.source import Span
from pytrace.frontend.syntax import nodes

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
    current = e.b.load(index)
    e.b.branch(e.b.icmp("ult", current, count), body, done)
    e.b.start(body)
    if most is not None:
        e.b.jump_unless(e.b.icmp("ult", current, most), done)
    step(current, lambda: e.b.jump(done))
    e.b.store(e.b.add(current, 1), index)
    e.b.jump(head)
    e.b.start(done)


def run(e: Emitter, span: Span, count: Number, body: Body, *, loop: nodes.For | nodes.While | None = None) -> None:
    """Run *body* for index 0 … count - 1.

    The kernel rejects more than :data:`MOST` iterations, which is reported at the statement *loop*; so is a ``while``
    that has not ended by then.
    """
    if e.script.kernel.feature("bpf_loop"):
        with_callback(
            e,
            span,
            ("index", "*frame"),
            lambda inner: turn(inner, loop, lambda: body(inner, number_parameter("index"))),
            lambda name, frame: _bpf_loop(e, count, name, frame, loop),
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
    e: Emitter, count: Number, callback: str, frame: Ptr, loop: nodes.For | nodes.While | None
) -> None:
    """Call ``bpf_loop``. Kernels since 6.8 reject a call with a constant count of 0: they remove only the callback."""
    with budget(e, loop, count) as (turns, spend):
        with e.b.when(e.b.icmp("ne", turns, 0)):
            # If the verifier inlines the helper, its error code is only 32 bits wide.
            rounds = e.b.fit(e.b.helper(helpers.LOOP, turns, global_pointer(callback), frame, 0), 32, signed=True)
            spend(rounds)
            if isinstance(loop, nodes.While):
                # The kernel ends the loop after this number of iterations.
                rounds = e.b.select(e.b.icmp("eq", rounds, MOST), -errno.E2BIG, rounds)
            if loop is not None:
                events.check_helper(e, loop, "bpf_loop", rounds)


@contextmanager
def budget(
    e: Emitter, loop: nodes.For | nodes.While | None, count: Number
) -> Iterator[tuple[Number, Callable[[Number], None]]]:
    """Limit a loop of *count* iterations to the remaining budget of ``max_loop_iterations``.

    Yields the number of iterations to make, and a function to call with the number of iterations made (negative: an
    error). Exceeding the budget is reported at *loop*, once in each run of the program, and ends the enclosing loops as
    well (:func:`turn`), including those around a call of this function.
    """
    offset = e.program.loop_budget
    if loop is None or offset is None:
        yield count, lambda _rounds: None
        return
    left, rounds_made = e.b.load(e.area(offset)), e.b.register()
    short = e.b.icmp("ult", left, count)
    turns = e.b.select(short, left, count)
    e.b.store(0, rounds_made)

    def spend(rounds: Number) -> None:
        used = e.b.select(e.b.icmp("slt", rounds, 0), 0, rounds)
        e.b.store(used, rounds_made)
        # Nested loops have spent some of it, too.
        now = e.b.load(e.area(offset))
        e.b.store(e.b.select(e.b.icmp("ugt", now, used), e.b.sub(now, used), 0), e.area(offset))

    yield turns, spend
    spent = e.area(offset + SPENT)
    exceeded = e.b.both(short, e.b.icmp("eq", e.b.load(rounds_made), turns))
    on = e.b.block()
    e.b.jump_unless(exceeded, on, likely=False)
    e.b.jump_if(e.b.truth(e.b.load(spent)), on)
    events.failed_call(e, loop, "bpf_loop", -errno.ELOOP)
    e.b.store(0, e.area(offset))
    e.b.store(1, spent)
    if e.loops and not e.part:
        leave(e)
    e.b.jump(on)
    e.b.start(on)


def turn(e: Emitter, loop: nodes.For | nodes.While | None, body: Callable[[], None]) -> None:
    """One iteration of *loop*, which ends the loop instead if the budget of all loops is spent."""
    offset = e.program.loop_budget
    if loop is not None and offset is not None:
        with e.b.when(e.b.truth(e.b.load(e.area(offset + SPENT))), likely=False):
            leave(e)
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
    """Emit *body* as a separate function; ``call(name, frame)`` emits the helper call that runs it.

    A ``return`` in the body also returns from the function around the loop.
    """
    program = e.program
    name = program.name("loop")
    function = e.module.function(name, parameters, span)
    inner = Emitter(program, function, span, e.depth + 1, FRAME, leave=Emitter.leave_loop_body, outer=e)
    inner.loops.append(Loop(None, None))
    inner.part = part
    flag, _ = e.returned
    body(inner)
    inner.b.ret(0)
    if inner.inner_returned:
        e.b.store(0, e.area(flag))
    call(name, e.frame)
    if inner.inner_returned:
        _leave_too(e, flag)


def in_function(e: Emitter, span: Span, body: Callable[[Emitter], None]) -> None:
    """Emit *body* as a separate function, and call it once."""
    with_callback(e, span, ("*frame",), body, lambda name, frame: e.b.call(name, [frame]), part=True)


def _leave_too(e: Emitter, flag: int) -> None:
    """After a loop, return from the function if the loop body has returned."""
    with e.b.when(e.b.truth(e.b.load(e.area(flag))), likely=False):
        e.leave_again()
