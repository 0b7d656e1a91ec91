"""Slots: the variables, map keys and map values of a script while their types are inferred; block scopes.

Each pass over the program collects the types that are stored in a slot. Once a pass changes no type, the final pass
follows, which reports what does not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytrace.core.diagnostics import did_you_mean
from pytrace.core.source import Span
from pytrace.core.types import INT64, VOID, AddressSpace, Bool, Count, Enum, Int, Pointer, String, Type
from pytrace.frontend.check.inference.conversions import (
    UNKNOWN,
    Flexible,
    Unknown,
    constant_outside,
    contains_unknown,
    describe,
    fits,
    is_integer,
    settle,
    signs_differ,
    unify,
)
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import HYGIENE
from pytrace.frontend.syntax.typed_program import VariableInfo

if TYPE_CHECKING:
    from pytrace.frontend.check.inference.checker import Checker

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
    untyped: bool = False
    """Whether a value without a type was stored: its expression has an error."""
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
            self.untyped = True
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


def new_variable(node: nodes.Variable, span: Span) -> VariableState:
    """The state of a variable that *node* declares."""
    name = node.shown
    return VariableState(name, node, Slot(), VariableInfo(name, VOID, node.span), span)


def flexible_string(type_: Type) -> bool:
    """True for a declared ``string`` without capacity, which takes its size from the values."""
    return isinstance(type_, String) and type_.capacity == 0


# ---------------------------------------------------------------------------------------------- block scopes


class Scope(msgspec.Struct):
    """The variables of one block. Names cannot be shadowed: look-up proceeds outwards, and a declaration checks all
    enclosing scopes.
    """

    parent: Scope | None
    names: dict[str, VariableState] = msgspec.field(default_factory=dict)
    ended: dict[str, VariableState] = msgspec.field(default_factory=dict)
    """Variables of inner blocks that have ended, for messages."""

    def find(self, name: str) -> VariableState | None:
        """The variable that *name* refers to here."""
        scope: Scope | None = self
        while scope is not None:
            state = scope.names.get(name)
            if state is not None:
                return state
            scope = scope.parent
        return None

    def visible(self) -> list[str]:
        """All names that are visible here."""
        names: list[str] = []
        scope: Scope | None = self
        while scope is not None:
            names.extend(scope.names)
            scope = scope.parent
        return names

    def close(self, checker: Checker) -> None:
        """End the block: warn about unused declarations, and record the names for later messages."""
        for state in self.names.values():
            if state.declared and not state.assigned and not state.offered:
                checker.warn(f"${state.name} is never assigned", state.span)
        if self.parent is not None:
            self.parent.ended.update(self.names)
            self.parent.ended.update(self.ended)


def declare_new(
    checker: Checker, node: nodes.Variable, span: Span, *, declared: bool = False, loop: bool = False
) -> VariableState:
    """Declare a variable (``let``, ``for``); reports an error if it exists already."""
    existing = checker.scope.find(node.name)
    if existing is not None and existing.node is not node:
        same = node.name in checker.scope.names
        message = f"${node.shown} is already declared"
        if not same:
            message = f"${node.shown} would hide a variable of an outer block"
        checker.error(message, span, notes=[("first declared here", existing.span)], hints=["use another name"])
    return checker.declare(node, span, declared=declared, loop=loop)


def unknown_variable(checker: Checker, node: nodes.Variable) -> None:
    """Report a read of a variable that does not exist."""
    name = node.shown
    notes, hints = [], did_you_mean("$" + name, ("$" + item for item in checker.scope.visible() if HYGIENE not in item))
    scope = checker.scope
    if HYGIENE in node.name and scope.find(name) is not None:
        hints = (f"a macro sees only its own variables: add ${name} to its parameters",)
    if node.name in scope.ended:
        notes.append(("it exists only in this block", scope.ended[node.name].span))
        hints = (f"declare it before the block: let ${name};",)
    elif not hints and any(state.name == node.name for state in checker.variables.values()):
        hints = (f"a variable belongs to one run of one probe; a map such as @{name}[tid] is shared by all probes",)
    checker.error(f"undefined variable ${name}", node.span, notes=notes, hints=hints)


# ---------------------------------------------------------------------------------------------- assignment


def put(checker: Checker, state: VariableState, type_: Type, place: Span, *, known: bool = True) -> bool:
    """Assign a value to a variable; reports an error when it does not fit.

    Args:
        checker: the state of analysis.
        state: the variable.
        type_: the type of the value.
        place: where it is assigned, for messages.
        known: constants in *type_* come from the value itself, not from a variable that holds them.

    Returns:
        Whether it fits.
    """
    slot = state.slot
    if checker.removed is not None:
        state.offered = True
        slot.offer(type_, spare=checker.removed.spare)
        return True
    mixed = slot.mixes_signs(type_)
    _warn_spaces(checker, slot, type_, place)
    state.assigned = True
    if slot.takes(type_, place):
        if mixed:
            checker.warn(f"${state.name} becomes int64: it holds both signed and unsigned 64-bit values", place)
        return True
    if slot.other_sign(type_ if known else settle(type_)):
        checker.warn(f"${state.name} is {slot.fixed}: the value, which is {settle(type_)}, is cast to it", place)
        return True
    _misfit(checker, f"${state.name}", slot, type_, place, state.span)
    return False


def put_map(checker: Checker, name: str, slot: Slot, type_: Type, place: Span, what: str) -> bool:
    """Use a type as key or value of a map; reports an error when it does not fit.

    Args:
        checker: the state of analysis.
        name: the map.
        slot: its key or value.
        type_: the type that is used.
        place: where it is used, for messages.
        what: ``key`` or ``value``.

    Returns:
        Whether it fits.
    """
    if checker.removed is not None:
        if what == "value":
            checker.maps[name].removed = (checker.removed.what, checker.removed.span or place)
        slot.offer(type_, spare=checker.removed.spare)
        return True
    mixed = slot.mixes_signs(type_)
    _warn_spaces(checker, slot, type_, place)
    if slot.takes(type_, place):
        if mixed:
            checker.warn(f"the {what} of {name} becomes int64: it holds signed and unsigned 64-bit values", place)
        return True
    _misfit(checker, f"the {what} of {name}", slot, type_, place, None)
    return False


def _warn_spaces(checker: Checker, slot: Slot, type_: Type, place: Span) -> None:
    have = slot.fixed if slot.fixed is not None else slot.inferred
    if not isinstance(have, Pointer) or not isinstance(type_, Pointer) or have.space is type_.space:
        return
    if AddressSpace.NONE not in (have.space, type_.space):
        checker.warn(
            f"a pointer into {type_.space.value} memory is assigned where one into {have.space.value} memory was",
            place,
            hints=["mark the pointer by kptr() or uptr() where it is dereferenced"],
        )


def _misfit(checker: Checker, what: str, slot: Slot, type_: Type, place: Span, declared: Span | None) -> None:
    have = settle(slot.fixed if slot.fixed is not None else slot.inferred)
    notes: list[tuple[str, Span]] = []
    if slot.fixed is not None and declared is not None:
        notes.append(("declared here", declared))
    elif slot.locked is not None and slot.lock is not None:
        have = slot.locked
        notes.append(("its type is used here", slot.lock))
    elif slot.first is not None:
        notes.append(("first used here", slot.first))
    mismatch = f"this is {describe(type_)}"
    if isinstance(type_, Flexible) and isinstance(have, Int):
        mismatch = f"which holds {have.low} to {have.high}, not {type_.low if type_.low < have.low else type_.high}"
    checker.error(f"{what} is {describe(have)}, {mismatch}", place, notes=notes, hints=_cast_hint(have, type_))


def _cast_hint(have: Type, type_: Type) -> tuple[str, ...]:
    if is_integer(have) and is_integer(type_):
        return (f"write ({have}) before the value to truncate it on purpose",)
    if isinstance(have, String) != isinstance(settle(type_), String):
        return ("a variable, and the key and value of a map, keep one type: use another name for the other",)
    return ()
