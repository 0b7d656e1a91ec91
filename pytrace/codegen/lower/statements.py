"""Lowering of statements, one function for each node class."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytrace.base.dispatch import by_class, on
from pytrace.codegen.analysis.aliasing import overlaps
from pytrace.codegen.emit import loops, memory
from pytrace.codegen.emit.emitter import Emitter, Loop
from pytrace.codegen.ir.ir_values import Number
from pytrace.codegen.ir.operands import Operand, Scalar
from pytrace.codegen.lower import aggregates, for_loops, map_access, maps, operators
from pytrace.codegen.lower.expressions import store_variable
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import VOID, Pointer, Type, Void
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.compile_time_facts import Signedness
from pytrace.frontend.ast.typed_program import MapInfo
from pytrace.frontend.ast.visitor import walk


def block(e: Emitter, node: nodes.Block, type_: Type = VOID) -> Operand | None:
    """Emit a block. Returns its value if *type_* is not void."""
    for segment in e.program.plan.segments(node):
        if segment.apart:
            _apart(e, segment.statements)
        else:
            for statement in segment.statements:
                run(e, statement)
    if node.value is None or node.value in e.checked.dead or e.b.closed:
        return None
    if isinstance(type_, Void):
        with e.temporaries():
            e.value(node.value)
        return None
    return e.value(node.value)


def _apart(e: Emitter, statements: tuple[nodes.Stmt, ...]) -> None:
    """Emit statements as a separate function."""
    alive = [statement for statement in statements if statement not in e.checked.dead]
    if not alive or e.b.closed:
        return

    def body(inner: Emitter) -> None:
        for statement in alive:
            run(inner, statement)

    e.set_location(alive[0].span)
    loops.in_function(e, alive[0].span, body)


def after_predicates(e: Emitter, body: nodes.Block) -> nodes.Block:
    """End the program unless the condition around the whole *body* holds. Returns the block that is left to emit."""
    while (node := _whole(e, body)) is not None:
        e.set_location(node.span)
        with e.temporaries():
            condition = memory.truth(e, e.value(node.condition))
        e.end_early(condition)
        body = node.then
    return body


def _whole(e: Emitter, body: nodes.Block) -> nodes.If | None:
    """The only statement of a body, if it is an ``if`` with a run-time condition that uses no variables; else None."""
    plan = e.program.plan
    parts = [*(item.value for item in body.statements if isinstance(item, nodes.ExprStmt)), body.value]
    parts_present = [item for item in parts if item is not None]
    if len(body.statements) + (body.value is not None) != 1 or len(parts_present) != 1 or body in plan.blocks:
        return None
    node = parts_present[0]
    if not isinstance(node, nodes.If) or node.other is not None or node in plan.chains or node in e.checked.dead:
        return None
    constant = node.condition in e.checked.constants or not isinstance(e.checked.types.get(node, VOID), Void)
    return None if constant or any(isinstance(item, nodes.Variable) for item in walk(node.condition)) else node


def run(e: Emitter, node: nodes.Stmt) -> None:
    """Emit a statement, unless it is unreachable."""
    if node in e.checked.dead or e.b.closed:
        return
    emit = _EMIT.get(type(node))
    if emit is None:
        raise InternalError(f"no code for {type(node).__name__}")
    e.set_location(node.span)
    with e.temporaries():
        emit(e, node)


def _expression(e: Emitter, node: nodes.ExprStmt) -> None:
    e.value(node.value)


def _discard(e: Emitter, node: nodes.Discard) -> None:
    e.value(node.value)


def _let(e: Emitter, node: nodes.Let) -> None:
    info = e.checked.variables[node.variable]
    if node.value is not None:
        store_variable(e, node.variable, e.value(node.value))
    elif info.type.scalar:
        store_variable(e, node.variable, Scalar(0, info.type))
    else:
        memory.zero(e, e.variable_pointer(info), info.type.size)


def _assign(e: Emitter, node: nodes.Assign) -> None:
    if node.operator == "=":
        _plain_assign(e, node)
        return
    operator = node.operator[:-1]
    target, type_ = node.target, _slot_type(e, node.target)
    by = e.number(node.value)
    if isinstance(type_, Pointer) and operator in "+-":
        by = operators.scaled(e, by, type_)
    if isinstance(target, nodes.MapRef | nodes.MapIndex) and maps.atomic(type_):
        step, change = ("+", e.b.sub(0, by)) if operator == "-" else (operator, by)
        if step in maps.ATOMIC:
            maps.change(e, target, step, change, type_)
            return
    signed = e.checked.fact(node, Signedness).signed

    def new(old: Number) -> Scalar:
        return Scalar(memory.fit(e, operators.arithmetic(e, node, operator, old, by, signed), type_), type_)

    if isinstance(target, nodes.MapIndex):
        maps.recompute(e, target, new)
    else:
        _store(e, target, new(e.number(target)))


def _slot_type(e: Emitter, target: nodes.Expr) -> Type:
    if isinstance(target, nodes.Variable):
        return e.checked.variables[target].type
    info: MapInfo = map_access.info_of(e, target)[0]
    return info.value


def _plain_assign(e: Emitter, node: nodes.Assign) -> None:
    target = node.target
    if isinstance(target, nodes.MapRef | nodes.MapIndex):
        info = map_access.info_of(e, target)[0]
        if info.value.aggregate:
            _assign_aggregate(e, target, node.value)
            return
    operand = e.value(node.value)
    if not isinstance(target, nodes.MapIndex) and not operand.type.scalar and overlaps(e.checked, node.value, target):
        operand = memory.detached(e, operand, _slot_type(e, target))
    _store(e, target, operand)


def _assign_aggregate(e: Emitter, target: nodes.MapRef | nodes.MapIndex, value: nodes.Expr) -> None:
    """``@m = count()``; the call may be the value of a block."""
    while isinstance(value, nodes.BlockExpr) and value.block.value is not None:
        for statement in value.block.statements:
            run(e, statement)
        if e.b.closed:
            return
        value = value.block.value
    if not isinstance(value, nodes.Call | nodes.Identifier):
        raise InternalError("an aggregate is assigned by its function")
    aggregates.assign(e, target, value)


def _store(e: Emitter, target: nodes.Expr, operand: Operand) -> None:
    if isinstance(target, nodes.MapRef | nodes.MapIndex):
        maps.assign(e, target, operand)
    else:
        store_variable(e, target, operand)


def _unroll(e: Emitter, node: nodes.Unroll) -> None:
    rounds = int(e.checked.constants[node.count])
    if node in e.program.plan.loops:
        loops.run(e, node.span, rounds, lambda inner, _index: _body(inner, node.body))
        return
    done = e.b.block()
    for _ in range(rounds):
        again = e.b.block()
        e.loops.append(Loop(done, again))
        block(e, node.body)
        e.loops.pop()
        e.b.jump(again)
        e.b.start(again)
    e.b.jump(done)
    e.b.start(done)


def _body(e: Emitter, node: nodes.Block) -> None:
    block(e, node)


def _break(e: Emitter, _node: nodes.Break) -> None:
    loops.leave(e)


def _continue(e: Emitter, _node: nodes.Continue) -> None:
    loop = e.loops[-1]
    if loop.again is not None:
        e.b.jump(loop.again)
    else:
        e.b.ret(0)


def _return(e: Emitter, node: nodes.Return) -> None:
    e.leave(e.value(node.value) if node.value is not None else None)


_EMIT: Mapping[type[nodes.Stmt], Callable[[Emitter, nodes.Stmt], None]] = by_class(
    on(nodes.ExprStmt, _expression),
    on(nodes.Discard, _discard),
    on(nodes.Let, _let),
    on(nodes.Assign, _assign),
    on(nodes.For, for_loops.for_each),
    on(nodes.While, for_loops.while_true),
    on(nodes.Unroll, _unroll),
    on(nodes.Break, _break),
    on(nodes.Continue, _continue),
    on(nodes.Return, _return),
)
