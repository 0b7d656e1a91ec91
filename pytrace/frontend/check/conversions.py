"""Types during inference: widening, unification, assignability; constant folding.

During inference, an integer constant has the type :class:`Flexible`, a range of constants: it takes the signedness and
width of the types that it is combined with. :func:`settle` turns it into the smallest real type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

from msgspec.structs import replace

from pytrace.core.types import (
    INT64,
    UINT64,
    VOID,
    AddressSpace,
    Array,
    Bool,
    Buffer,
    Data,
    Enum,
    Fixed,
    Inet,
    Int,
    Joined,
    Members,
    Pointer,
    Record,
    Signed,
    Stack,
    String,
    Tuple,
    Type,
    Void,
)

T = TypeVar("T", bound=Type)
INT64_MIN, INT64_MAX, UINT64_MAX = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1


class Unknown(Data, frozen=True):
    """Not inferred yet, or the type of an expression with a reported error; compatible with every type."""

    tag: ClassVar[str] = "unknown"

    def __str__(self) -> str:
        return "unknown"


class Flexible(Data, frozen=True):
    """Integer constants between *low* and *high*; only during inference."""

    low: int
    high: int
    tag: ClassVar[str] = "literal"
    scalar: ClassVar[bool] = True

    @property
    def size(self) -> int:
        return _settle_range(self.low, self.high).size

    @property
    def align(self) -> int:
        return self.size

    def __str__(self) -> str:
        return str(_settle_range(self.low, self.high))


UNKNOWN = Unknown()


def literal(value: int) -> Flexible:
    """The type of one integer constant."""
    return Flexible(value, value)


def _settle_range(low: int, high: int) -> Int:
    """The smallest signed type that holds a range, or uint64 when only that does."""
    for width in (1, 2, 4, 8):
        candidate = Int(width, True)
        if candidate.low <= low and high <= candidate.high:
            return candidate
    return UINT64 if low >= 0 else INT64


def settle(type_: Type) -> Type:
    """The value type for a type that inference may use: constants become integers."""
    if isinstance(type_, Flexible):
        return _settle_range(type_.low, type_.high)
    if isinstance(type_, Tuple):
        return Tuple(tuple(settle(member) for member in type_.members))
    if isinstance(type_, Record):
        return Record(type_.names, tuple(settle(member) for member in type_.members))
    if isinstance(type_, Joined):
        return Joined(type_.separator, tuple(settle(member) for member in type_.members), type_.formatted)
    if isinstance(type_, Signed) and type_.either:
        return type(type_)(type_.signed)
    return type_


def contains_unknown(type_: Type) -> bool:
    """True when a part of the type is not known."""
    if isinstance(type_, Members):
        return any(contains_unknown(member) for member in type_.members)
    return isinstance(type_, Unknown)


def nesting(type_: Type) -> int:
    """Nesting depth of tuples and records."""
    return 1 + max(map(nesting, type_.members), default=0) if isinstance(type_, Members) else 0


def parts(type_: Type) -> int:
    """Number of values in a tuple or record, nested ones included."""
    return sum(map(parts, type_.members)) if isinstance(type_, Members) else 1


def is_integer(type_: Type) -> bool:
    """True for integers, constants and enums."""
    return isinstance(type_, Int | Flexible | Enum)


def is_condition(type_: Type) -> bool:
    """True for types that can be the condition of an ``if``."""
    return isinstance(type_, Int | Flexible | Enum | Bool | Pointer | Unknown)


def integer_of(type_: Type) -> Int | Flexible:
    """The integer type that represents a scalar."""
    if isinstance(type_, Int | Flexible):
        return type_
    if isinstance(type_, Enum):
        return type_.integer
    if isinstance(type_, Bool):
        return Flexible(0, 1)
    return UINT64


# ---------------------------------------------------------------------------------------------- unification


def unify(first: Type, second: Type) -> Type | None:
    """The type of a slot that can hold values of both types; None when there is none."""
    if isinstance(first, Unknown):
        return second
    if isinstance(second, Unknown) or first == second:
        return first
    for rule in _RULES:
        applies, common = rule(first, second)
        if applies:
            return common
    return None


def _unify_integers(first: Type, second: Type) -> Type:
    """A common integer type for two scalars; int64 if no type holds both (see :func:`signs_differ`)."""
    a, b = integer_of(first), integer_of(second)
    if isinstance(a, Flexible) and isinstance(b, Flexible):
        return Flexible(min(a.low, b.low), max(a.high, b.high))
    if isinstance(a, Flexible):
        a, b = b, a
    assert isinstance(a, Int)
    if isinstance(b, Flexible):
        return _widen(a, b)
    if a.signed == b.signed:
        return a if a.width >= b.width else b
    signed, unsigned = (a, b) if a.signed else (b, a)
    return Int(min(8, max(signed.width, unsigned.width * 2)), True)


def _widen(type_: Int, constants: Flexible) -> Int:
    if constants.low >= 0 and not type_.signed:
        width = next((w for w in (1, 2, 4, 8) if constants.high <= Int(w, False).high), 8)
        return Int(max(type_.width, width), False)
    needed = _settle_range(constants.low, constants.high)
    if type_.signed:
        return Int(max(type_.width, needed.width), True)
    return Int(min(8, max(needed.width, type_.width * 2)), True)


def signs_differ(first: Type, second: Type) -> bool:
    """True when two integers of different sign have no common type (one is a uint64, the other may be negative)."""
    a, b = integer_of(first), integer_of(second)
    if isinstance(a, Flexible):
        a, b = b, a
    if isinstance(a, Flexible):
        return False
    if isinstance(b, Flexible):
        return (not a.signed and a.width == 8 and b.low < 0) or (a.signed and b.high > INT64_MAX)
    return a.signed != b.signed and (b if a.signed else a).width == 8


def _unify_enums(first: Enum, second: Enum) -> Type:
    return first if first == second else _unify_integers(first, second)


def _unify_sized(first: String | Buffer, second: String | Buffer) -> Type:
    return first if first.capacity >= second.capacity else second


def _unify_pointers(first: Pointer, second: Pointer) -> Type | None:
    if first.target == second.target:
        target = first.target
    elif isinstance(first.target, Void) or isinstance(second.target, Void):
        target = VOID
    else:
        return None
    space = first.space if first.space is second.space else AddressSpace.NONE
    return Pointer(target, space, first.trusted and second.trusted)


def _unify_tuples(first: Tuple, second: Tuple) -> Type | None:
    if len(first.members) != len(second.members):
        return None
    members = [unify(a, b) for a, b in zip(first.members, second.members, strict=True)]
    common = tuple(member for member in members if member is not None)
    return Tuple(common) if len(common) == len(members) else None


def _unify_records(first: Record, second: Record) -> Type | None:
    if sorted(first.names) != sorted(second.names):
        return None
    other = dict(zip(second.names, second.members, strict=True))
    members = [unify(kind, other[name]) for name, kind in zip(first.names, first.members, strict=True)]
    common = tuple(member for member in members if member is not None)
    return Record(first.names, common) if len(common) == len(members) else None


def _unify_arrays(first: Array, second: Array) -> Type | None:
    if first.count != second.count:
        return None
    if isinstance(first.element, Pointer) and isinstance(second.element, Pointer):
        element = _unify_pointers(first.element, second.element)
        return None if element is None else Array(element, first.count)
    if not isinstance(first.element, Int) or not isinstance(second.element, Int):
        return None
    return first if first.element.width == second.element.width else None


def _unify_stacks(first: Stack, second: Stack) -> Type | None:
    if first.user != second.user or first.mode is not second.mode:
        return None
    return first if first.limit >= second.limit else second


def _unify_fixed(first: Fixed, second: Fixed) -> Type | None:
    if replace(first, signed=True) != replace(second, signed=True):
        return None
    return first if first.signed else second


def _unify_joined(first: Joined, second: Joined) -> Type | None:
    members = _unify_tuples(Tuple(first.members), Tuple(second.members))
    same = (first.separator, first.formatted) == (second.separator, second.formatted)
    return Joined(first.separator, members.members, first.formatted) if same and isinstance(members, Tuple) else None


def _unify_signed(first: Signed, second: Signed) -> Type | None:
    if type(first) is not type(second):
        return None
    if first.either or second.either:
        return second if first.either else first
    return type(first)(signed=True)


def _for_both(*kinds: type[T], rule: Callable[[T, T], Type | None]) -> Callable[[Type, Type], tuple[bool, Type | None]]:
    """Apply *rule* to pairs of types that are both of *kinds*. Returns whether it applies, and its result."""

    def unify_both(first: Type, second: Type) -> tuple[bool, Type | None]:
        if isinstance(first, kinds) and isinstance(second, kinds):
            return True, rule(first, second)
        return False, None

    return unify_both


_RULES = (
    _for_both(Enum, rule=_unify_enums),
    _for_both(Int, Flexible, Enum, Bool, rule=_unify_integers),
    _for_both(String, rule=_unify_sized),
    _for_both(Buffer, rule=_unify_sized),
    _for_both(Pointer, rule=_unify_pointers),
    _for_both(Tuple, rule=_unify_tuples),
    _for_both(Record, rule=_unify_records),
    _for_both(Fixed, rule=_unify_fixed),
    _for_both(Joined, rule=_unify_joined),
    _for_both(Array, rule=_unify_arrays),
    _for_both(Stack, rule=_unify_stacks),
    _for_both(Signed, rule=_unify_signed),
    _for_both(Inet, rule=lambda first, _second: first),
)
"""Rules of unification; the first one that applies decides."""


# ---------------------------------------------------------------------------------------------- assignability


def fits(value: Type, slot: Type) -> bool:
    """True when a value of type *value* may go into a slot whose type is fixed, without loss."""
    if isinstance(value, Unknown) or isinstance(slot, Unknown) or value == slot:
        return True
    if isinstance(slot, Int | Enum):
        return isinstance(value, Int | Flexible | Enum | Bool) and _range_fits(value, slot)
    if isinstance(slot, Bool):
        return isinstance(value, Flexible) and value.low >= 0 and value.high <= 1
    if isinstance(slot, Tuple) and isinstance(value, Tuple):
        return len(slot.members) == len(value.members) and all(map(fits, value.members, slot.members))
    if isinstance(slot, Record) and isinstance(value, Record):
        by_name = dict(zip(value.names, value.members, strict=True))
        return sorted(slot.names) == sorted(value.names) and all(
            fits(by_name[name], member) for name, member in zip(slot.names, slot.members, strict=True)
        )
    if isinstance(slot, Pointer) and isinstance(value, Pointer):
        return _unify_pointers(slot, value) is not None
    common = unify(settle(slot), settle(value))
    return common == slot


def _range_fits(value: Type, slot: Int | Enum) -> bool:
    target = slot.integer if isinstance(slot, Enum) else slot
    range_ = integer_of(value)
    return target.low <= range_.low and range_.high <= target.high


# ---------------------------------------------------------------------------------------------- constant folding


def wrap(value: int, type_: Int) -> int:
    """*value* truncated to the width of *type_*, with its signedness."""
    value &= (1 << (8 * type_.width)) - 1
    return value - (1 << (8 * type_.width)) if type_.signed and value > type_.high else value


# ---------------------------------------------------------------------------------------------- texts


CONVERT = "BPF has no floating-point arithmetic: convert the number first, by (int64)$d or scaled($d, 1000)"


def is_text(type_: Type) -> bool:
    """True for strings and arrays of characters."""
    return isinstance(type_, String) or (
        isinstance(type_, Array) and isinstance(type_.element, Int) and type_.element.width == 1
    )


def is_text_pointer(type_: Type) -> bool:
    """True for pointers to characters."""
    return isinstance(type_, Pointer) and isinstance(type_.target, Int) and type_.target.width == 1
