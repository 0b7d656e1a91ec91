"""Slots: the variables, map keys and map values of a script while their types are inferred.

Each pass over the program collects the types that are stored in a slot. Once a pass changes no type, the final pass
follows, which reports what does not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytrace.core.types import INT64, VOID, Bool, Count, Enum, Int, Pointer, String, Type
from pytrace.frontend.ast.typed_program import VariableInfo
from pytrace.frontend.check.inference.conversions import (
    UNKNOWN,
    Unknown,
    constant_outside,
    contains_unknown,
    fits,
    settle,
    signs_differ,
    unify,
)

if TYPE_CHECKING:
    from pytrace.core.source import Span
    from pytrace.frontend.ast import nodes

HYGIENE = "#"
"""Separates a variable's name from the number of its expansion; it cannot occur in a script."""

SETTLE_AFTER = 20
"""Number of passes after which types can only grow, so that inference terminates."""


class Removed(msgspec.Struct, frozen=True):
    """Removed code: *what* is the reason for messages, *span* its location when that is not the statement itself.

    *spare*: it was removed before type inference (by ``if comptime``, or with its whole probe).
    """

    what: str
    span: Span | None
    spare: bool


class Slot(msgspec.Struct):
    """A variable, map key or map value."""

    known: Type = UNKNOWN
    """The type as of the last complete pass."""
    inferred: Type = UNKNOWN
    """The type of the values that the current pass has stored so far."""
    fixed: Type | None = None
    """Declared type."""
    locked: Type | None = None
    """Type that ``typeof`` or ``sizeof`` relied on."""
    lock: Span | None = None
    first: Span | None = None
    """The first assignment in this pass."""
    offered: Type = UNKNOWN
    """The type of values stored by unreachable code; used if it is compatible."""
    spare: Type = UNKNOWN
    """The type of values stored by code removed before inference; used if nothing else determines the type."""
    fallback: Type = UNKNOWN
    """The type for a declared map that is never assigned."""
    changed: int = 0
    """Number of the last pass that started with a different type than the pass before it."""

    @property
    def type(self) -> Type:
        """The slot's type, as far as known."""
        if self.fixed is not None:
            return self.fixed
        return self.inferred if isinstance(self.known, Unknown) else self.known

    def takes(self, type_: Type, place: Span) -> bool:
        """Store a value of type *kind*. Returns False when it does not fit."""
        if isinstance(type_, Unknown):
            return True
        if self.fixed is not None:
            return fits(type_, self.fixed)
        type_ = _stored(type_)
        common = unify(self.inferred, type_)
        if common is None or not self._keeps(type_) or constant_outside(self.inferred, type_):
            return False
        self.inferred = common
        if self.first is None:
            self.first = place
        return True

    def offer(self, type_: Type, *, spare: bool) -> None:
        """Record a type that removed code would store; a type that conflicts with earlier offers is ignored."""
        if contains_unknown(type_):
            return
        if spare:
            self.spare = unify(self.spare, _stored(type_)) or self.spare
        else:
            self.offered = unify(self.offered, _stored(type_)) or self.offered

    def mixes_signs(self, type_: Type) -> bool:
        """True when *type_* makes the slot an int64 although neither holds the other's values."""
        scalars = Int | Enum | Bool
        return isinstance(self.inferred, scalars) and isinstance(type_, scalars) and signs_differ(self.inferred, type_)

    def other_sign(self, type_: Type) -> bool:
        """Whether *type_* is an integer type that would fit the fixed type except for its sign."""
        fixed = self.fixed
        if not isinstance(fixed, Int) or not isinstance(type_, Int):
            return False
        return fixed.signed is not type_.signed and type_.size <= fixed.size

    def lock_now(self, place: Span) -> None:
        """Record that the type was relied on at *place*: later statements must not change it."""
        if self.locked is None and not isinstance(self.known, Unknown):
            so_far = self.known if isinstance(self.inferred, Unknown) else self.inferred
            self.locked, self.lock = settle(so_far), place

    def _keeps(self, type_: Type) -> bool:
        """Whether the locked type also holds values of type *type_*."""
        if self.locked is None:
            return True
        common = unify(self.locked, type_)
        return common is not None and settle(common) == self.locked

    def begin(self, number: int) -> bool:
        """Start pass *number*; True when the last one changed the type."""
        if number > SETTLE_AFTER:
            type_ = unify(self.known, self.inferred) or self.inferred
            type_ = self.fallback if isinstance(type_, Unknown) else type_
        else:
            type_ = self._collected()
        changed = type_ != self.known
        if changed:
            self.changed = number
        self.known, self.inferred, self.first = type_, UNKNOWN, None
        self.offered = self.spare = UNKNOWN
        return changed

    def _collected(self) -> Type:
        """The type collected by the last pass, including the offers of removed code."""
        common = unify(self.inferred, self.offered)
        if common is None or not self._keeps(self.offered) or constant_outside(self.inferred, self.offered):
            common = self.inferred
        if isinstance(common, Unknown):
            return self.fallback if isinstance(self.spare, Unknown) else self.spare
        return common


def _stored(type_: Type) -> Type:
    """The type of a value after it is stored: the verifier loses the BTF type of a stored pointer."""
    return Pointer(type_.target, type_.space) if isinstance(type_, Pointer) and type_.trusted else type_


class VariableState(msgspec.Struct):
    """The state of one declaration of a scratch variable."""

    name: str
    node: nodes.Variable
    slot: Slot
    info: VariableInfo
    span: Span
    """Span of the declaration: ``let $x`` or the first assignment."""
    declared: bool = False
    """Whether it is declared by ``let``."""
    assigned: bool = False
    offered: bool = False
    """Whether unreachable code assigns to it."""
    read: bool = False
    loop: bool = False
    """Whether a ``for`` sets it."""


class MapState(msgspec.Struct):
    """The state of a map."""

    name: str
    key: Slot = msgspec.field(default_factory=Slot)
    value: Slot = msgspec.field(default_factory=Slot)
    keyed: bool | None = None
    keyed_at: Span | None = None
    """The first use with or without key."""
    keyed_offered: bool = False
    """Whether all such uses are in unreachable code."""
    declaration: nodes.MapDecl | None = None
    used: bool = False
    """Whether reachable code uses it."""
    named: bool = False
    """Whether any code names it."""
    span: Span | None = None
    removed: tuple[str, Span] | None = None
    """The removed code that assigns to it."""

    @property
    def incomplete(self) -> bool:
        """Whether its types are not known, or not completely."""
        return contains_unknown(self.value.type) or (bool(self.keyed) and contains_unknown(self.key.type))

    @property
    def supplied(self) -> bool:
        """Whether :meth:`make_empty` has set its types, which apply only while nothing is stored."""
        return not isinstance(self.value.fallback, Unknown)

    def make_empty(self) -> None:
        """Set the types of a map that is declared and never assigned."""
        if self.keyed is None:
            self.keyed = True
        percpu = self.declaration is not None and self.declaration.kind.startswith("percpu")
        self.value.fallback = Count() if percpu else INT64
        self.key.fallback = INT64

    @property
    def slots(self) -> tuple[Slot, Slot]:
        """Key and value."""
        return self.key, self.value


def shown_name(name: str) -> str:
    """A variable's name as the script spells it."""
    return name.partition(HYGIENE)[0]


def new_variable(node: nodes.Variable, span: Span) -> VariableState:
    """The state of a variable that *node* declares."""
    name = shown_name(node.name)
    return VariableState(name, node, Slot(), VariableInfo(name, VOID, node.span), span)


def flexible_string(type_: Type) -> bool:
    """True for a declared ``string`` without capacity, which takes its size from the values."""
    return isinstance(type_, String) and type_.capacity == 0
