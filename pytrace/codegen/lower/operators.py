"""Lowering of arithmetic, logic and comparison."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.codegen.emit import comparison
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.values import I1, I64, TRUE, Number, Operand, Operation, Order, Scalar, ordering
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import BOOL, DOUBLE, Float, Pointer, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import Signedness

_PLAIN: dict[str, Operation] = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}
_ORDER: dict[str, Order] = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def binary(e: Emitter, node: nodes.Binary) -> Operand:
    """The value of a binary expression."""
    if node.operator in ("&&", "||"):
        return _logical(e, node)
    if isinstance(e.type(node.left), Float) or isinstance(e.type(node.right), Float):
        return _fractions(e, node)
    if node.operator in ("==", "!="):
        equal = e.comparison.equal(*e.in_order((node.left, node.right)))
        if node.operator == "!=":
            equal = e.b.differ(equal, TRUE)
        return Scalar(e.b.number(equal), BOOL)
    left = e.number(node.left)
    right = e.number(node.right)
    signed = e.checked.fact(node, Signedness).signed
    if node.operator in _ORDER:
        predicate = ordering(_ORDER[node.operator], signed=signed)
        return Scalar(e.b.number(e.b.icmp(predicate, left, right)), BOOL)
    left, right = _scale(e, e.type(node.left), left, right, e.type(node.right))
    result = arithmetic(e, node, node.operator, left, right, signed)
    if e.script.sparing:
        # LLVM must not reorder a long sum, as all operands would then be live at the same time.
        result = e.b.opaque(result)
    return Scalar(result, e.type(node))


def _fractions(e: Emitter, node: nodes.Binary) -> Operand:
    """A comparison of floating-point numbers; an integer constant is one."""
    sides: list[Operand] = []
    for side in (node.left, node.right):
        constant = e.checked.constants.get(side)
        if isinstance(constant, int):
            sides.append(Scalar(comparison.bits_of(float(constant)), DOUBLE))
        else:
            sides.append(e.value(side))
    left, right = sides
    if node.operator in _ORDER:
        return Scalar(e.b.number(e.floats.compare(_ORDER[node.operator], left, right)), BOOL)
    equal = e.floats.equal(left, right)
    return Scalar(e.b.number(equal if node.operator == "==" else e.b.differ(equal, TRUE)), BOOL)


def _scale(e: Emitter, left_type: Type, left: Number, right: Number, right_type: Type) -> tuple[Number, Number]:
    """Scale the integer of pointer arithmetic to bytes."""
    if isinstance(left_type, Pointer) and not isinstance(right_type, Pointer):
        right = scaled(e, right, left_type)
    elif isinstance(right_type, Pointer) and not isinstance(left_type, Pointer):
        left = scaled(e, left, right_type)
    return left, right


def scaled(e: Emitter, count: Number, pointer: Pointer) -> Number:
    """*count* elements in bytes."""
    size = target_size(pointer)
    return count if size == 1 else e.b.mul(count, size)


def target_size(pointer: Pointer) -> int:
    """Size of a pointer's target in bytes; 1 for void and incomplete types."""
    return pointer.target.size or 1


def _logical(e: Emitter, node: nodes.Binary) -> Operand:
    left = e.memory.truth(e.value(node.left))
    start = e.b.current
    undecided, decided = (e.b.when, 0) if node.operator == "&&" else (e.b.unless, 1)
    with undecided(left):
        right = e.b.number(e.memory.truth(e.value(node.right)))
        end = e.b.current
    return Scalar(e.b.phi([(decided, start), (right, end)]), BOOL)


def arithmetic(e: Emitter, node: nodes.Node, operator: str, left: Number, right: Number, signed: bool) -> I64:
    """A 64-bit operation (``+ - * / % & | ^ << >>``); *node* is where a division by zero is reported."""
    if operator in _PLAIN:
        return e.b.op(_PLAIN[operator], left, right)
    emit = _SPECIAL.get(operator)
    if emit is None:
        raise InternalError(f"no code for operator {operator}")
    return emit(e, node, left, right, signed)


def _shift_left(e: Emitter, _node: nodes.Node, left: Number, right: Number, _signed: bool) -> I64:
    return e.b.op("shl", left, e.b.op("and", right, 63))


def _shift_right(e: Emitter, _node: nodes.Node, left: Number, right: Number, signed: bool) -> I64:
    return e.b.op("ashr" if signed else "lshr", left, e.b.op("and", right, 63))


def _divide(e: Emitter, node: nodes.Node, left: Number, right: Number, signed: bool) -> I64:
    return _guarded(e, node, right, lambda: _quotient(e, left, right, signed))


def _modulo(e: Emitter, node: nodes.Node, left: Number, right: Number, signed: bool) -> I64:
    return _guarded(e, node, right, lambda: _remainder(e, left, right, signed))


_SPECIAL: dict[str, Callable[[Emitter, nodes.Node, Number, Number, bool], I64]] = {
    "<<": _shift_left,
    ">>": _shift_right,
    "/": _divide,
    "%": _modulo,
}


def _magnitude(e: Emitter, value: Number) -> tuple[I1, I64]:
    negative = e.b.icmp("slt", value, 0)
    return negative, e.b.select(negative, e.b.sub(0, value), value)


def _quotient(e: Emitter, left: Number, right: Number, signed: bool) -> I64:
    # The v3 instruction set has no signed division.
    if not signed:
        return e.b.op("udiv", left, right)
    left_negative, left_size = _magnitude(e, left)
    right_negative, right_size = _magnitude(e, right)
    size = e.b.op("udiv", left_size, right_size)
    differ = e.b.differ(left_negative, right_negative)
    return e.b.select(differ, e.b.sub(0, size), size)


def _remainder(e: Emitter, left: Number, right: Number, signed: bool) -> I64:
    if not signed:
        return e.b.op("urem", left, right)
    negative, size = _magnitude(e, left)
    rest = e.b.op("urem", size, _magnitude(e, right)[1])
    return e.b.select(negative, e.b.sub(0, rest), rest)


def _guarded(e: Emitter, node: nodes.Node, divisor: Number, divide: Callable[[], I64]) -> I64:
    """Division by zero is reported, and its result is 1."""
    if isinstance(divisor, int) and divisor:
        return divide()
    zero, good, done = e.b.block(), e.b.block(), e.b.block()
    e.b.branch(e.b.icmp("eq", divisor, 0), zero, good, likely=False)
    e.b.start(zero)
    e.events.report(node, "division_by_zero")
    zero_end = e.b.current
    e.b.jump(done)
    e.b.start(good)
    value = divide()
    good_end = e.b.current
    e.b.jump(done)
    e.b.start(done)
    return e.b.phi([(1, zero_end), (value, good_end)])
