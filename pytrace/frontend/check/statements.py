"""Rules of statements, blocks and assignments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import msgspec
from msgspec.structs import replace

from pytrace.base.dispatch import handles, methods
from pytrace.core.builtins import Builtin, Mode, builtin
from pytrace.core.source import Span
from pytrace.core.types import INT64, VOID, Bool, Int, Stats, String, Tuple, Type, Void
from pytrace.frontend.check.calls import Calls
from pytrace.frontend.check.checker import NEVER_REACHED, TAKEN_OUT, Checker, MapState, VariableState
from pytrace.frontend.check.conversions import UNKNOWN, Flexible, Unknown, fits, is_integer, settle
from pytrace.frontend.check.expressions import Expressions, Operators
from pytrace.frontend.check.maps import Maps, key_names, read_type
from pytrace.frontend.check.members import TypeNames
from pytrace.frontend.syntax import nodes


def _let_head(node: nodes.Let) -> Span:
    """The ``let $x`` of a declaration; the whole declaration if the variable is the argument of a macro."""
    inner = node.variable.span
    if inner.source is not node.span.source or not node.span.start <= inner.start < inner.end <= node.span.end:
        return node.span
    return replace(node.span, end=inner.end)


def _keep_names(state: VariableState, value: nodes.Expr | None) -> None:
    if isinstance(value, nodes.TupleLiteral):
        state.members = key_names((value,))


_MAX_UNROLL = 100


def flexible_string(type_: Type) -> bool:
    """True for a declared ``string`` without capacity, which takes its size from the values."""
    return isinstance(type_, String) and type_.capacity == 0


class _Effects(msgspec.Struct, eq=False):
    """Rules of expressions whose value is not used."""

    statements: Statements
    checker: Checker

    def unused(self, node: nodes.Expr) -> None:
        """Any other expression: its value should be used."""
        self.checker.value(node)
        if not isinstance(self.checker.program.types[node], Unknown):
            hints = ["write _ = … to discard it explicitly"]
            self.checker.warn("the value of this is not used", node.span, hints=hints)

    @handles(nodes.Call)
    def call(self, node: nodes.Call) -> None:
        """``name(args);``."""
        self.checker.program.types[node] = VOID
        type_ = self.statements.calls.call(node)
        self.checker.program.types[node] = type_
        row = self.checker.program.calls.get(node)
        if isinstance(row, Builtin) and row.mode is Mode.COMPILE and type_ == VOID:
            # static_assert() and the like have been evaluated.
            self.checker.program.dead.add(node)
        self.statements.calls.warn_discarded(node, type_)

    @handles(nodes.Identifier)
    def name(self, node: nodes.Identifier) -> None:
        """``name;``."""
        self.checker.program.types[node] = VOID
        type_ = self.statements.expressions.identifier(node)
        self.checker.program.types[node] = type_
        self.statements.calls.warn_discarded(node, type_)

    @handles(nodes.Ternary)
    def ternary(self, node: nodes.Ternary) -> None:
        """``condition ? a : b;``."""
        self.checker.program.types[node] = VOID
        decided = self.checker.condition(node.condition)
        for branch, runs in ((node.then, decided is not False), (node.other, decided is not True)):
            if branch is not None and runs:
                self.statements.effect(branch)
            elif branch is not None:
                self.checker.check_removed(NEVER_REACHED, partial(self.statements.effect, branch))

    @handles(nodes.If)
    def condition(self, node: nodes.If) -> None:
        """``if``."""
        self.checker.program.types[node] = VOID
        self.statements.check_if(node, wanted=False)

    @handles(nodes.BlockExpr)
    def block(self, node: nodes.BlockExpr) -> None:
        """``{ … }``."""
        self.checker.program.types[node] = VOID
        self.statements.check_block(node.block, wanted=False)

    @handles(nodes.Unary)
    def unary(self, node: nodes.Unary) -> None:
        """``$n++;``, whose value need not be used."""
        if node.operator in ("++", "--"):
            self.checker.value(node)
        else:
            self.unused(node)


class Statements(msgspec.Struct, eq=False):
    """Rules of statements, blocks and assignments."""

    checker: Checker
    maps: Maps
    type_names: TypeNames
    calls: Calls
    expressions: Expressions
    operators: Operators

    @handles(nodes.If)
    def if_value(self, node: nodes.If) -> Type:
        """``if`` as a value."""
        return self.check_if(node, wanted=True)

    @handles(nodes.BlockExpr)
    def block_value(self, node: nodes.BlockExpr) -> Type:
        """``{ …; value }``."""
        type_ = self.check_block(node.block, wanted=True)
        known = self.checker.constant(node.block.value) if node.block.value is not None else None
        if known is not None and not node.block.statements:
            self.checker.set_constant(node, known)
        return type_

    # ------------------------------------------------------------------------------------------ variables

    @handles(nodes.Let)
    def let(self, node: nodes.Let) -> None:
        """``let $x: T = value``."""
        type_ = self.type_names.resolve(node.type) if node.type is not None else None
        value_type = self.checker.value(node.value) if node.value is not None else None
        state = self.checker.declare_new(node.variable, _let_head(node), declared=True)
        _keep_names(state, node.value)
        if type_ is not None and (type_.aggregate or isinstance(type_, Void | Stats)):
            self.checker.error(f"a variable cannot be {type_}", node.span)
            return
        if isinstance(type_, Unknown):
            state.assigned = True
            return
        if type_ is not None and flexible_string(type_):
            # The values that are assigned determine its capacity; until then it is an empty string.
            state.slot.takes(String(1), node.span)
        elif type_ is not None:
            state.slot.fixed = type_
        if value_type is None:
            return
        if value_type.aggregate or isinstance(value_type, Stats):
            self.checker.error(f"{settle(value_type)} cannot be stored in a variable", node.span)
            return
        if type_ is not None and flexible_string(type_) and not isinstance(value_type, String | Unknown):
            self.checker.error(f"${state.name} is a string, this is {settle(value_type)}", node.span)
            return
        self.checker.put(state, value_type, node.span, known=self._is_constant(node.value))

    def _is_constant(self, value: nodes.Expr | None) -> bool:
        return value is not None and self.checker.constant(value) is not None

    @handles(nodes.Assign)
    def assign(self, node: nodes.Assign) -> None:
        """``target op value``."""
        target = node.target
        if isinstance(target, nodes.Variable):
            self._assign_variable(node, target)
        elif isinstance(target, nodes.MapRef | nodes.MapIndex):
            self._assign_map(node, target)
        else:
            self.checker.value(node.value)
            self.checker.error("only variables and maps can be assigned to", target.span)

    def _assign_variable(self, node: nodes.Assign, target: nodes.Variable) -> None:
        value_type = self.checker.value(node.value)
        state = self.checker.scope.find(target.name)
        if value_type.aggregate or isinstance(value_type, Stats):
            self.checker.error(f"{settle(value_type)} cannot be stored in a variable", node.value.span)
            return
        if node.operator != "=":
            current = self.checker.value(target)
            if state is None:
                return
            stored = self.operators.compound(node, current, value_type)
            fixed = state.slot.fixed
            if isinstance(fixed, Int) and is_integer(stored):
                # ``$x += 1`` on a declared variable wraps around as in C.
                stored = fixed
            self.checker.put(state, stored, node.span)
            return
        if state is None:
            state = self.checker.declare(target, node.span)
        self.checker.put(state, value_type, node.span, known=self._is_constant(node.value))
        self.checker.bind(target, state)
        _keep_names(state, node.value)

    # ------------------------------------------------------------------------------------------ maps

    def _assign_map(self, node: nodes.Assign, target: nodes.MapRef | nodes.MapIndex) -> None:
        if isinstance(target, nodes.MapRef):
            state = self.maps.use_scalar(target)
        else:
            state = self.maps.use_keyed(target)
        call = _aggregate_call(node.value)
        if call is not None:
            self._assign_aggregate(node, call, target, state)
            return
        value_type = self.checker.value(node.value)
        if state is None:
            return
        if node.operator != "=":
            current = state.value.type
            if current.aggregate:
                self.checker.error(f"{state.name} is {current}, which only its function updates", node.span)
                return
            value_type = self.operators.compound(node, current, value_type)
        elif self._report_copy(node, state):
            return
        if isinstance(value_type, Stats):
            self.checker.error(f"{value_type} cannot be stored", node.span)
            return
        self.checker.put_map(state.name, state.value, value_type, node.span, "value")
        self.checker.program.types[target] = state.value.type

    def _assign_aggregate(
        self,
        node: nodes.Assign,
        call: nodes.Expr,
        target: nodes.MapRef | nodes.MapIndex,
        state: MapState | None,
    ) -> None:
        around, self.checker.aggregate = self.checker.aggregate, call
        type_ = self.checker.value(node.value)
        self.checker.aggregate = around
        if state is None:
            return
        if node.operator != "=":
            self.checker.error(f"{settle(type_)} can only be assigned with =", node.span)
            return
        self.checker.put_map(state.name, state.value, type_, node.value.span, "value")
        self.checker.program.types[target] = state.value.type

    def _report_copy(self, node: nodes.Assign, state: MapState) -> bool:
        """Refuse ``@a = @b`` when @b is an aggregate and @a does not hold integers anyway."""
        value = node.value
        if not isinstance(value, nodes.MapRef | nodes.MapIndex):
            return False
        name = value.name if isinstance(value, nodes.MapRef) else value.map.name
        source = self.checker.maps[name].value.type
        if not source.aggregate or isinstance(state.value.type, Int | Flexible | Bool):
            return False
        if self.checker.final or not isinstance(state.value.type, Unknown):
            signed = read_type(source)
            self.checker.error(
                f"{name} is {source}, which cannot be copied",
                node.span,
                hints=[f"store its present value: ({signed}){value.span.text}"] if isinstance(signed, Int) else [],
            )
        return True

    # ------------------------------------------------------------------------------------------ blocks

    def check_block(self, block: nodes.Block, *, wanted: bool) -> Type:
        """Check a block in a new scope. Returns the type of its value if that is *wanted*, else VOID."""
        with self.checker.block():
            return self.check_body(block, wanted=wanted)

    def check_body(self, block: nodes.Block, *, wanted: bool) -> Type:
        """Like :func:`check_block`, in the current scope."""
        for index, statement in enumerate(block.statements):
            self.check_statement(statement)
            if self._leaves_block(statement):
                rest: list[nodes.Stmt | nodes.Expr] = list(block.statements[index + 1 :])
                if block.value is not None:
                    rest.append(block.value)
                if rest:
                    self.checker.warn("unreachable code", rest[0].span)
                    self.checker.program.dead.update(rest)
                    self._check_unreached(rest)
                return UNKNOWN if wanted else VOID
        if block.value is None:
            return self.checker.error("this block has no value at its end", block.span) if wanted else VOID
        if not wanted:
            self.effect(block.value)
            return VOID
        return self.checker.value(block.value)

    def _check_unreached(self, rest: list[nodes.Stmt | nodes.Expr]) -> None:
        def check() -> None:
            with self.checker.block():
                for item in rest:
                    if isinstance(item, nodes.Stmt):
                        self.check_statement(item)
                    else:
                        self.effect(item)

        self.checker.check_removed(NEVER_REACHED, check)

    def _leaves_block(self, statement: nodes.Stmt) -> bool:
        if isinstance(statement, nodes.Return | nodes.Break | nodes.Continue):
            return True
        if not isinstance(statement, nodes.ExprStmt):
            return False
        row = self.checker.program.calls.get(statement.value)
        return isinstance(row, Builtin) and row.name == "exit"

    def check_statement(self, node: nodes.Stmt) -> None:
        """Check one statement."""
        methods(Statements)[type(node)](self, node)

    # ------------------------------------------------------------------------------------------ expression statements

    @handles(nodes.ExprStmt)
    def _expression(self, node: nodes.ExprStmt) -> None:
        self.effect(node.value)
        if node.value in self.checker.program.dead:
            self.checker.program.dead.add(node)

    def effect(self, node: nodes.Expr) -> None:
        """Check an expression statement."""
        rule = methods(_Effects).get(type(node), _Effects.unused)
        rule(_Effects(self, self.checker), node)

    # ------------------------------------------------------------------------------------------ if

    def check_if(self, node: nodes.If, *, wanted: bool) -> Type:
        """``if``, as a statement or (*wanted*) as a value."""
        decided = self.checker.condition(node.condition)
        if node.comptime and decided is None:
            if not isinstance(self.checker.program.types[node.condition], Unknown):
                hints = self.checker.constant_hints(node.condition)
                self.checker.error("this condition cannot be decided at compile time", node.condition.span, hints=hints)
            return UNKNOWN if wanted else VOID
        if decided is not None:
            return self._decided_if(node, decided=decided, wanted=wanted)
        then = self.check_block(node.then, wanted=wanted)
        if node.other is None:
            return self.checker.error("an if without else has no value", node.span) if wanted else VOID
        other = self._branch(node.other, wanted=wanted)
        if not wanted:
            return VOID
        return self.expressions.common_type(node, (node.then.value or node.then, then), (node.other, other))

    def _decided_if(self, node: nodes.If, *, decided: bool, wanted: bool) -> Type:
        chosen, left = (node.then, node.other) if decided else (node.other, node.then)
        if left is not None:
            self.checker.check_removed(
                TAKEN_OUT if node.comptime else NEVER_REACHED, partial(self._branch, left, wanted=wanted)
            )
        if chosen is None:
            return self.checker.error("this if has no value: its condition is false", node.span) if wanted else VOID
        type_ = self._branch(chosen, wanted=wanted)
        if wanted and isinstance(chosen, nodes.Block) and not chosen.statements and chosen.value is not None:
            value = self.checker.constant(chosen.value)
            if value is not None:
                self.checker.set_constant(node, value)
        return type_

    def _branch(self, node: nodes.Block | nodes.If, *, wanted: bool) -> Type:
        if isinstance(node, nodes.Block):
            return self.check_block(node, wanted=wanted)
        type_ = self.check_if(node, wanted=wanted)
        self.checker.program.types[node] = type_
        return type_

    # ------------------------------------------------------------------------------------------ loops

    @contextmanager
    def _loop(self, *, callback: bool) -> Iterator[None]:
        self.checker.loops += 1
        self.checker.map_loops += int(callback)
        try:
            yield
        finally:
            self.checker.loops -= 1
            self.checker.map_loops -= int(callback)

    @handles(nodes.For)
    def _for(self, node: nodes.For) -> None:
        if isinstance(node.source, nodes.Range):
            loop_type = self._range_type(node.source)
        elif isinstance(node.source, nodes.MapRef):
            loop_type = self._pair_type(node.source)
        else:
            loop_type = self.checker.error("for iterates over a map or a range", node.source.span)
        with self.checker.block():
            state = self.checker.declare_new(node.variable, node.variable.span, loop=True)
            self.checker.put(state, loop_type, node.variable.span)
            self.checker.bind(node.variable, state)
            with self._loop(callback=True):
                self.check_block(node.body, wanted=False)

    def _range_type(self, node: nodes.Range) -> Type:
        for end in (node.start, node.stop):
            self.checker.integer(end, "a bound of a range")
        return INT64

    def _pair_type(self, node: nodes.MapRef) -> Type:
        state = self.checker.map(node)
        if state.keyed is False:
            notes = [("used without key here", state.keyed_at)] if state.keyed_at is not None else []
            return self.checker.error(f"{node.name} has no keys to iterate over", node.span, notes=notes)
        if not self.checker.kernel.feature("for_each_map_elem"):
            hints = ["Linux 5.13 can (bpf_for_each_map_elem); print() shows all keys of a map"]
            self.checker.error("this kernel cannot iterate over maps in programs", node.span, hints=hints, kernel=True)
        key, value = state.key.type, state.value.type
        if isinstance(key, Unknown) or isinstance(value, Unknown):
            if self.checker.final:
                return self.checker.undefined_map(state, node.span)
            return UNKNOWN
        read = read_type(value)
        if read is None or isinstance(read, Stats):
            return self.checker.error(f"a loop cannot iterate over a map of {value}", node.span)
        self.checker.program.types[node] = value
        return Tuple((key, read))

    @handles(nodes.While)
    def _while(self, node: nodes.While) -> None:
        self.checker.warn("while is deprecated", node.span, hints=["use for ($i : 0..N)"])
        self.checker.condition(node.condition)
        with self._loop(callback=False):
            self.check_block(node.body, wanted=False)

    @handles(nodes.Unroll)
    def _unroll(self, node: nodes.Unroll) -> None:
        count = self.checker.constant_integer(node.count, "the number of iterations")
        if count is not None and not 1 <= count <= _MAX_UNROLL:
            self.checker.error(f"unroll repeats 1 to {_MAX_UNROLL} times, not {count}", node.count.span)
        with self._loop(callback=False):
            self.check_block(node.body, wanted=False)

    @handles(nodes.Break, nodes.Continue)
    def _jump(self, node: nodes.Break | nodes.Continue) -> None:
        if not self.checker.loops:
            word = "break" if isinstance(node, nodes.Break) else "continue"
            self.checker.error(f"{word} outside a loop", node.span)

    @handles(nodes.Return)
    def _return(self, node: nodes.Return) -> None:
        type_ = self.checker.value(node.value) if node.value is not None else VOID
        if isinstance(type_, Unknown):
            return
        if self.checker.function is not None:
            wanted = self.checker.function.result
            if type_ != wanted and not (type_ != VOID and wanted != VOID and fits(type_, wanted)):
                notes = [("declared here", self.checker.function.span)]
                message = f"{self.checker.function.name}() returns {wanted}, this is {settle(type_)}"
                self.checker.error(message, node.span, notes=notes)
        elif type_ != VOID and not is_integer(type_) and not isinstance(type_, Bool):
            self.checker.error(f"a probe returns an integer, not {settle(type_)}", node.span)

    @handles(nodes.Discard)
    def _discard(self, node: nodes.Discard) -> None:
        self.checker.value(node.value)

    @handles(nodes.CallCount)
    def _call_count(self, node: nodes.CallCount) -> None:
        """Nothing to check: a pass made it."""

    @handles(nodes.Import)
    def _import(self, node: nodes.Import) -> None:
        """Imports have been merged by an earlier pass."""
        self.checker.program.dead.add(node)


def _aggregate_call(node: nodes.Expr) -> nodes.Expr | None:
    """The call of ``count()``, ``sum(…)`` and the like that *node* is, or that the block *node* ends with."""
    while isinstance(node, nodes.BlockExpr) and node.block.value is not None:
        node = node.block.value
    row = builtin(node.name) if isinstance(node, nodes.Call | nodes.Identifier) else None
    return node if row is not None and row.family == "aggregate" else None
