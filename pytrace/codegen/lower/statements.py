"""Lowering of statements, one function for each node class; loops over ranges and maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytrace.base.dispatch import by_class, on
from pytrace.codegen.emit import loops, memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Loop
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I64, Memory, Number, Operand, Ptr, Scalar, global_pointer, pointer_parameter
from pytrace.codegen.lower import aggregate_reading, aggregates, map_access, maps, operators
from pytrace.codegen.lower.expressions import store_variable
from pytrace.codegen.lower.map_access import Key
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import INT64, VOID, AddressSpace, Pointer, Tuple, Type, Void
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import CheckedProgram, MapInfo, Signedness, VariableInfo


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
    e.loops.in_function(alive[0].span, body)


def after_predicates(e: Emitter, body: nodes.Block) -> nodes.Block:
    """End the program unless the condition around the whole *body* holds. Returns the block that is left to emit."""
    while (node := _whole(e, body)) is not None:
        e.set_location(node.span)
        with e.temporaries():
            condition = e.memory.truth(e.value(node.condition))
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
        e.memory.zero(e.variable_pointer(info), info.type.size)


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
        return Scalar(e.memory.fit(operators.arithmetic(e, node, operator, old, by, signed), type_), type_)

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
        operand = e.memory.detached(operand, _slot_type(e, target))
    _store(e, target, operand)


def overlaps(checked: CheckedProgram, value: nodes.Expr, target: nodes.Expr) -> bool:
    """Whether *value* reads the variable or unkeyed map *target*, by name or possibly by address."""
    owner = _owner(checked, target)
    expressions = (node for node in walk(value) if isinstance(node, nodes.Expr))
    return any(_owner(checked, node) == owner or _is_script_pointer(checked, node) for node in expressions)


def _owner(checked: CheckedProgram, node: nodes.Expr) -> object:
    """The variable or map that a node refers to, or the node itself when it is not assignable."""
    if isinstance(node, nodes.Variable):
        return checked.variables.get(node, node)
    return node.name if isinstance(node, nodes.MapRef) else node


def _is_script_pointer(checked: CheckedProgram, node: nodes.Expr) -> bool:
    """Whether a node is the address of a variable or map."""
    type_ = checked.types.get(node)
    return isinstance(type_, Pointer) and type_.space is AddressSpace.BPF


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

        def body(inner: Emitter, _index: I64) -> None:
            block(inner, node.body)

        e.loops.run(node.span, rounds, body)
        return
    done = e.b.block()
    for _ in range(rounds):
        again = e.b.block()
        e.open_loops.append(Loop(done, again))
        block(e, node.body)
        e.open_loops.pop()
        e.b.jump(again)
        e.b.start(again)
    e.b.jump(done)
    e.b.start(done)


def _break(e: Emitter, _node: nodes.Break) -> None:
    e.loops.leave()


def _continue(e: Emitter, _node: nodes.Continue) -> None:
    loop = e.open_loops[-1]
    if loop.again is not None:
        e.b.jump(loop.again)
    else:
        e.b.ret(0)


def _return(e: Emitter, node: nodes.Return) -> None:
    e.leave(e.value(node.value) if node.value is not None else None)


# ---------------------------------------------------------------------------------------------- loops


def _for(e: Emitter, node: nodes.For) -> None:
    """``for``: over a range or a map."""
    if isinstance(node.source, nodes.Range):
        _for_range(e, node, node.source)
    else:
        _for_map(e, node)


def _for_range(e: Emitter, node: nodes.For, span: nodes.Range) -> None:
    start, stop = e.number(span.start), e.number(span.stop)
    info = e.checked.variables[node.variable]
    first = e.reserve(8)
    e.b.store(start, e.area(first))
    # The verifier (seen in 6.18) removes the callback of a loop that it knows to run zero times, but not the reference
    # to it: for an empty range, branch around the loop.
    with e.b.when(e.b.icmp("slt", start, stop)):

        def body(inner: Emitter, index: I64) -> None:
            value = inner.b.add(inner.b.load(inner.area(first)), index)
            _set(inner, info, Scalar(inner.memory.fit(value, info.type), INT64))
            block(inner, node.body)

        e.loops.run(node.span, e.b.sub(stop, start), body, loop=node)


def _set(e: Emitter, info: VariableInfo, operand: Operand) -> None:
    place = e.variable(info)
    if place.register is not None:
        e.b.store(e.memory.number(operand), place.register)
    else:
        e.memory.write(operand, e.variable_pointer(info), info.type)


def _while(e: Emitter, node: nodes.While) -> None:
    """``while``: a loop with the maximum count, left once the condition is false."""

    def body(inner: Emitter, _index: I64) -> None:
        with inner.temporaries():
            condition = inner.memory.truth(inner.value(node.condition))
        with inner.b.unless(condition):
            inner.loops.leave()
        block(inner, node.body)

    e.loops.run(node.span, loops.MOST_ITERATIONS, body, loop=node)


def _for_map(e: Emitter, node: nodes.For) -> None:
    if not isinstance(node.source, nodes.Expr):
        raise InternalError("not a map")
    info, _ = map_access.info_of(e, node.source)
    variable = e.checked.variables[node.variable]
    pair = variable.type
    if not isinstance(pair, Tuple) or info.key is None:
        raise InternalError("iteration over a map yields pairs")
    key_type = info.key

    def body(inner: Emitter) -> None:
        # bpf_for_each_hash_elem() calls it under the RCU lock.
        inner.atomic = True
        inner.variable(variable)
        pointer = inner.variable_pointer(variable)
        key_place, value_place = inner.b.offset(pointer, pair.offsets[0]), inner.b.offset(pointer, pair.offsets[1])
        inner.memory.zero(pointer, pair.size)
        inner.memory.write(Memory(pointer_parameter("key"), key_type), key_place, pair.members[0])
        with inner.temporaries():
            value: Operand = Memory(pointer_parameter("value"), info.value)
            if info.value.aggregate:
                value = aggregate_reading.read(inner, info, Key(pointer_parameter("key")), pair.members[1])
            inner.memory.write(value, value_place, pair.members[1], memory.natural(8, pair.offsets[1]))
        block(inner, node.body)

    # The number of keys is not known in advance: iteration over the last map is always completed.
    with e.loops.budget(node, 1) as (turns, spend):
        with e.b.when(e.b.icmp("ne", turns, 0)):
            e.loops.with_callback(
                node.span,
                ("*map", "*key", "*value", "*frame"),
                lambda inner: inner.loops.turn(node, lambda: body(inner)),
                lambda name, frame: spend(_each(e, node, map_access.map_symbol(e, info), name, frame)),
            )


def _each(e: Emitter, node: nodes.For, map_: Ptr, callback: str, frame: Ptr) -> I64:
    """Iterate over a map. Returns the number of keys plus the cost of empty buckets, in iterations."""
    keys = e.b.helper(helpers.FOR_EACH_MAP_ELEM, map_, global_pointer(callback), frame, 0)
    return e.b.add(keys, loops.iterations_of_map(e.checked, node))


_EMIT: Mapping[type[nodes.Stmt], Callable[[Emitter, nodes.Stmt], None]] = by_class(
    on(nodes.ExprStmt, _expression),
    on(nodes.Discard, _discard),
    on(nodes.Let, _let),
    on(nodes.Assign, _assign),
    on(nodes.For, _for),
    on(nodes.While, _while),
    on(nodes.Unroll, _unroll),
    on(nodes.Break, _break),
    on(nodes.Continue, _continue),
    on(nodes.Return, _return),
)
