"""Rules of statements and blocks; ``assignments`` has those that store values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from pytrace.base.dispatch import by_class, on
from pytrace.core.builtin_row import Builtin, Mode
from pytrace.core.types import INT64, VOID, Bool, Stats, Tuple, Type
from pytrace.frontend.check.inference.checker import Checker
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, fits, is_integer, settle
from pytrace.frontend.check.inference.removed_code import NEVER_REACHED, TAKEN_OUT, look, undefined_map
from pytrace.frontend.check.inference.slots import declare_new, put
from pytrace.frontend.check.rules import assignments, calls, expressions
from pytrace.frontend.syntax import nodes

MAX_UNROLL = 100


# ---------------------------------------------------------------------------------------------- blocks


def check_block(checker: Checker, block: nodes.Block, *, wanted: bool) -> Type:
    """Check the statements of a block in a new scope. Returns the type of its value if that is *wanted*, else VOID."""
    with checker.block():
        return check_body(checker, block, wanted=wanted)


def check_body(checker: Checker, block: nodes.Block, *, wanted: bool) -> Type:
    """Like :func:`check_block`, in the current scope."""
    for index, statement in enumerate(block.statements):
        check_statement(checker, statement)
        if _ends(checker, statement):
            rest: list[nodes.Stmt | nodes.Expr] = list(block.statements[index + 1 :])
            if block.value is not None:
                rest.append(block.value)
            if rest:
                checker.warn("unreachable code", rest[0].span)
                checker.program.dead.update(rest)
                _unreached(checker, rest)
            return UNKNOWN if wanted else VOID
    if block.value is None:
        return checker.error("this block has no value at its end", block.span) if wanted else VOID
    if not wanted:
        effect(checker, block.value)
        return VOID
    return checker.value(block.value)


def _unreached(checker: Checker, rest: list[nodes.Stmt | nodes.Expr]) -> None:
    def check() -> None:
        with checker.block():
            for item in rest:
                if isinstance(item, nodes.Stmt):
                    check_statement(checker, item)
                else:
                    effect(checker, item)

    look(checker, NEVER_REACHED, check)


def _ends(checker: Checker, statement: nodes.Stmt) -> bool:
    if isinstance(statement, nodes.Return | nodes.Break | nodes.Continue):
        return True
    if not isinstance(statement, nodes.ExprStmt):
        return False
    row = checker.program.calls.get(statement.value)
    return isinstance(row, Builtin) and row.name == "exit"


def check_statement(checker: Checker, node: nodes.Stmt) -> None:
    """Check one statement."""
    STATEMENTS[type(node)](checker, node)


# ---------------------------------------------------------------------------------------------- expression statements


def _expression(checker: Checker, node: nodes.ExprStmt) -> None:
    effect(checker, node.value)
    if node.value in checker.program.dead:
        checker.program.dead.add(node)


def effect(checker: Checker, node: nodes.Expr) -> None:
    """Check an expression statement."""
    rule = _EFFECTS.get(type(node))
    if rule is not None:
        checker.program.types[node] = VOID
        rule(checker, node)
    elif isinstance(node, nodes.Unary) and node.operator in ("++", "--"):
        checker.value(node)
    else:
        checker.value(node)
        if not isinstance(checker.program.types[node], Unknown):
            checker.warn("the value of this is not used", node.span, hints=["write _ = … to discard it explicitly"])


def _call_effect(checker: Checker, node: nodes.Call) -> None:
    type_ = calls.call(checker, node)
    checker.program.types[node] = type_
    row = checker.program.calls.get(node)
    if isinstance(row, Builtin) and row.mode is Mode.COMPILE and type_ == VOID:
        # static_assert() and the like have been evaluated.
        checker.program.dead.add(node)
    calls.warn_discarded(checker, node, type_)


def _name_effect(checker: Checker, node: nodes.Identifier) -> None:
    type_ = expressions.identifier(checker, node)
    checker.program.types[node] = type_
    calls.warn_discarded(checker, node, type_)


def _ternary_effect(checker: Checker, node: nodes.Ternary) -> None:
    decided = checker.condition(node.condition)
    for branch, runs in ((node.then, decided is not False), (node.other, decided is not True)):
        if branch is not None and runs:
            effect(checker, branch)
        elif branch is not None:
            look(checker, NEVER_REACHED, partial(effect, checker, branch))


def _if_effect(checker: Checker, node: nodes.If) -> None:
    check_if(checker, node, wanted=False)


def _block_effect(checker: Checker, node: nodes.BlockExpr) -> None:
    check_block(checker, node.block, wanted=False)


_EFFECTS: Mapping[type[nodes.Expr], Callable[[Checker, nodes.Expr], None]] = by_class(
    on(nodes.Call, _call_effect),
    on(nodes.Identifier, _name_effect),
    on(nodes.Ternary, _ternary_effect),
    on(nodes.If, _if_effect),
    on(nodes.BlockExpr, _block_effect),
)


# ---------------------------------------------------------------------------------------------- if


def check_if(checker: Checker, node: nodes.If, *, wanted: bool) -> Type:
    """``if``, as a statement or (*wanted*) as a value."""
    decided = checker.condition(node.condition)
    if node.comptime and decided is None:
        if not isinstance(checker.program.types[node.condition], Unknown):
            hints = checker.constant_hints(node.condition)
            checker.error("this condition cannot be decided at compile time", node.condition.span, hints=hints)
        return UNKNOWN if wanted else VOID
    if decided is not None:
        return _decided_if(checker, node, decided=decided, wanted=wanted)
    then = check_block(checker, node.then, wanted=wanted)
    if node.other is None:
        return checker.error("an if without else has no value", node.span) if wanted else VOID
    other = _branch(checker, node.other, wanted=wanted)
    if not wanted:
        return VOID
    return expressions.common_type(checker, node, (node.then.value or node.then, then), (node.other, other))


def _decided_if(checker: Checker, node: nodes.If, *, decided: bool, wanted: bool) -> Type:
    chosen, left = (node.then, node.other) if decided else (node.other, node.then)
    if left is not None:
        look(checker, TAKEN_OUT if node.comptime else NEVER_REACHED, partial(_branch, checker, left, wanted=wanted))
    if chosen is None:
        return checker.error("this if has no value: its condition is false", node.span) if wanted else VOID
    type_ = _branch(checker, chosen, wanted=wanted)
    if wanted and isinstance(chosen, nodes.Block) and not chosen.statements and chosen.value is not None:
        value = checker.constant(chosen.value)
        if value is not None:
            checker.set_constant(node, value)
    return type_


def _branch(checker: Checker, node: nodes.Block | nodes.If, *, wanted: bool) -> Type:
    if isinstance(node, nodes.Block):
        return check_block(checker, node, wanted=wanted)
    type_ = check_if(checker, node, wanted=wanted)
    checker.program.types[node] = type_
    return type_


# ---------------------------------------------------------------------------------------------- loops


@contextmanager
def _loop(checker: Checker, *, callback: bool) -> Iterator[None]:
    checker.loops += 1
    checker.map_loops += int(callback)
    try:
        yield
    finally:
        checker.loops -= 1
        checker.map_loops -= int(callback)


def _for(checker: Checker, node: nodes.For) -> None:
    if isinstance(node.source, nodes.Range):
        loop_type = _range(checker, node.source)
    elif isinstance(node.source, nodes.MapRef):
        loop_type = _pairs(checker, node.source)
    else:
        loop_type = checker.error("for iterates over a map or a range", node.source.span)
    with checker.block():
        state = declare_new(checker, node.variable, node.variable.span, loop=True)
        put(checker, state, loop_type, node.variable.span)
        checker.bind(node.variable, state)
        with _loop(checker, callback=True):
            check_block(checker, node.body, wanted=False)


def _range(checker: Checker, node: nodes.Range) -> Type:
    for end in (node.start, node.stop):
        checker.integer(end, "a bound of a range")
    return INT64


def _pairs(checker: Checker, node: nodes.MapRef) -> Type:
    state = checker.map(node)
    if state.keyed is False:
        notes = [("used without key here", state.keyed_at)] if state.keyed_at is not None else []
        return checker.error(f"{node.name} has no keys to iterate over", node.span, notes=notes)
    if not checker.kernel.feature("for_each_map_elem"):
        hints = ["Linux 5.13 can (bpf_for_each_map_elem); print() shows all keys of a map"]
        checker.error("this kernel cannot iterate over maps in programs", node.span, hints=hints, kernel=True)
    key, value = state.key.type, state.value.type
    if isinstance(key, Unknown) or isinstance(value, Unknown):
        if checker.final:
            return undefined_map(checker, state, node.span)
        return UNKNOWN
    read = expressions.read_type(value)
    if read is None or isinstance(read, Stats):
        return checker.error(f"a loop cannot iterate over a map of {value}", node.span)
    checker.program.types[node] = value
    return Tuple((key, read))


def _while(checker: Checker, node: nodes.While) -> None:
    checker.warn("while is deprecated", node.span, hints=["use for ($i : 0..N)"])
    checker.condition(node.condition)
    with _loop(checker, callback=False):
        check_block(checker, node.body, wanted=False)


def _unroll(checker: Checker, node: nodes.Unroll) -> None:
    count = checker.constant_integer(node.count, "the number of iterations")
    if count is not None and not 1 <= count <= MAX_UNROLL:
        checker.error(f"unroll repeats 1 to {MAX_UNROLL} times, not {count}", node.count.span)
    with _loop(checker, callback=False):
        check_block(checker, node.body, wanted=False)


def _jump(checker: Checker, node: nodes.Break | nodes.Continue) -> None:
    if not checker.loops:
        word = "break" if isinstance(node, nodes.Break) else "continue"
        checker.error(f"{word} outside a loop", node.span)


def _return(checker: Checker, node: nodes.Return) -> None:
    type_ = checker.value(node.value) if node.value is not None else VOID
    if isinstance(type_, Unknown):
        return
    if checker.function is not None:
        wanted = checker.function.result
        if type_ != wanted and not (type_ != VOID and wanted != VOID and fits(type_, wanted)):
            notes = [("declared here", checker.function.span)]
            message = f"{checker.function.name}() returns {wanted}, this is {settle(type_)}"
            checker.error(message, node.span, notes=notes)
    elif type_ != VOID and not is_integer(type_) and not isinstance(type_, Bool):
        checker.error(f"a probe returns an integer, not {settle(type_)}", node.span)


def _discard(checker: Checker, node: nodes.Discard) -> None:
    checker.value(node.value)


def _import(checker: Checker, node: nodes.Import) -> None:
    """Imports have been merged by an earlier pass."""
    checker.program.dead.add(node)


STATEMENTS: Mapping[type[nodes.Stmt], Callable[[Checker, nodes.Stmt], None]] = by_class(
    on(nodes.ExprStmt, _expression),
    on(nodes.Let, assignments.let),
    on(nodes.Assign, assignments.assign),
    on(nodes.Discard, _discard),
    on(nodes.For, _for),
    on(nodes.While, _while),
    on(nodes.Unroll, _unroll),
    on(nodes.Break, _jump),
    on(nodes.Continue, _jump),
    on(nodes.Return, _return),
    on(nodes.Import, _import),
)
"""Rules by node class."""
