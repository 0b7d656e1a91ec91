"""Lowering of statements, one function for each node class; loops over ranges and maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from pytrace.base.dispatch import handlers, handles
from pytrace.codegen.emit import loops, memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Loop, Part
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import (
    I64,
    Memory,
    Number,
    Operand,
    Ptr,
    Scalar,
    global_pointer,
    pointer_parameter,
)
from pytrace.codegen.lower import maps
from pytrace.codegen.lower.expressions import Expressions
from pytrace.codegen.lower.map_access import Key, Weights
from pytrace.codegen.lower.maps import Aggregates
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import INT64, VOID, AddressSpace, Pointer, Tuple, Type, Void
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import (
    CheckedProgram,
    MapInfo,
    Signedness,
    VariableInfo,
)


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


class Statements(Part):
    """Lowers statements."""

    def __init__(self, e: Emitter, expressions: Expressions) -> None:
        super().__init__(e)
        self.expressions = expressions
        self.operators, self.maps = expressions.operators, expressions.maps
        self.aggregates, self.storage = self.maps.aggregates, self.maps.storage
        self._emit: Mapping[type[nodes.Stmt], Callable[[nodes.Stmt], None]] = handlers(self)

    def block(self, node: nodes.Block, type_: Type = VOID) -> Operand | None:
        """Emit a block. Returns its value if *type_* is not void."""
        for segment in self.program.plan.segments(node):
            if segment.apart:
                self._apart(segment.statements)
            else:
                for statement in segment.statements:
                    self.run(statement)
        if node.value is None or node.value in self.checked.dead or self.b.closed:
            return None
        if isinstance(type_, Void):
            with self.e.temporaries():
                self.e.value(node.value)
            return None
        return self.e.value(node.value)

    def _apart(self, statements: tuple[nodes.Stmt, ...]) -> None:
        """Emit statements as a separate function."""
        alive = [statement for statement in statements if statement not in self.checked.dead]
        if not alive or self.b.closed:
            return

        def body(inner: Emitter) -> None:
            for statement in alive:
                Statements(inner, Expressions(inner)).run(statement)

        self.e.set_location(alive[0].span)
        self.e.loops.in_function(alive[0].span, body)

    def after_predicates(self, body: nodes.Block) -> nodes.Block:
        """End the program unless the condition around the whole *body* holds. Returns the block that is left to
        emit.
        """
        while (node := self._whole(body)) is not None:
            self.e.set_location(node.span)
            with self.e.temporaries():
                condition = self.e.memory.truth(self.e.value(node.condition))
            self.e.end_early(condition)
            body = node.then
        return body

    def _whole(self, body: nodes.Block) -> nodes.If | None:
        """The only statement of a body, if it is an ``if`` with a run-time condition that uses no variables; else
        None.
        """
        plan = self.program.plan
        parts = [*(item.value for item in body.statements if isinstance(item, nodes.ExprStmt)), body.value]
        parts_present = [item for item in parts if item is not None]
        if len(body.statements) + (body.value is not None) != 1 or len(parts_present) != 1 or body in plan.blocks:
            return None
        node = parts_present[0]
        if not isinstance(node, nodes.If) or node.other is not None or node in plan.chains or node in self.checked.dead:
            return None
        constant = node.condition in self.checked.constants or not isinstance(self.checked.types.get(node, VOID), Void)
        return None if constant or any(isinstance(item, nodes.Variable) for item in walk(node.condition)) else node

    def run(self, node: nodes.Stmt) -> None:
        """Emit a statement, unless it is unreachable."""
        if node in self.checked.dead or self.b.closed:
            return
        emit = self._emit.get(type(node))
        if emit is None:
            raise InternalError(f"no code for {type(node).__name__}")
        self.e.set_location(node.span)
        with self.e.temporaries():
            emit(node)

    @handles(nodes.ExprStmt)
    def _expression(self, node: nodes.ExprStmt) -> None:
        self.e.value(node.value)

    @handles(nodes.Discard)
    def _discard(self, node: nodes.Discard) -> None:
        self.e.value(node.value)

    @handles(nodes.CallCount)
    def _call_count(self, node: nodes.CallCount) -> None:
        self.e.counter(node.what, self.script.map_indexes[node.table])

    @handles(nodes.Let)
    def _let(self, node: nodes.Let) -> None:
        info = self.checked.variables[node.variable]
        if node.value is not None:
            self.expressions.store_variable(node.variable, self.e.value(node.value))
        elif info.type.scalar:
            self.expressions.store_variable(node.variable, Scalar(0, info.type))
        else:
            self.e.memory.zero(self.e.variable_pointer(info), info.type.size)

    @handles(nodes.Assign)
    def _assign(self, node: nodes.Assign) -> None:
        if node.operator == "=":
            self._plain_assign(node)
            return
        operator = node.operator[:-1]
        target, type_ = node.target, self._slot_type(node.target)
        by = self.e.number(node.value)
        if isinstance(type_, Pointer) and operator in "+-":
            by = self.operators.scaled(by, type_)
        if isinstance(target, nodes.MapRef | nodes.MapIndex) and maps.atomic(type_):
            step, change = ("+", self.b.sub(0, by)) if operator == "-" else (operator, by)
            if step in maps.ATOMIC:
                self.maps.change(target, step, change, type_)
                return
        signed = self.checked.fact(node, Signedness).signed

        def new(old: Number) -> Scalar:
            return Scalar(self.e.memory.fit(self.operators.arithmetic(node, operator, old, by, signed), type_), type_)

        if isinstance(target, nodes.MapIndex):
            self.maps.recompute(target, new)
        else:
            self._store(target, new(self.e.number(target)))

    def _slot_type(self, target: nodes.Expr) -> Type:
        if isinstance(target, nodes.Variable):
            return self.checked.variables[target].type
        info: MapInfo = self.storage.info_of(target)[0]
        return info.value

    def _plain_assign(self, node: nodes.Assign) -> None:
        target = node.target
        if isinstance(target, nodes.MapRef | nodes.MapIndex):
            info = self.storage.info_of(target)[0]
            if info.value.aggregate:
                self._assign_aggregate(target, node.value)
                return
        operand = self.e.value(node.value)
        if (
            not isinstance(target, nodes.MapIndex)
            and not operand.type.scalar
            and overlaps(self.checked, node.value, target)
        ):
            operand = self.e.memory.detached(operand, self._slot_type(target))
        self._store(target, operand)

    def _assign_aggregate(self, target: nodes.MapRef | nodes.MapIndex, value: nodes.Expr) -> None:
        """``@m = count()``; the call may be the value of a block."""
        while isinstance(value, nodes.BlockExpr) and value.block.value is not None:
            for statement in value.block.statements:
                self.run(statement)
            if self.b.closed:
                return
            value = value.block.value
        if not isinstance(value, nodes.Call | nodes.Identifier):
            raise InternalError("an aggregate is assigned by its function")
        self.aggregates.assign(target, value)

    def _store(self, target: nodes.Expr, operand: Operand) -> None:
        if isinstance(target, nodes.MapRef | nodes.MapIndex):
            self.maps.assign(target, operand)
        else:
            self.expressions.store_variable(target, operand)

    @handles(nodes.Unroll)
    def _unroll(self, node: nodes.Unroll) -> None:
        rounds = int(self.checked.constants[node.count])
        if node in self.program.plan.loops:

            def body(inner: Emitter, _index: I64) -> None:
                inner.run_block(node.body)

            self.e.loops.run(node.span, rounds, body)
            return
        done = self.b.block()
        for _ in range(rounds):
            again = self.b.block()
            self.e.open_loops.append(Loop(done, again))
            self.block(node.body)
            self.e.open_loops.pop()
            self.b.jump(again)
            self.b.start(again)
        self.b.jump(done)
        self.b.start(done)

    @handles(nodes.Break)
    def _break(self, _node: nodes.Break) -> None:
        self.e.loops.leave()

    @handles(nodes.Continue)
    def _continue(self, _node: nodes.Continue) -> None:
        loop = self.e.open_loops[-1]
        if loop.again is not None:
            self.b.jump(loop.again)
        else:
            self.b.ret(0)

    @handles(nodes.Return)
    def _return(self, node: nodes.Return) -> None:
        self.e.leave(self.e.value(node.value) if node.value is not None else None)

    # ---------------------------------------------------------------------------------------------- loops

    @handles(nodes.For)
    def _for(self, node: nodes.For) -> None:
        """``for``: over a range or a map."""
        if isinstance(node.source, nodes.Range):
            self._for_range(node, node.source)
        else:
            self._for_map(node)

    def _for_range(self, node: nodes.For, span: nodes.Range) -> None:
        start, stop = self.e.number(span.start), self.e.number(span.stop)
        info = self.checked.variables[node.variable]
        first = self.e.reserve(8)
        self.b.store(start, self.e.area(first))
        # The verifier (seen in 6.18) removes the callback of a loop that it knows to run zero times, but not the
        # reference to it: for an empty range, branch around the loop.
        with self.b.when(self.b.icmp("slt", start, stop)):

            def body(inner: Emitter, index: I64) -> None:
                value = inner.b.add(inner.b.load(inner.area(first)), index)
                Statements(inner, Expressions(inner))._set(info, Scalar(inner.memory.fit(value, info.type), INT64))
                inner.run_block(node.body)

            self.e.loops.run(node.span, self.b.sub(stop, start), body, loop=node)

    def _set(self, info: VariableInfo, operand: Operand) -> None:
        place = self.e.variable(info)
        if place.register is not None:
            self.b.store(self.e.memory.number(operand), place.register)
        else:
            self.e.memory.write(operand, self.e.variable_pointer(info), info.type)

    @handles(nodes.While)
    def _while(self, node: nodes.While) -> None:
        """``while``: a loop with the maximum count, left once the condition is false."""

        def body(inner: Emitter, _index: I64) -> None:
            with inner.temporaries():
                condition = inner.memory.truth(inner.value(node.condition))
            with inner.b.unless(condition):
                inner.loops.leave()
            inner.run_block(node.body)

        self.e.loops.run(node.span, loops.MOST_ITERATIONS, body, loop=node)

    def _for_map(self, node: nodes.For) -> None:
        if not isinstance(node.source, nodes.Expr):
            raise InternalError("not a map")
        info, _ = self.storage.info_of(node.source)
        variable = self.checked.variables[node.variable]
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
                    value = Aggregates(inner).read(info, Key(pointer_parameter("key")), pair.members[1])
                inner.memory.write(value, value_place, pair.members[1], memory.natural(8, pair.offsets[1]))
            if node in self.checked.taking:
                key = pointer_parameter("key")
                Weights(inner).take(info.name, key, delete=True)
                inner.b.helper(helpers.MAP_DELETE_ELEM, pointer_parameter("map"), key)
            inner.run_block(node.body)

        # The number of keys is not known in advance: iteration over the last map is always completed.
        with self.e.loops.budget(node, 1) as (turns, spend):
            with self.b.when(self.b.icmp("ne", turns, 0)):
                self.e.loops.with_callback(
                    node.span,
                    ("*map", "*key", "*value", "*frame"),
                    lambda inner: inner.loops.turn(node, lambda: body(inner)),
                    lambda name, frame: spend(self._each(node, self.storage.map_symbol(info), name, frame)),
                )

    def _each(self, node: nodes.For, map_: Ptr, callback: str, frame: Ptr) -> I64:
        """Iterate over a map. Returns the number of keys plus the cost of empty buckets, in iterations."""
        keys = self.b.helper(helpers.FOR_EACH_MAP_ELEM, map_, global_pointer(callback), frame, 0)
        return self.b.add(keys, loops.iterations_of_map(self.checked, node))


class ScriptEmitter(Emitter):
    """Emits a function of the script: its statements and expressions."""

    @cached_property
    def statements(self) -> Statements:
        """The script's statements, and by them its expressions, lowered into this function."""
        return Statements(self, Expressions(self))

    def value(self, node: nodes.Expr) -> Operand:
        return self.statements.expressions.evaluate(node)

    def run_block(self, node: nodes.Block, type_: Type = VOID) -> Operand | None:
        return self.statements.block(node, type_)
