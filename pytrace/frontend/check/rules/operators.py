"""Typing rules of unary and binary operators, and of compound assignment."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from pytrace.core.builtins import builtin
from pytrace.core.source import Span
from pytrace.core.types import (
    BOOL,
    INT64,
    UINT64,
    AddressSpace,
    Array,
    Bool,
    Enum,
    Float,
    Int,
    Pointer,
    String,
    Type,
    Void,
)
from pytrace.frontend.check.inference import constant_folding
from pytrace.frontend.check.inference.argument_checks import CONVERT
from pytrace.frontend.check.inference.checker import Checker
from pytrace.frontend.check.inference.conversions import (
    INT64_MAX,
    UNKNOWN,
    Flexible,
    Unknown,
    integer_of,
    is_condition,
    is_integer,
    literal,
    settle,
    signs_differ,
    unify,
)
from pytrace.frontend.check.inference.removed_code import NEVER_REACHED, look
from pytrace.frontend.check.inference.slots import put, put_map
from pytrace.frontend.check.rules import expressions, members
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import Signedness, TypeDescription

COUNTING = Flexible(0, INT64_MAX)
"""Result of arithmetic on constants and counters: 64 bits wide, with the signedness of the other operand."""

_LOGIC = ("&&", "||")
_EQUALITY = ("==", "!=")
_ORDER = ("<", ">", "<=", ">=")
_SHIFTS = ("<<", ">>")


def binary(checker: Checker, node: nodes.Binary) -> Type:
    """``a op b``."""
    if node.operator in _LOGIC:
        return _logic(checker, node)
    compares = node.operator in (*_EQUALITY, *_ORDER)
    left, right = _compared(checker, node) if compares else (checker.value(node.left), checker.value(node.right))
    if checker.guessing and not compares:
        left, right = (literal(0) if isinstance(type_, Unknown) else type_ for type_ in (left, right))
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return BOOL if compares else UNKNOWN
    if compares:
        return _compare(checker, node, left, right)
    if isinstance(left, String) and node.operator == "+":
        return _text(checker, node)
    return _arithmetic(checker, node, left, right)


# ---------------------------------------------------------------------------------------------- logic


def _logic(checker: Checker, node: nodes.Binary) -> Type:
    first = checker.condition(node.left)
    stops = node.operator == "||"
    if first is not None and first == stops:
        look(checker, NEVER_REACHED, partial(checker.condition, node.right))
        checker.set_constant(node, stops)
        return BOOL
    second = checker.condition(node.right)
    if first is not None and second is not None:
        checker.set_constant(node, second)
    return BOOL


# ---------------------------------------------------------------------------------------------- comparison


def _compared(checker: Checker, node: nodes.Binary) -> tuple[Type, Type]:
    """The types of both sides; a bare word beside a string is known to be one that lacks its quotes."""
    sides = (node.right, node.left)
    word = next((side for side in sides if isinstance(side, nodes.Identifier) and builtin(side.name) is None), None)
    if word is None:
        return checker.value(node.left), checker.value(node.right)
    other = checker.value(node.left if word is node.right else node.right)
    if isinstance(other, String):
        checker.word_hints[word] = f'a string is written in quotes: "{word.name}"'
    type_ = checker.value(word)
    return (other, type_) if word is node.right else (type_, other)


def _compare(checker: Checker, node: nodes.Binary, left: Type, right: Type) -> Type:
    if isinstance(left, Float) or isinstance(right, Float):
        return _compare_fractions(checker, node, left, right)
    a, b = checker.constant(node.left), checker.constant(node.right)
    texts = isinstance(a, bytes) and isinstance(b, bytes)
    if not comparable(left, right, ordered=node.operator in _ORDER and not texts):
        checker.error(
            f"cannot compare {settle(left)} with {settle(right)} by {node.operator}",
            node.span,
            notes=[(f"this is {settle(left)}", node.left.span), (f"this is {settle(right)}", node.right.span)],
        )
        return BOOL
    _warn_pointers(checker, node, left, right)
    signed = _signed_comparison(left, right)
    checker.program.facts[node] = Signedness(signed)
    for text, facing in ((a, right), (b, left)):
        if isinstance(text, bytes) and isinstance(facing, String) and len(text) >= facing.size and not texts:
            holds = facing.size - 1
            message = f"compares the first {holds} of {len(text)} bytes: {settle(facing)} holds no more than {holds}"
            checker.warn(message, node.span, hints=["a longer text that begins with the same bytes is equal, too"])
    if isinstance(a, bytes) and isinstance(b, bytes):
        checker.set_constant(node, constant_folding.compare_bytes(node.operator, a, b))
    elif isinstance(a, int) and isinstance(b, int):
        carrier = None if _free(left, right) else INT64 if signed else UINT64
        checker.set_constant(node, constant_folding.comparison(node.operator, int(a), int(b), carrier))
    elif isinstance(node.left, nodes.TypeInfo) and isinstance(node.right, nodes.TypeInfo):
        one, other = (checker.program.fact(side, TypeDescription) for side in (node.left, node.right))
        same = one.values == other.values
        checker.set_constant(node, same is (node.operator == "=="))
    if is_integer(left) and is_integer(right) and signs_differ(left, right):
        checker.warn("compares signed with unsigned 64-bit integers, as signed ones", node.span)
    return BOOL


def _compare_fractions(checker: Checker, node: nodes.Binary, left: Type, right: Type) -> Type:
    """With floating-point numbers, and integer constants."""
    for side, type_ in ((node.left, left), (node.right, right)):
        if isinstance(type_, Float) or (isinstance(type_, Flexible) and isinstance(checker.constant(side), int)):
            continue
        other = right if type_ is left else left
        message = f"cannot compare {settle(left)} with {settle(right)} by {node.operator}"
        hints = [f"convert the {other} first: (int64)"] if is_integer(type_) else []
        checker.error(message, node.span, hints=hints)
        break
    return BOOL


def _free(left: Type, right: Type) -> bool:
    """Whether both are literals, whose width is not fixed yet."""
    return isinstance(left, Flexible | Bool) and isinstance(right, Flexible | Bool)


def comparable(left: Type, right: Type, *, ordered: bool) -> bool:
    """True when two values may be compared."""
    scalars = Int | Flexible | Enum | Bool | Pointer
    if isinstance(left, scalars) and isinstance(right, scalars):
        return True
    if ordered:
        return False
    if isinstance(left, String | Array) and isinstance(right, String | Array):
        return (_text_like(left) and _text_like(right)) or unify(left, right) is not None
    return unify(left, right) is not None


def _text_like(type_: Type) -> bool:
    if isinstance(type_, String):
        return True
    return isinstance(type_, Array) and isinstance(type_.element, Int) and type_.element.width == 1


def _warn_pointers(checker: Checker, node: nodes.Binary, left: Type, right: Type) -> None:
    if not isinstance(left, Pointer) or not isinstance(right, Pointer):
        return
    if left.target != right.target and not isinstance(left.target, Void) and not isinstance(right.target, Void):
        checker.warn(f"compares pointers to different types, {left} and {right}", node.span)
    elif left.space is not right.space and AddressSpace.NONE not in (left.space, right.space):
        checker.warn(
            f"compares a pointer into {left.space.value} memory with one into {right.space.value} memory", node.span
        )


def _signed_comparison(left: Type, right: Type) -> bool:
    return _signed_result(left, right, default=True)


def _signed_result(left: Type, right: Type, *, default: bool) -> bool:
    operands = [integer_of(left), integer_of(right)]
    for operand in operands:
        # A negative constant makes the operation signed, whatever the other operand is.
        if isinstance(operand, Flexible) and operand.low < 0:
            return True
    if any(isinstance(operand, Flexible) and operand.high > INT64_MAX for operand in operands):
        return False
    typed = [operand for operand in operands if isinstance(operand, Int)]
    if not typed:
        return default
    if len(typed) == 1:
        return typed[0].signed
    if typed[0].signed == typed[1].signed:
        return typed[0].signed
    return True


# ---------------------------------------------------------------------------------------------- arithmetic


def _text(checker: Checker, node: nodes.Binary) -> Type:
    """A string constant plus a string (concatenation) or an integer (skips characters)."""
    text, count = checker.constant(node.left), checker.constant(node.right)
    if isinstance(text, bytes) and isinstance(count, bytes):
        return expressions.constant_text(checker, node, text + count)
    if not isinstance(text, bytes) or not isinstance(count, int):
        message = "+ of a string needs constants: an integer skips characters, another string is appended"
        return checker.error(message, node.span)
    if count < 0:
        return checker.error("cannot skip a negative number of characters", node.right.span)
    if count > len(text):
        checker.warn(f"skips {count} characters of a string that has {len(text)}", node.span)
    rest = text[count:]
    checker.set_constant(node, rest)
    return String(len(rest) + 1)


def _arithmetic(checker: Checker, node: nodes.Binary, left: Type, right: Type) -> Type:
    if isinstance(left, Pointer) or isinstance(right, Pointer):
        return _pointer_arithmetic(checker, node, left, right)
    result = arithmetic_type(checker, node.operator, left, right, node.span)
    if isinstance(result, Unknown):
        return result
    if node.operator == "-":
        _warn_unsigned(checker, node.left, left)
        _warn_unsigned(checker, node.right, right)
    checker.program.facts[node] = Signedness(_is_signed(result, left, node.operator))
    return _fold(checker, node, left, right, result)


def _is_signed(type_: Type, left: Type, operator: str) -> bool:
    carrier = integer_of(left if operator in _SHIFTS else type_)
    return carrier.signed if isinstance(carrier, Int) else carrier.low >= INT64_MAX + 1 or carrier.high <= INT64_MAX


def _warn_unsigned(checker: Checker, node: nodes.Expr, type_: Type) -> None:
    # Differences of times and counters are common in scripts: warn only about a cast without effect.
    if type_ == UINT64 and isinstance(node, nodes.Cast):
        checker.warn("the difference is signed: this uint64 counts as int64", _cast_place(node))


def _cast_place(node: nodes.Expr) -> Span:
    return cast_span(node) if isinstance(node, nodes.Cast) else node.span


def cast_span(node: nodes.Cast) -> Span:
    """The ``(T)`` of a cast."""
    inner = node.operand.span
    if inner.source is not node.span.source or not node.span.start < inner.start <= node.span.end:
        # The operand is the argument of a macro.
        return node.type.span
    text = node.span.source.text[node.span.start : inner.start]
    return replace(node.span, end=node.span.start + len(text.rstrip()))


def _fold(checker: Checker, node: nodes.Binary, left: Type, right: Type, type_: Type) -> Type:
    a, b = checker.constant(node.left), checker.constant(node.right)
    if not isinstance(a, int) or not isinstance(b, int):
        return type_
    free = _free(left, right)
    carrier = None if free else settle(type_)
    try:
        value = constant_folding.arithmetic(
            node.operator, int(a), int(b), carrier if isinstance(carrier, Int) else None
        )
    except constant_folding.FoldError as problem:
        return checker.error(str(problem), node.span)
    checker.set_constant(node, value)
    return literal(value) if free else type_


def arithmetic_type(checker: Checker, operator: str, left: Type, right: Type, span: Span) -> Type:
    """Result of integer arithmetic: 64 bits; signed when an operand is, and always for ``-``."""
    for operand in (left, right):
        if isinstance(operand, Float):
            return checker.error(f"operator {operator} cannot be used with {operand}", span, hints=[CONVERT])
        if not isinstance(operand, Int | Flexible | Enum | Bool):
            return checker.error(f"operator {operator} needs integers, not {settle(operand)}", span)
    if operator == "-":
        return INT64
    if operator in _SHIFTS:
        right = left
    operands = (integer_of(left), integer_of(right))
    if all(isinstance(operand, Flexible) for operand in operands):
        return COUNTING if all(integer_of(operand).low >= 0 for operand in operands) else INT64
    if operator not in ("&", "|", "^") and signs_differ(left, right):
        checker.warn("mixes signed and unsigned 64-bit integers; the result is int64", span)
    return INT64 if _signed_result(left, right, default=True) else UINT64


def _pointer_arithmetic(checker: Checker, node: nodes.Binary, left: Type, right: Type) -> Type:
    if node.operator == "+" and isinstance(right, Pointer) and is_integer(left):
        left, right = right, left
    if node.operator not in ("+", "-") or not isinstance(left, Pointer) or not is_integer(right):
        return checker.error(f"cannot compute {settle(left)} {node.operator} {settle(right)}", node.span)
    checker.program.facts[node] = Signedness(False)
    return Pointer(left.target, left.space)


def compound(checker: Checker, node: nodes.Assign, current: Type, value: Type) -> Type:
    """Type of the value that ``target op= value`` stores."""
    operator = node.operator[:-1]
    if isinstance(current, Unknown):
        # The first use of a map or variable may be ``@x += 1``.
        current = literal(0)
    if isinstance(value, Unknown):
        return UNKNOWN
    if isinstance(current, Pointer):
        if operator not in ("+", "-") or not is_integer(value):
            return checker.error(f"cannot compute {current} {operator} {settle(value)}", node.span)
        checker.program.facts[node] = Signedness(False)
        return current
    result = arithmetic_type(checker, operator, current, value, node.span)
    if not isinstance(result, Unknown):
        checker.program.facts[node] = Signedness(_is_signed(result, current, operator))
    return result


# ---------------------------------------------------------------------------------------------- unary


def unary(checker: Checker, node: nodes.Unary) -> Type:
    """``! ~ - * & ++ --``."""
    return _UNARY[node.operator](checker, node)


def _not(checker: Checker, node: nodes.Unary) -> Type:
    decided = checker.condition(node.operand)
    if decided is not None:
        checker.set_constant(node, not decided)
    return BOOL


def _negate(checker: Checker, node: nodes.Unary) -> Type:
    # Once: checking an operand twice would take 2**n steps of n minus signs.
    type_ = checker.value(node.operand)
    if isinstance(type_, Float):
        return type_
    type_ = checker.as_integer(type_, node.operand, "the operand of -")
    value = checker.constant(node.operand)
    if isinstance(type_, Unknown):
        return UNKNOWN
    if not isinstance(value, int):
        return INT64
    free = isinstance(type_, Flexible)
    try:
        result = constant_folding.arithmetic("-", 0, value, None if free else INT64)
    except constant_folding.FoldError as problem:
        return checker.error(str(problem), node.span)
    checker.set_constant(node, result)
    return literal(result) if free else INT64


def _complement(checker: Checker, node: nodes.Unary) -> Type:
    type_ = checker.integer(node.operand, "the operand of ~")
    value = checker.constant(node.operand)
    if isinstance(value, int):
        result = constant_folding.wrap(~value, UINT64)
        checker.set_constant(node, result)
        return UINT64
    return UNKNOWN if isinstance(type_, Unknown) else UINT64


def _dereference(checker: Checker, node: nodes.Unary) -> Type:
    type_ = checker.value(node.operand)
    if isinstance(type_, Unknown):
        return UNKNOWN
    mark = members.mark_of_number(checker, node.operand)
    if mark is not None:
        checker.retyped[node.operand] = Pointer(UINT64, mark)
        return UINT64
    known = isinstance(type_, Int | Flexible) and checker.constant(node.operand) is not None
    if known or (isinstance(type_, Int) and type_.width == 8):
        # Scripts dereference the addresses of kaddr(), reg() and arguments without a cast, meaning 64-bit words.
        checker.retyped[node.operand] = Pointer(UINT64)
        return UINT64
    if not isinstance(type_, Pointer):
        return checker.error(f"{settle(type_)} is not a pointer", node.span, hints=["cast it: *(uint64 *)…"])
    if isinstance(type_.target, Void):
        return checker.error("a void pointer cannot be dereferenced", node.span, hints=["cast it to another pointer"])
    return members.loaded(members.inherit(checker, type_.target, type_))


def _address(checker: Checker, node: nodes.Unary) -> Type:
    target = node.operand
    if isinstance(target, nodes.Variable):
        state = checker.scope.find(target.name)
        if state is not None:
            state.assigned = True
        type_ = checker.value(target)
    elif isinstance(target, nodes.MapRef | nodes.MapIndex):
        type_ = checker.value(target)
    else:
        checker.value(target)
        return checker.error("& needs a variable or a map", node.span)
    return UNKNOWN if isinstance(type_, Unknown) else Pointer(settle(type_), AddressSpace.BPF)


def _step(checker: Checker, node: nodes.Unary) -> Type:
    target = node.operand
    change: Type = COUNTING if node.operator == "++" else INT64
    if isinstance(target, nodes.Variable):
        return _step_variable(checker, node, target, change)
    if isinstance(target, nodes.MapRef):
        state = expressions.use_scalar(checker, target)
    elif isinstance(target, nodes.MapIndex):
        state = expressions.use_keyed(checker, target)
    else:
        checker.value(target)
        return checker.error(f"{node.operator} needs a variable or a map", node.span)
    if state is None:
        return UNKNOWN
    current = state.value.type
    if isinstance(current, Pointer):
        change = current
    put_map(checker, state.name, state.value, change, node.span, "value")
    checker.program.types[target] = state.value.type
    return state.value.type


def _step_variable(checker: Checker, node: nodes.Unary, target: nodes.Variable, change: Type) -> Type:
    current = checker.value(target)
    state = checker.scope.find(target.name)
    if state is None:
        return UNKNOWN
    if isinstance(current, Pointer):
        change = current
    elif isinstance(current, Int) and state.slot.fixed is not None:
        # A declared variable keeps its width: the step wraps around as in C.
        change = current
    elif not is_condition(current):
        return checker.error(f"{node.operator} needs an integer, not {settle(current)}", node.span)
    put(checker, state, change, node.span)
    return state.slot.type


_UNARY = {
    "!": _not,
    "~": _complement,
    "-": _negate,
    "*": _dereference,
    "&": _address,
    "++": _step,
    "--": _step,
}
