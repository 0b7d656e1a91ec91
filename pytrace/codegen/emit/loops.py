"""Loops: the body becomes a callback of ``bpf_loop`` or ``bpf_for_each_map_elem``; bounds of loops.

A callback returns 0 to continue and 1 to end the loop.  ``return`` inside a body stores the result and a flag in
scratch memory and ends the loop, and the code after the loop returns as well.  On kernels without ``bpf_loop`` (before
5.17) the body is inline and the verifier follows each iteration, at most :data:`FOLLOWED` of them.

Loops that may exceed ``max_loop_iterations`` in one run of a program have a budget; those that certainly exceed it are
rejected.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytrace.codegen.emit.program import Loop, Part
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import FRAME, I64, Number, Ptr, global_pointer, number_parameter
from pytrace.core.diagnostics import PlacedError
from pytrace.core.source import Span
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import CheckedProgram, FunctionInfo, MapInfo

if TYPE_CHECKING:
    from pytrace.codegen.emit.emitter import Emitter


FOLLOWED = 1024
"""Maximum iterations of a loop that the verifier follows one by one."""

BUDGET = 16
"""Bytes of the budget of all loops: the number of iterations that is left, and whether it was exceeded."""

SPENT = 8
"""Offset of the latter."""

Body = Callable[["Emitter", I64], None]


Step = Callable[[I64, Callable[[], None]], None]

MOST_ITERATIONS = 1 << 23
"""``BPF_MAX_LOOPS`` of the kernel."""


def most_iterations(checked: CheckedProgram, block: nodes.Block) -> int:
    """The maximum number of iterations in one run of *block*, functions that it calls included."""
    totals: dict[FunctionInfo, int] = {}

    def of_node(node: nodes.Node) -> int:
        inside = sum(map(of_node, nodes.children(node)))
        if isinstance(node, nodes.For):
            return _most_turns(checked, node) * (1 + inside) + iterations_of_map(checked, node)
        if isinstance(node, nodes.While):
            return MOST_ITERATIONS * (1 + inside)
        if isinstance(node, nodes.Unroll):
            return _constant(checked, node.count) * inside
        target = checked.calls.get(node) if isinstance(node, nodes.Call) else None
        if isinstance(target, FunctionInfo):
            if target not in totals:
                totals[target] = of_node(target.body)
            return inside + totals[target]
        return inside

    return of_node(block)


def iterations_of_map(checked: CheckedProgram, node: nodes.For) -> int:
    """Fixed cost of a loop over a map, in iterations: the kernel visits each bucket, used or not."""
    info = _map_of(checked, node)
    return info.max_entries // 2 if info is not None else 0


def refuse_unbounded(checked: CheckedProgram, block: nodes.Block, limit: int) -> None:
    """Reject loops that make more than *limit* iterations in each run of *block*.

    Raises:
        PlacedError: a loop exceeds the limit.
    """
    for statement in _certain(block):
        if isinstance(statement, nodes.For):
            total, counts = _least(checked, statement)
            if total > limit and len(counts) > 1:
                product = " × ".join(f"{count:,}" for count in counts)
                raise PlacedError(
                    f"these loops make {product} iterations; all loops together may make {limit:,} when a probe fires",
                    Span(statement.span.source, statement.span.start, statement.body.span.start),
                    hints=(_raise_hint(total),),
                )


def _raise_hint(total: int | None = None) -> str:
    """How to raise the limit."""
    value = "N" if total is None else str(total)
    return f"raise it with config = {{ max_loop_iterations = {value} }}; the traced program waits while loops run"


def _most_turns(checked: CheckedProgram, node: nodes.For) -> int:
    """The maximum number of iterations of one ``for``."""
    if isinstance(node.source, nodes.Range):
        turns = _turns(checked, node.source)
        return MOST_ITERATIONS if turns is None else min(turns, MOST_ITERATIONS)
    info = _map_of(checked, node)
    return info.max_entries if info is not None else MOST_ITERATIONS


def _map_of(checked: CheckedProgram, node: nodes.For) -> MapInfo | None:
    return checked.maps.get(node.source.name) if isinstance(node.source, nodes.MapRef) else None


def _turns(checked: CheckedProgram, span: nodes.Range) -> int | None:
    """The number of iterations over a range of constants."""
    start, stop = (checked.constants.get(item) for item in (span.start, span.stop))
    return max(0, stop - start) if isinstance(start, int) and isinstance(stop, int) else None


def _constant(checked: CheckedProgram, node: nodes.Expr) -> int:
    value = checked.constants.get(node)
    return value if isinstance(value, int) else 1


def _least(checked: CheckedProgram, node: nodes.For) -> tuple[int, tuple[int, ...]]:
    """The minimum number of iterations of a ``for`` and the loops in it, and the counts of the longest nest."""
    turns = _turns(checked, node.source) if isinstance(node.source, nodes.Range) else None
    if turns is None or turns > MOST_ITERATIONS or _may_leave(node.body):
        return 0, ()
    inside = [_least(checked, item) for item in _certain(node.body) if isinstance(item, nodes.For)]
    counts = max((nest for _, nest in inside), key=len, default=())
    return turns * (1 + sum(total for total, _ in inside)), (turns, *counts)


def _certain(block: nodes.Block) -> tuple[nodes.Stmt, ...]:
    """The statements of a block that run unconditionally, those of nested blocks included."""
    statements: list[nodes.Stmt] = []
    for statement in block.statements:
        expression = statement.value if isinstance(statement, nodes.ExprStmt) else None
        statements.extend(_certain(expression.block) if isinstance(expression, nodes.BlockExpr) else (statement,))
    return tuple(statements)


def _may_leave(block: nodes.Block) -> bool:
    """Whether a loop with this body may end early or skip the end of the body."""
    return any(isinstance(node, nodes.Break | nodes.Continue | nodes.Return) for node in nodes.walk(block))


class Loops(Part):
    """Emits loops."""

    def leave(self) -> None:
        """End the innermost loop."""
        loop = self.e.open_loops[-1]
        if loop.leave is not None:
            self.b.jump(loop.leave)
        else:
            self.b.ret(1)

    def counted(self, count: Number, step: Step, most: int | None = None) -> None:
        """An inline loop, for short bodies: ``step(index, leave)`` for index 0 … count-1.

        *most* is the constant bound that the verifier sees when *count* is a register.
        """
        index = self.b.register()
        self.b.store(0, index)
        head, body, done = self.b.block(), self.b.block(), self.b.block()
        self.b.jump(head)
        self.b.start(head)
        current = self.b.load(index)
        self.b.branch(self.b.icmp("ult", current, count), body, done)
        self.b.start(body)
        if most is not None:
            self.b.jump_unless(self.b.icmp("ult", current, most), done)
        step(current, lambda: self.b.jump(done))
        self.b.store(self.b.add(current, 1), index)
        self.b.jump(head)
        self.b.start(done)

    def run(self, span: Span, count: Number, body: Body, *, loop: nodes.For | nodes.While | None = None) -> None:
        """Run *body* for index 0 … count - 1.

        The kernel rejects more than :data:`MOST` iterations, which is reported at the statement *loop*; so is a
        ``while`` that has not ended by then.
        """
        if self.script.kernel.feature("bpf_loop"):
            self.with_callback(
                span,
                ("index", "*frame"),
                lambda inner: inner.loops.turn(loop, lambda: body(inner, number_parameter("index"))),
                lambda name, frame: self._bpf_loop(count, name, frame, loop),
            )
            return

        def step(index: I64, leave: Callable[[], None]) -> None:
            done, again = self.b.block(), self.b.block()
            self.e.open_loops.append(Loop(done, again))
            body(self.e, index)
            self.e.open_loops.pop()
            self.b.jump(again)
            self.b.start(done)
            leave()
            self.b.start(again)

        self.counted(count, step, most=FOLLOWED)

    def _bpf_loop(self, count: Number, callback: str, frame: Ptr, loop: nodes.For | nodes.While | None) -> None:
        """Call ``bpf_loop``. Kernels since 6.8 reject a call with a constant count of 0: they remove only the
        callback.
        """
        with self.budget(loop, count) as (turns, spend):
            with self.b.when(self.b.icmp("ne", turns, 0)):
                # If the verifier inlines the helper, its error code is only 32 bits wide.
                rounds = self.b.fit(
                    self.b.helper(helpers.LOOP, turns, global_pointer(callback), frame, 0), 32, signed=True
                )
                spend(rounds)
                if isinstance(loop, nodes.While):
                    # The kernel ends the loop after this number of iterations.
                    rounds = self.b.select(self.b.icmp("eq", rounds, MOST_ITERATIONS), -errno.E2BIG, rounds)
                if loop is not None:
                    self.e.events.check_helper(loop, "bpf_loop", rounds)

    @contextmanager
    def budget(
        self, loop: nodes.For | nodes.While | None, count: Number
    ) -> Iterator[tuple[Number, Callable[[Number], None]]]:
        """Limit a loop of *count* iterations to the remaining budget of ``max_loop_iterations``.

        Yields the number of iterations to make, and a function to call with the number of iterations made
        (negative: an error). Exceeding the budget is reported at *loop*, once in each run of the program, and
        ends the enclosing loops as well (:func:`turn`), including those around a call of this function.
        """
        offset = self.program.loop_budget
        if loop is None or offset is None:
            yield count, lambda _rounds: None
            return
        left, rounds_made = self.b.load(self.e.area(offset)), self.b.register()
        short = self.b.icmp("ult", left, count)
        turns = self.b.select(short, left, count)
        self.b.store(0, rounds_made)

        def spend(rounds: Number) -> None:
            used = self.b.select(self.b.icmp("slt", rounds, 0), 0, rounds)
            self.b.store(used, rounds_made)
            # Nested loops have spent some of it, too.
            now = self.b.load(self.e.area(offset))
            self.b.store(self.b.select(self.b.icmp("ugt", now, used), self.b.sub(now, used), 0), self.e.area(offset))

        yield turns, spend
        spent = self.e.area(offset + SPENT)
        exceeded = self.b.both(short, self.b.icmp("eq", self.b.load(rounds_made), turns))
        on = self.b.block()
        self.b.jump_unless(exceeded, on, likely=False)
        self.b.jump_if(self.b.truth(self.b.load(spent)), on)
        self.e.events.failed_call(loop, "bpf_loop", -errno.ELOOP)
        self.b.store(0, self.e.area(offset))
        self.b.store(1, spent)
        if self.e.open_loops and not self.e.part:
            self.leave()
        self.b.jump(on)
        self.b.start(on)

    def turn(self, loop: nodes.For | nodes.While | None, body: Callable[[], None]) -> None:
        """One iteration of *loop*, which ends the loop instead if the budget of all loops is spent."""
        offset = self.program.loop_budget
        if loop is not None and offset is not None:
            with self.b.when(self.b.truth(self.b.load(self.e.area(offset + SPENT))), likely=False):
                self.leave()
        body()

    def with_callback(
        self,
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
        program = self.program
        name = program.name("loop")
        function = self.module.function(name, parameters, span)
        emitter = type(self.e)
        inner = emitter(program, function, span, self.e.depth + 1, FRAME, leave=emitter.leave_loop_body, outer=self.e)
        inner.open_loops.append(Loop(None, None))
        inner.part = part
        flag, _ = self.e.returned
        body(inner)
        inner.b.ret(0)
        if inner.inner_returned:
            self.b.store(0, self.e.area(flag))
        call(name, self.e.frame)
        if inner.inner_returned:
            self._leave_too(flag)

    def in_function(self, span: Span, body: Callable[[Emitter], None]) -> None:
        """Emit *body* as a separate function, and call it once."""
        self.with_callback(span, ("*frame",), body, lambda name, frame: self.b.call(name, [frame]), part=True)

    def _leave_too(self, flag: int) -> None:
        """After a loop, return from the function if the loop body has returned."""
        with self.b.when(self.b.truth(self.b.load(self.e.area(flag))), likely=False):
            self.e.leave_again()
