"""Typing rules of expressions: literals, names, variables, conditionals, tuples, ``comptime``, and operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import eq, ge, gt, le, lt, ne

import msgspec

from pytrace.base.dispatch import handles, handles_names, methods
from pytrace.core.builtins import builtin, builtin_names
from pytrace.core.diagnostics import did_you_mean
from pytrace.core.probe_kinds import UserTarget
from pytrace.core.source import Span
from pytrace.core.types import (
    BOOL,
    DOUBLE,
    INT64,
    UINT64,
    AddressSpace,
    Array,
    Bool,
    Enum,
    Float,
    Int,
    Pointer,
    Record,
    String,
    Tuple,
    Type,
    Void,
)
from pytrace.frontend.check.calls import ArgumentChecks, Calls, Events
from pytrace.frontend.check.checker import NEVER_REACHED, Checker
from pytrace.frontend.check.conversions import (
    CONVERT,
    INT64_MAX,
    INT64_MIN,
    UINT64_MAX,
    UNKNOWN,
    Flexible,
    Unknown,
    integer_of,
    is_condition,
    is_integer,
    literal,
    nesting,
    parts,
    settle,
    signs_differ,
    unify,
    wrap,
)
from pytrace.frontend.check.maps import Maps
from pytrace.frontend.check.members import Members, TypeNames, cast_span, loaded
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import GoroutineNumber, LoadTime, Signedness, TypeDescription

COUNTING = Flexible(0, INT64_MAX)
"""Result of arithmetic on constants and counters: 64 bits wide, with the signedness of the other operand."""
_LOGIC = ("&&", "||")
_EQUALITY = ("==", "!=")
_ORDER = ("<", ">", "<=", ">=")
_SHIFTS = ("<<", ">>")

_ORDERS: dict[str, Callable[[int | bytes, int | bytes], bool]] = {
    "==": eq,
    "!=": ne,
    "<": lt,
    ">": gt,
    "<=": le,
    ">=": ge,
}

def _shift_right(a: int, b: int) -> int:
    return a >> (b & 63)


def _shift_left(a: int, b: int) -> int:
    # Bits shifted out are lost, as at run time.
    return wrap(a << (b & 63), INT64 if a < 0 else UINT64)


class FoldError(Exception):
    """The operation has no result: division by zero, or a result of more than 64 bits."""


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise FoldError("division by zero")
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _modulo(a: int, b: int) -> int:
    return a - b * _divide(a, b)


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    "/": _divide,
    "%": _modulo,
    "&": int.__and__,
    "|": int.__or__,
    "^": int.__xor__,
    "<<": _shift_left,
    ">>": _shift_right,
}


def _are_literals(left: Type, right: Type) -> bool:
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


def _is_signed(type_: Type, left: Type, operator: str) -> bool:
    carrier = integer_of(left if operator in _SHIFTS else type_)
    return carrier.signed if isinstance(carrier, Int) else carrier.low >= INT64_MAX + 1 or carrier.high <= INT64_MAX


MOST_NESTED = 64
"""Maximum nesting of tuples and records that the other passes, the manifest and the output support."""
MOST_PARTS = 1024
"""Maximum number of values in a tuple or record: ``$b = ($a, $a); $c = ($b, $b);`` doubles it in each step."""


class BuiltinChecks(msgspec.Struct, eq=False):
    """Checks of the builtins of a family: a method for each."""

    checker: Checker
    events: Events
    checks: ArgumentChecks
    maps: Maps
    type_names: TypeNames


class Expressions(msgspec.Struct, eq=False):
    """Typing rules of literals, names, variables, conditionals, tuples, and ``comptime``."""

    checker: Checker
    calls: Calls
    _suggested: dict[str, tuple[str, ...]] = {}
    """Hints for unknown names: comparing one with 6,000 constants takes 13 ms, and each pass meets it again."""

    # ------------------------------------------------------------------------------------------ literals and names

    @handles(nodes.IntLiteral)
    def integer(self, node: nodes.IntLiteral) -> Type:
        """``5``."""
        if not INT64_MIN <= node.value <= UINT64_MAX:
            return self.checker.error("the number does not fit 64 bits", node.span)
        self.checker.set_constant(node, node.value)
        return literal(node.value)

    @handles(nodes.FloatLiteral)
    def fraction(self, _node: nodes.FloatLiteral) -> Type:
        """``1.5``."""
        return DOUBLE

    @handles(nodes.BoolLiteral)
    def boolean(self, node: nodes.BoolLiteral) -> Type:
        """``true``."""
        self.checker.set_constant(node, node.value)
        return BOOL

    @handles(nodes.StringLiteral)
    def string(self, node: nodes.StringLiteral) -> Type:
        """``"text"``."""
        return self.constant_text(node, node.value)

    def constant_text(self, node: nodes.Expr, value: bytes) -> Type:
        """A string constant."""
        size = len(value) + 1
        # A literal may always be as long as a default string: a small max_strlen limits str(), not literals.
        limit = max(self.checker.config.max_strlen, 1024)
        if size > limit:
            hint = f"raise max_strlen in the config block to {size} or more"
            return self.checker.error(f"the string takes {size} bytes, the limit is {limit}", node.span, hints=[hint])
        self.checker.set_constant(node, value)
        return String(size)

    @handles(nodes.CallPart)
    def call_part(self, node: nodes.CallPart) -> Type:
        """A part of what identifies a call."""
        targets = self.checker.unit.targets if self.checker.unit is not None and node.part == "thread" else ()
        places = [place for item in targets if isinstance(place := item.place, UserTarget) and place.has_goroutine]
        offsets = {self.checker.kernel.user_goid(place.path, place.offset) for place in places}
        offset = offsets.pop() if len(offsets) == 1 else None
        if offset is not None:
            paths = dict.fromkeys(place.path for place in places)
            self.checker.program.facts[node] = GoroutineNumber(offset, tuple(paths))
        return UINT64

    @handles(nodes.OpenParameter)
    def parameter(self, node: nodes.OpenParameter) -> Type:
        """A parameter that is known only when the ahead-of-time file runs."""
        parts = (node.name, node.form, node.default, str(node.skip))
        self.checker.program.loaded[node] = LoadTime("parameter", parts)
        if node.form == "text":
            return String(self.checker.config.max_strlen)
        return BOOL if node.form == "flag" else INT64

    @handles(nodes.Identifier)
    def identifier(self, node: nodes.Identifier) -> Type:
        """A bare name: builtin or enum member."""
        row = builtin(node.name)
        if row is not None and row.bare:
            return self.calls.check_builtin(node, row, ())
        member = self.checker.definitions.enumerator(node.name)
        if member is not None:
            kind, value = member
            self.checker.set_constant(node, value)
            return kind
        hints: Iterable[str]
        constant = self.checker.definitions.constant(node.name)
        if constant is not None:
            self.checker.set_constant(node, constant)
            return literal(constant)
        if row is not None:
            return self.checker.error(f"{row.name} is a function: {row.signature}", node.span)
        if (reason := self.checker.definitions.no_value(node.name)) is not None:
            notes = [("defined here", reason.span)]
            return self.checker.error(reason.message, node.span, hints=reason.hints, notes=notes)
        if node.name == "sargN" or (node.name.startswith("sarg") and node.name[4:].isdigit()):
            hints = ('read the stack: *(uint64 *)(reg("sp") + 8 * N)',)
        elif self.checker.scope.find(node.name) is not None:
            hints = (f"variables are written with '$': ${node.name}",)
        elif node in self.checker.word_hints:
            hints = (self.checker.word_hints[node],)
        else:
            if node.name not in self._suggested:
                near = did_you_mean(node.name, [*builtin_names(), *self.checker.functions])
                near = near or did_you_mean(node.name, self.checker.definitions.names("constant"))
                self._suggested[node.name] = near or tuple(self.checker.definitions.skipped("a macro of"))
            hints = self._suggested[node.name]
        return self.checker.error(f"unknown name {node.name!r}", node.span, hints=hints)

    @handles(nodes.Variable)
    def variable(self, node: nodes.Variable) -> Type:
        """A read of ``$x``."""
        state = self.checker.scope.find(node.name)
        if state is None:
            self.checker.unknown_variable(node)
            return UNKNOWN
        state.read = True
        if not state.assigned and not state.offered and not state.loop:
            self.checker.warn(f"${node.name} is used before it is assigned; it is zero here", node.span)
        self.checker.bind(node, state)
        if not self.checker.relies_on(state.slot):
            return UNKNOWN
        type_ = state.slot.type
        if isinstance(type_, Unknown) and self.checker.final and not state.assigned and not state.loop:
            # Declared and never assigned: zero.
            return INT64
        return type_

    # ------------------------------------------------------------------------------------------ conditionals

    @handles(nodes.Ternary)
    def ternary(self, node: nodes.Ternary) -> Type:
        """``c ? a : b`` and ``a ?: b``."""
        decided = self.checker.condition(node.condition)
        if decided is not None:
            return self._decided_ternary(node, decided=decided)
        then = self.checker.value(node.then) if node.then is not None else self.checker.program.types[node.condition]
        other = self.checker.value(node.other)
        return self.common_type(node, (node.then or node.condition, then), (node.other, other))

    def _decided_ternary(self, node: nodes.Ternary, *, decided: bool) -> Type:
        chosen = (node.then or node.condition) if decided else node.other
        type_ = self.checker.program.types[chosen] if chosen is node.condition else self.checker.value(chosen)
        left = node.other if decided else node.then
        if left is not None:
            self.checker.check_removed(NEVER_REACHED, partial(self.checker.value, left))
        value = self.checker.constant(chosen)
        if value is not None:
            self.checker.set_constant(node, value)
        return type_

    def common_type(self, node: nodes.Expr, first: tuple[nodes.Node, Type], second: tuple[nodes.Node, Type]) -> Type:
        """One type for the two branches of a conditional."""
        type_ = unify(first[1], second[1])
        if type_ is None:
            return self.checker.error(
                f"the branches have different types, {settle(first[1])} and {settle(second[1])}",
                node.span,
                notes=[
                    (f"this is {settle(first[1])}", first[0].span),
                    (f"this is {settle(second[1])}", second[0].span),
                ],
            )
        return type_

    @handles(nodes.TupleLiteral)
    def tuple_literal(self, node: nodes.TupleLiteral) -> Type:
        """``(a, b)``."""
        return self._check_size(node, Tuple(tuple(self._member(member) for member in node.members)))

    def _check_size(self, node: nodes.Expr, type_: Tuple | Record) -> Type:
        """*type_*, or an error if it is nested too deeply or has too many values; a refused type grows no further."""
        count = parts(type_)
        if count > MOST_PARTS:
            return self.checker.error(f"a value of {count} parts is too large, the limit is {MOST_PARTS}", node.span)
        depth = nesting(type_)
        if depth == MOST_NESTED + 1:
            self.checker.error(f"values cannot be nested more than {MOST_NESTED} levels deep", node.span)
        return type_ if depth <= MOST_NESTED + 1 else max(type_.members, key=nesting)

    def _member(self, node: nodes.Expr) -> Type:
        type_ = self.checker.value(node)
        return self.checker.error(f"{type_} cannot be part of a value", node.span) if type_.aggregate else type_

    @handles(nodes.RecordLiteral)
    def record_literal(self, node: nodes.RecordLiteral) -> Type:
        """``(x=a, y=b)``."""
        members = tuple(self._member(member) for member in node.members)
        for index, name in enumerate(node.names):
            if name in node.names[:index]:
                return self.checker.error(f"the field {name!r} appears twice", node.members[index].span)
        return self._check_size(node, Record(node.names, members))

    # ------------------------------------------------------------------------------------------ compile time

    @handles(nodes.Comptime)
    def comptime(self, node: nodes.Comptime) -> Type:
        """``comptime e``."""
        type_ = self.checker.value(node.operand)
        value = self.checker.constant(node.operand)
        if value is None:
            if isinstance(type_, Unknown):
                return UNKNOWN
            hints = self.checker.constant_hints(node.operand)
            return self.checker.error("this cannot be computed at compile time", node.operand.span, hints=hints)
        self.checker.set_constant(node, value)
        return type_


def fold_bytes(operator: str, left: bytes, right: bytes) -> bool:
    """Compare two strings up to their first NUL."""
    return _ORDERS[operator](left.split(b"\0", 1)[0], right.split(b"\0", 1)[0])


def fold_comparison(operator: str, left: int, right: int, type_: Int | None) -> bool:
    """``left operator right`` of integers of *type_*, or by value for literals (*type_* None)."""
    if type_ is not None:
        left, right = wrap(left, type_), wrap(right, type_)
    return _ORDERS[operator](left, right)


def fold_arithmetic(operator: str, left: int, right: int, type_: Int | None) -> int:
    """``left operator right`` of integers of *type_*, or exact for literals (*type_* None).

    Raises:
        FoldError: division by zero, or a result of literals that does not fit 64 bits.
    """
    if type_ is not None:
        # A shift count does not affect the type of the result.
        right = right if operator in ("<<", ">>") else wrap(right, type_)
        return wrap(_ARITHMETIC[operator](wrap(left, type_), right), type_)
    value = _ARITHMETIC[operator](left, right)
    if not INT64_MIN <= value <= UINT64_MAX:
        raise FoldError(f"the result of {left} {operator} {right} does not fit 64 bits")
    return value


class Operators(msgspec.Struct, eq=False):
    """Typing rules of unary and binary operators, and of compound assignment."""

    checker: Checker
    maps: Maps
    members: Members
    expressions: Expressions

    @handles(nodes.Binary)
    def binary(self, node: nodes.Binary) -> Type:
        """``a op b``."""
        if node.operator in _LOGIC:
            return self._logic(node)
        compares = node.operator in (*_EQUALITY, *_ORDER)
        left, right = (
            self._side_types(node) if compares else (self.checker.value(node.left), self.checker.value(node.right))
        )
        if self.checker.guessing and not compares:
            left, right = (literal(0) if isinstance(type_, Unknown) else type_ for type_ in (left, right))
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return BOOL if compares else UNKNOWN
        if compares:
            return self._compare(node, left, right)
        if isinstance(left, String) and node.operator == "+":
            return self._concatenation(node)
        return self._arithmetic(node, left, right)

    # ------------------------------------------------------------------------------------------ logic

    def _logic(self, node: nodes.Binary) -> Type:
        first = self.checker.condition(node.left)
        stops = node.operator == "||"
        if first is not None and first == stops:
            self.checker.check_removed(NEVER_REACHED, partial(self.checker.condition, node.right))
            self.checker.set_constant(node, stops)
            return BOOL
        second = self.checker.condition(node.right)
        if first is not None and second is not None:
            self.checker.set_constant(node, second)
        return BOOL

    # ------------------------------------------------------------------------------------------ comparison

    def _side_types(self, node: nodes.Binary) -> tuple[Type, Type]:
        """The types of both sides; a bare word beside a string is known to be one that lacks its quotes."""
        sides = (node.right, node.left)
        word = next((side for side in sides if isinstance(side, nodes.Identifier) and builtin(side.name) is None), None)
        if word is None:
            return self.checker.value(node.left), self.checker.value(node.right)
        other = self.checker.value(node.left if word is node.right else node.right)
        if isinstance(other, String):
            self.checker.word_hints[word] = f'a string is written in quotes: "{word.name}"'
        type_ = self.checker.value(word)
        return (other, type_) if word is node.right else (type_, other)

    def _compare(self, node: nodes.Binary, left: Type, right: Type) -> Type:
        if isinstance(left, Float) or isinstance(right, Float):
            return self._compare_fractions(node, left, right)
        a, b = self.checker.constant(node.left), self.checker.constant(node.right)
        texts = isinstance(a, bytes) and isinstance(b, bytes)
        if not comparable(left, right, ordered=node.operator in _ORDER and not texts):
            self.checker.error(
                f"cannot compare {settle(left)} with {settle(right)} by {node.operator}",
                node.span,
                notes=[(f"this is {settle(left)}", node.left.span), (f"this is {settle(right)}", node.right.span)],
            )
            return BOOL
        self._warn_pointers(node, left, right)
        signed = _signed_result(left, right, default=True)
        self.checker.program.facts[node] = Signedness(signed)
        for text, facing in ((a, right), (b, left)):
            if isinstance(text, bytes) and isinstance(facing, String) and len(text) >= facing.size and not texts:
                holds = facing.size - 1
                message = (
                    f"compares the first {holds} of {len(text)} bytes: {settle(facing)} holds no more than {holds}"
                )
                self.checker.warn(
                    message, node.span, hints=["a longer text that begins with the same bytes is equal, too"]
                )
        if isinstance(a, bytes) and isinstance(b, bytes):
            self.checker.set_constant(node, fold_bytes(node.operator, a, b))
        elif isinstance(a, int) and isinstance(b, int):
            carrier = None if _are_literals(left, right) else INT64 if signed else UINT64
            self.checker.set_constant(node, fold_comparison(node.operator, int(a), int(b), carrier))
        elif isinstance(node.left, nodes.TypeInfo) and isinstance(node.right, nodes.TypeInfo):
            one, other = (self.checker.program.fact(side, TypeDescription) for side in (node.left, node.right))
            same = one.values == other.values
            self.checker.set_constant(node, same is (node.operator == "=="))
        if is_integer(left) and is_integer(right) and signs_differ(left, right):
            self.checker.warn("compares signed with unsigned 64-bit integers, as signed ones", node.span)
        return BOOL

    def _compare_fractions(self, node: nodes.Binary, left: Type, right: Type) -> Type:
        """With floating-point numbers, and integer constants."""
        for side, type_ in ((node.left, left), (node.right, right)):
            if isinstance(type_, Float) or (
                isinstance(type_, Flexible) and isinstance(self.checker.constant(side), int)
            ):
                continue
            other = right if type_ is left else left
            message = f"cannot compare {settle(left)} with {settle(right)} by {node.operator}"
            hints = [f"convert the {other} first: (int64)"] if is_integer(type_) else []
            self.checker.error(message, node.span, hints=hints)
            break
        return BOOL

    def _warn_pointers(self, node: nodes.Binary, left: Type, right: Type) -> None:
        if not isinstance(left, Pointer) or not isinstance(right, Pointer):
            return
        if left.target != right.target and not isinstance(left.target, Void) and not isinstance(right.target, Void):
            self.checker.warn(f"compares pointers to different types, {left} and {right}", node.span)
        elif left.space is not right.space and AddressSpace.NONE not in (left.space, right.space):
            self.checker.warn(
                f"compares a pointer into {left.space.value} memory with one into {right.space.value} memory", node.span
            )

    # ------------------------------------------------------------------------------------------ arithmetic

    def _concatenation(self, node: nodes.Binary) -> Type:
        """A string constant plus a string (concatenation) or an integer (skips characters)."""
        text, count = self.checker.constant(node.left), self.checker.constant(node.right)
        if isinstance(text, bytes) and isinstance(count, bytes):
            return self.expressions.constant_text(node, text + count)
        if not isinstance(text, bytes) or not isinstance(count, int):
            message = "+ of a string needs constants: an integer skips characters, another string is appended"
            return self.checker.error(message, node.span)
        if count < 0:
            return self.checker.error("cannot skip a negative number of characters", node.right.span)
        if count > len(text):
            self.checker.warn(f"skips {count} characters of a string that has {len(text)}", node.span)
        rest = text[count:]
        self.checker.set_constant(node, rest)
        return String(len(rest) + 1)

    def _arithmetic(self, node: nodes.Binary, left: Type, right: Type) -> Type:
        if isinstance(left, Pointer) or isinstance(right, Pointer):
            return self._pointer_arithmetic(node, left, right)
        result = self.arithmetic_type(node.operator, left, right, node.span)
        if isinstance(result, Unknown):
            return result
        if node.operator == "-":
            self._warn_unsigned(node.left, left)
            self._warn_unsigned(node.right, right)
        self.checker.program.facts[node] = Signedness(_is_signed(result, left, node.operator))
        return self._fold(node, left, right, result)

    def _warn_unsigned(self, node: nodes.Expr, type_: Type) -> None:
        # Differences of times and counters are common in scripts: warn only about a cast without effect.
        if type_ == UINT64 and isinstance(node, nodes.Cast):
            self.checker.warn("the difference is signed: this uint64 counts as int64", cast_span(node))

    def _fold(self, node: nodes.Binary, left: Type, right: Type, type_: Type) -> Type:
        a, b = self.checker.constant(node.left), self.checker.constant(node.right)
        if not isinstance(a, int) or not isinstance(b, int):
            return type_
        free = _are_literals(left, right)
        carrier = None if free else settle(type_)
        try:
            value = fold_arithmetic(node.operator, int(a), int(b), carrier if isinstance(carrier, Int) else None)
        except FoldError as problem:
            return self.checker.error(str(problem), node.span)
        self.checker.set_constant(node, value)
        return literal(value) if free else type_

    def arithmetic_type(self, operator: str, left: Type, right: Type, span: Span) -> Type:
        """Result of integer arithmetic: 64 bits; signed when an operand is, and always for ``-``."""
        for operand in (left, right):
            if isinstance(operand, Float):
                return self.checker.error(f"operator {operator} cannot be used with {operand}", span, hints=[CONVERT])
            if not isinstance(operand, Int | Flexible | Enum | Bool):
                return self.checker.error(f"operator {operator} needs integers, not {settle(operand)}", span)
        if operator == "-":
            return INT64
        if operator in _SHIFTS:
            right = left
        operands = (integer_of(left), integer_of(right))
        if all(isinstance(operand, Flexible) for operand in operands):
            return COUNTING if all(integer_of(operand).low >= 0 for operand in operands) else INT64
        if operator not in ("&", "|", "^") and signs_differ(left, right):
            self.checker.warn("mixes signed and unsigned 64-bit integers; the result is int64", span)
        return INT64 if _signed_result(left, right, default=True) else UINT64

    def _pointer_arithmetic(self, node: nodes.Binary, left: Type, right: Type) -> Type:
        if node.operator == "+" and isinstance(right, Pointer) and is_integer(left):
            left, right = right, left
        if node.operator not in ("+", "-") or not isinstance(left, Pointer) or not is_integer(right):
            return self.checker.error(f"cannot compute {settle(left)} {node.operator} {settle(right)}", node.span)
        self.checker.program.facts[node] = Signedness(False)
        return Pointer(left.target, left.space)

    def compound(self, node: nodes.Assign, current: Type, value: Type) -> Type:
        """Type of the value that ``target op= value`` stores."""
        operator = node.operator[:-1]
        if isinstance(current, Unknown):
            # The first use of a map or variable may be ``@x += 1``.
            current = literal(0)
        if isinstance(value, Unknown):
            return UNKNOWN
        if isinstance(current, Pointer):
            if operator not in ("+", "-") or not is_integer(value):
                return self.checker.error(f"cannot compute {current} {operator} {settle(value)}", node.span)
            self.checker.program.facts[node] = Signedness(False)
            return current
        result = self.arithmetic_type(operator, current, value, node.span)
        if not isinstance(result, Unknown):
            self.checker.program.facts[node] = Signedness(_is_signed(result, current, operator))
        return result

    # ------------------------------------------------------------------------------------------ unary

    @handles(nodes.Unary)
    def unary(self, node: nodes.Unary) -> Type:
        """``! ~ - * & ++ --``."""
        type_: Type = methods(Operators)[node.operator](self, node)
        return type_

    @handles_names("!")
    def _logical_not(self, node: nodes.Unary) -> Type:
        decided = self.checker.condition(node.operand)
        if decided is not None:
            self.checker.set_constant(node, not decided)
        return BOOL

    @handles_names("-")
    def _negate(self, node: nodes.Unary) -> Type:
        # Once: checking an operand twice would take 2**n steps of n minus signs.
        type_ = self.checker.value(node.operand)
        if isinstance(type_, Float):
            return type_
        type_ = self.checker.as_integer(type_, node.operand, "the operand of -")
        value = self.checker.constant(node.operand)
        if isinstance(type_, Unknown):
            return UNKNOWN
        if not isinstance(value, int):
            return INT64
        free = isinstance(type_, Flexible)
        try:
            result = fold_arithmetic("-", 0, value, None if free else INT64)
        except FoldError as problem:
            return self.checker.error(str(problem), node.span)
        self.checker.set_constant(node, result)
        return literal(result) if free else INT64

    @handles_names("~")
    def _complement(self, node: nodes.Unary) -> Type:
        type_ = self.checker.integer(node.operand, "the operand of ~")
        value = self.checker.constant(node.operand)
        if isinstance(value, int):
            result = wrap(~value, UINT64)
            self.checker.set_constant(node, result)
            return UINT64
        return UNKNOWN if isinstance(type_, Unknown) else UINT64

    @handles_names("*")
    def _dereference(self, node: nodes.Unary) -> Type:
        type_ = self.checker.value(node.operand)
        if isinstance(type_, Unknown):
            return UNKNOWN
        mark = self.members.mark_of_number(node.operand)
        if mark is not None:
            self.checker.retyped[node.operand] = Pointer(UINT64, mark)
            return UINT64
        known = isinstance(type_, Int | Flexible) and self.checker.constant(node.operand) is not None
        if known or (isinstance(type_, Int) and type_.width == 8):
            # Scripts dereference the addresses of kaddr(), reg() and arguments without a cast, meaning 64-bit words.
            self.checker.retyped[node.operand] = Pointer(UINT64)
            return UINT64
        if not isinstance(type_, Pointer):
            return self.checker.error(f"{settle(type_)} is not a pointer", node.span, hints=["cast it: *(uint64 *)…"])
        if isinstance(type_.target, Void):
            return self.checker.error(
                "a void pointer cannot be dereferenced", node.span, hints=["cast it to another pointer"]
            )
        return loaded(self.members.inherit(type_.target, type_))

    @handles_names("&")
    def _address(self, node: nodes.Unary) -> Type:
        target = node.operand
        if isinstance(target, nodes.Variable):
            state = self.checker.scope.find(target.name)
            if state is not None:
                state.assigned = True
            type_ = self.checker.value(target)
        elif isinstance(target, nodes.MapRef | nodes.MapIndex):
            type_ = self.checker.value(target)
        else:
            self.checker.value(target)
            return self.checker.error("& needs a variable or a map", node.span)
        return UNKNOWN if isinstance(type_, Unknown) else Pointer(settle(type_), AddressSpace.BPF)

    @handles_names("++", "--")
    def _increment(self, node: nodes.Unary) -> Type:
        target = node.operand
        change: Type = COUNTING if node.operator == "++" else INT64
        if isinstance(target, nodes.Variable):
            return self._increment_variable(node, target, change)
        if isinstance(target, nodes.MapRef):
            state = self.maps.use_scalar(target)
        elif isinstance(target, nodes.MapIndex):
            state = self.maps.use_keyed(target)
        else:
            self.checker.value(target)
            return self.checker.error(f"{node.operator} needs a variable or a map", node.span)
        if state is None:
            return UNKNOWN
        current = state.value.type
        if isinstance(current, Pointer):
            change = current
        self.checker.put_map(state.name, state.value, change, node.span, "value")
        self.checker.program.types[target] = state.value.type
        return state.value.type

    def _increment_variable(self, node: nodes.Unary, target: nodes.Variable, change: Type) -> Type:
        current = self.checker.value(target)
        state = self.checker.scope.find(target.name)
        if state is None:
            return UNKNOWN
        if isinstance(current, Pointer):
            change = current
        elif isinstance(current, Int) and state.slot.fixed is not None:
            # A declared variable keeps its width: the step wraps around as in C.
            change = current
        elif not is_condition(current):
            return self.checker.error(f"{node.operator} needs an integer, not {settle(current)}", node.span)
        self.checker.put(state, change, node.span)
        return state.slot.type
