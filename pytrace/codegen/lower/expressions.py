"""Lowering of expressions, one function for each node class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pytrace.base.dispatch import by_class, on
from pytrace.codegen.emit import comparison, events, memory
from pytrace.codegen.emit.bodies import Arm, Chain
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.values import I1, Memory, Nothing, Number, Operand, Parts, Remote, Scalar
from pytrace.codegen.lower import calls, maps, members, operators
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import UINT8, UINT64, VOID, Array, Bool, Float, Int, Pointer, String, Struct, Type, USym, Void
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import TypeDescription


def evaluate(e: Emitter, node: nodes.Expr) -> Operand:
    """The value of *node*."""
    checked = e.checked
    if node in checked.constants:
        return constant(e, checked.constants[node], checked.types[node])
    if node in checked.loaded:
        return e.load_time.operand(checked.loaded[node], checked.types[node])
    emit = _EMIT.get(type(node))
    if emit is None:
        raise InternalError(f"no code for {type(node).__name__}")
    saved, around = e.b.location, e.node
    e.set_location(node.span)
    e.node = node
    operand: Operand = emit(e, node)
    e.b.location, e.node = saved, around
    return operand


def constant(e: Emitter, value: int | bool | bytes, type_: Type) -> Operand:
    """A constant."""
    if isinstance(value, bytes):
        return Memory(e.module.constant(value[: type_.size].ljust(type_.size, b"\0")), type_)
    number = int(value)
    if number >= 1 << 63:
        number -= 1 << 64
    return Scalar(number, type_)


def _literal(e: Emitter, node: nodes.IntLiteral | nodes.BoolLiteral | nodes.StringLiteral) -> Operand:
    return constant(e, node.value, e.type(node))


def _fraction(e: Emitter, node: nodes.FloatLiteral) -> Operand:
    return Scalar(comparison.bits_of(node.value), e.type(node))


def _variable(e: Emitter, node: nodes.Variable) -> Operand:
    info = e.checked.variables[node]
    place = e.variable(info)
    if place.register is not None:
        return Scalar(e.b.load(place.register), info.type)
    pointer = e.variable_pointer(info)
    if info.type.scalar:
        type_ = info.type
        return Scalar(e.b.load(pointer, memory.bits(type_), memory.is_signed(type_), again=e.script.sparing), type_)
    return Memory(pointer, info.type)


def _unary(e: Emitter, node: nodes.Unary) -> Operand:
    return _UNARY[node.operator](e, node)


def _not(e: Emitter, node: nodes.Unary) -> Operand:
    zero = e.b.icmp("eq", e.number(node.operand), 0)
    return Scalar(e.b.number(zero), e.type(node))


def _negate(e: Emitter, node: nodes.Unary) -> Operand:
    type_ = e.type(node)
    if isinstance(type_, Float):
        return Scalar(e.floats.negated(e.value(node.operand)), type_)
    return Scalar(e.b.sub(0, e.number(node.operand)), e.type(node))


def _invert(e: Emitter, node: nodes.Unary) -> Operand:
    return Scalar(e.b.op("xor", e.number(node.operand), -1), e.type(node))


def _follow(e: Emitter, node: nodes.Unary) -> Operand:
    return members.follow(e, e.value(node.operand), e.type(node.operand), e.type(node))


def _address_of(e: Emitter, node: nodes.Unary) -> Operand:
    type_, operand = e.type(node), node.operand
    if isinstance(operand, nodes.Variable):
        pointer = e.variable_pointer(e.checked.variables[operand])
        return Scalar(e.b.address(pointer), type_, direct=True)
    if isinstance(operand, nodes.MapRef | nodes.MapIndex):
        # It may be null, and the verifier forbids arithmetic on such a pointer: convert it to a number.
        return Scalar(e.launder(e.b.address(maps.address(e, operand))), type_)
    value = e.value(operand)
    if isinstance(value, Remote):
        return Scalar(value.address, type_)
    return Scalar(e.b.address(e.place(value).pointer), type_)


def _step(e: Emitter, node: nodes.Unary) -> Operand:
    type_ = e.type(node)
    amount = type_.target.size or 1 if isinstance(type_, Pointer) else 1
    by = amount if node.operator == "++" else -amount
    if isinstance(node.operand, nodes.MapRef | nodes.MapIndex):
        return maps.step(e, node.operand, by, type_, node.postfix)
    old = e.number(node.operand)
    new = e.memory.fit(e.b.add(old, by), type_)
    store_variable(e, node.operand, Scalar(new, type_))
    return Scalar(old if node.postfix else new, type_)


_UNARY: dict[str, Callable[[Emitter, nodes.Unary], Operand]] = {
    "!": _not,
    "-": _negate,
    "~": _invert,
    "*": _follow,
    "&": _address_of,
    "++": _step,
    "--": _step,
}


def store_variable(e: Emitter, node: nodes.Expr, operand: Operand) -> None:
    """Assign to a variable."""
    if not isinstance(node, nodes.Variable):
        raise InternalError(f"cannot assign to {type(node).__name__}")
    info = e.checked.variables[node]
    place = e.variable(info)
    if place.register is not None:
        value = e.memory.convert(operand, info.type)
        e.b.store(e.memory.number(value), place.register)
        return
    e.memory.write(operand, e.variable_pointer(info), info.type)


def _ternary(e: Emitter, node: nodes.Ternary) -> Operand:
    constant = e.checked.constants.get(node.condition)
    if constant is not None:
        chosen = node.other if not constant else (node.then or node.condition)
        return e.memory.convert(e.value(chosen), e.type(node))
    if e.type(node).scalar and _continues(e, node, node.other):
        return _chain(e, node)
    first = e.value(node.condition)
    held = Scalar(e.memory.number(first), first.type) if node.then is None else None
    condition = e.b.truth(held.value) if held is not None else e.memory.truth(first)
    then = (lambda: held) if held is not None else (lambda: e.value(node.then) if node.then else None)
    return choose(e, condition, then, lambda: e.value(node.other), e.type(node))


def _continues(e: Emitter, node: nodes.Ternary, other: nodes.Expr) -> bool:
    """Whether *other*, of ``a ? b : other``, is another conditional of the same type."""
    return (
        isinstance(other, nodes.Ternary)
        and node.then is not None
        and other.then is not None
        and not {other, other.condition} & e.checked.constants.keys()
        and e.type(other) == e.type(node)
    )


def _chain(e: Emitter, node: nodes.Ternary) -> Operand:
    """``a ? b : c ? d : …`` with one join block for all branches: LLVM is slow with hundreds of nested ones."""
    type_, done = e.type(node), e.b.block()
    ways: list[tuple[Number, Block]] = []

    def meet(value: nodes.Expr) -> None:
        ways.append((e.memory.number(e.memory.convert(e.value(value), type_)), e.b.current))
        e.b.jump(done)

    link: nodes.Expr = node
    while isinstance(link, nodes.Ternary) and link.then is not None:
        with e.b.when(e.memory.truth(e.value(link.condition))):
            meet(link.then)
        if not _continues(e, link, link.other):
            break
        link = link.other
    meet(link.other if isinstance(link, nodes.Ternary) else link)
    e.b.start(done)
    return Scalar(e.b.phi(ways), type_)


def choose(
    e: Emitter,
    condition: I1,
    then: Callable[[], Operand | None],
    other: Callable[[], Operand | None],
    type_: Type,
) -> Operand:
    """The value of one of two branches, converted to *type_*; a branch that returns None does not reach its end."""
    first, second, done = e.b.block(), e.b.block(), e.b.block()
    target = None if type_.scalar or isinstance(type_, Void) else e.temporary(type_.size)
    e.b.branch(condition, first, second)
    ways: list[tuple[Number, Block]] = []
    for block, branch in ((first, then), (second, other)):
        e.b.start(block)
        operand = branch()
        if not e.b.closed:
            if target is not None and operand is not None:
                e.memory.write(operand, target, type_)
            elif type_.scalar and operand is not None:
                value = e.memory.number(e.memory.convert(operand, type_))
                ways.append((value, e.b.current))
            e.b.jump(done)
    e.b.start(done)
    if target is not None:
        return Memory(target, type_)
    if not type_.scalar:
        return Nothing(VOID)
    return Scalar(e.b.phi(ways) if ways else 0, type_)


def _if(e: Emitter, node: nodes.If) -> Operand:
    type_ = e.checked.types.get(node, VOID)
    chain = e.program.plan.chains.get(node)
    if chain is not None:
        _long_chain(e, node, chain)
        return Nothing(VOID)

    def run(block: nodes.Block | nodes.If | None) -> Operand | None:
        if isinstance(block, nodes.If):
            return e.value(block)
        return e.run_block(block, type_) if block is not None else None

    constant = e.checked.constants.get(node.condition)
    if constant is not None:
        return run(node.then if constant else node.other) or Nothing(VOID)
    with e.temporaries():
        condition = e.memory.truth(e.value(node.condition))
    return choose(e, condition, lambda: run(node.then), lambda: run(node.other), type_)


def _long_chain(e: Emitter, node: nodes.If, chain: Chain) -> None:
    """``if … else if …`` with groups of branches in functions, each of which returns whether a branch was taken."""
    none = e.reserve(8)
    done = e.b.block()
    for group in chain.groups:
        e.b.store(0, e.area(none))
        e.loops.in_function(node.span, partial(_arms, arms=group, none=none))
        e.b.jump_unless(e.b.truth(e.b.load(e.area(none))), done)
    if chain.other is not None:
        e.run_block(chain.other)
    e.b.jump(done)
    e.b.start(done)


def _arms(e: Emitter, arms: tuple[Arm, ...], none: int) -> None:
    """Run the first branch of *arms* whose condition holds; if none does, set a flag at the scratch offset *none*."""
    done = e.b.block()
    for arm in arms:
        with e.temporaries():
            condition = e.memory.truth(e.value(arm.condition))
        with e.b.when(condition):
            e.run_block(arm.then)
            e.b.jump(done)
    e.b.store(1, e.area(none))
    e.b.jump(done)
    e.b.start(done)


def _block(e: Emitter, node: nodes.BlockExpr) -> Operand:
    return e.run_block(node.block, e.checked.types.get(node, VOID)) or Nothing(VOID)


def _cast(e: Emitter, node: nodes.Cast) -> Operand:
    return cast(e, e.value(node.operand), e.type(node))


def cast(e: Emitter, operand: Operand, type_: Type) -> Operand:
    """An explicit conversion."""
    source = operand.type
    if isinstance(type_, Pointer) and isinstance(source, Array | String):
        return Scalar(_array_address(e, operand), type_)
    if isinstance(type_, Pointer) and isinstance(source, Int) and source.signed:
        # As in bpftrace: the upper bytes of an address are zero, also of a negative number.
        operand = e.memory.convert(operand, Int(source.width, signed=False))
    if isinstance(source, Float) and isinstance(type_, Int):
        return Scalar(e.floats.to_integer(operand, type_), type_)
    if isinstance(source, Float) and isinstance(type_, Float):
        return Scalar(e.floats.double(operand), type_) if source != type_ else operand
    if isinstance(type_, Bool) and isinstance(source, String):
        # A string is true if it is not empty.
        return e.memory.convert(e.memory.load(e.place(operand).pointer, UINT8), type_)
    if isinstance(type_, Int) and isinstance(source, USym):
        # The address; the process id stands after it.
        return e.memory.convert(e.memory.load(e.place(operand).pointer, UINT64), type_)
    if isinstance(type_, Array) and source.scalar and isinstance(type_.element, Int | Bool):
        pointer = e.temporary(8)
        e.b.store(e.memory.number(operand), pointer)
        return Memory(pointer, type_)
    if isinstance(type_, Array) and isinstance(source, String):
        text = e.memory.convert(operand, String(type_.size))
        return Memory(e.place(text).pointer, type_)
    if isinstance(type_, Array | Struct) and isinstance(operand, Memory):
        return Memory(operand.pointer, type_, operand.align)
    if isinstance(type_, Array | Struct) and isinstance(operand, Remote):
        return Remote(operand.address, type_, operand.space, operand.direct)
    if isinstance(type_, String) and isinstance(source, Array):
        return e.memory.convert(memory.as_string(operand, source.size), type_)
    return e.memory.convert(operand, type_)


def _array_address(e: Emitter, operand: Operand) -> Number:
    """The address of an array, as an integer."""
    if isinstance(operand, Remote):
        return e.launder(operand.address) if operand.direct else operand.address
    return e.launder(e.b.address(e.place(operand).pointer))


def _tuple(e: Emitter, node: nodes.TupleLiteral | nodes.RecordLiteral) -> Operand:
    return members_in_order(e, e.type(node), node.members)


def members_in_order(e: Emitter, type_: Type, values: tuple[nodes.Expr, ...]) -> Operand:
    """A value of type *type_* with the members *values*, evaluated in order."""
    if len(values) <= events.IN_REGISTERS:
        return Parts(type_, tuple(e.in_order(values)))
    # There are too many members for registers and stack.
    types, offsets, _ = memory.members_of(type_)
    pointer = e.scratch(type_.size)
    e.memory.zero(pointer, type_.size)
    for member, of, offset in zip(values, types, offsets, strict=True):
        with e.temporaries():
            e.memory.write(e.value(member), e.b.offset(pointer, offset), of, memory.natural(8, offset))
    return Memory(pointer, type_)


def _tuple_access(e: Emitter, node: nodes.TupleAccess) -> Operand:
    return e.memory.member_of(e.value(node.base), node.index)


def _comptime(e: Emitter, node: nodes.Comptime) -> Operand:
    return e.value(node.operand)


def _type_info(e: Emitter, node: nodes.TypeInfo) -> Operand:
    return e.value(e.checked.fact(node, TypeDescription).record)


_EMIT: Mapping[type[nodes.Expr], Callable[[Emitter, nodes.Expr], Operand]] = by_class(
    on(nodes.IntLiteral, _literal),
    on(nodes.FloatLiteral, _fraction),
    on(nodes.BoolLiteral, _literal),
    on(nodes.StringLiteral, _literal),
    on(nodes.Variable, _variable),
    on(nodes.Unary, _unary),
    on(nodes.Binary, operators.binary),
    on(nodes.Ternary, _ternary),
    on(nodes.Cast, _cast),
    on(nodes.TupleLiteral, _tuple),
    on(nodes.RecordLiteral, _tuple),
    on(nodes.TypeInfo, _type_info),
    on(nodes.FieldAccess, members.field),
    on(nodes.TupleAccess, _tuple_access),
    on(nodes.Index, members.index),
    on(nodes.MapRef, maps.read),
    on(nodes.MapIndex, maps.read),
    on(nodes.Identifier, calls.call),
    on(nodes.Call, calls.call),
    on(nodes.If, _if),
    on(nodes.BlockExpr, _block),
    on(nodes.Comptime, _comptime),
)

