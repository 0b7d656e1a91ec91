"""The state of semantic analysis: slots whose types are inferred, scopes, messages, passes.

A :class:`Checker` traverses the whole program several times. All passes but the last only infer types (their
diagnostics are discarded); the last one changes no type, reports errors, and fills the tables of the
:class:`~pytrace.frontend.syntax.typed_program.CheckedProgram`. Each pass collects the types that are stored in a slot
(a variable, the key or the value of a map).

The rules are methods of its collaborators (``Expressions``, ``Members``, ``Statements`` …). Each of them states which
classes of expressions it handles and adds these to :attr:`Checker.rules`, by which :meth:`Checker.value` finds them.

Types are also inferred from removed code: ``if comptime``, unreachable statements, skipped probes. They are inferred
from the whole script, so that they do not depend on which part of it runs: ``/has_cpid/`` is false without ``-c``, and
``clear(@m)`` elsewhere still needs the type of ``@m``. Removed code is checked like any other, but its errors are not
reported, it is not passed to the generator, and on a conflict with code that runs, the latter decides. Code that is
removed before type inference (by ``if comptime``, or with a probe that is left out) is used only when nothing else
determines the type of a map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from pytrace.core.diagnostics import Diagnostics, InternalError, Note, did_you_mean
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options import CompileOptions, Config
from pytrace.core.source import Span, expansion_chain
from pytrace.core.types import (
    INT64,
    UINT64,
    VOID,
    AddressSpace,
    Bool,
    Count,
    Enum,
    Fixed,
    Hist,
    Int,
    Joined,
    LHist,
    Pointer,
    Stack,
    String,
    TSeries,
    Type,
)
from pytrace.frontend.check.conversions import (
    INT64_MAX,
    UNKNOWN,
    Flexible,
    Unknown,
    contains_unknown,
    fits,
    integer_of,
    is_condition,
    is_integer,
    settle,
    signs_differ,
    unify,
)
from pytrace.frontend.expand.c_definitions import Definitions
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import HYGIENE
from pytrace.frontend.syntax.typed_program import (
    LIBRARY_PREFIX,
    CheckedProgram,
    FunctionInfo,
    ImportedFunction,
    LoadTime,
    ProbeUnit,
    VariableInfo,
)

SETTLE_AFTER = 20
"""Number of passes after which types can only grow, so that inference terminates."""


class Removed(msgspec.Struct, frozen=True):
    """Removed code: *what* is the reason for messages, *span* its location when that is not the statement itself.

    *spare*: it was removed before type inference (by ``if comptime``, or with its whole probe).
    """

    what: str
    span: Span | None
    spare: bool


def _constant_outside(first: Type, second: Type) -> bool:
    """True when one of two integers is a constant that needs uint64, and the other one may be negative."""
    if not is_integer(first) or not is_integer(second):
        return False
    pair = integer_of(first), integer_of(second)
    large = any(isinstance(type_, Flexible) and type_.high > INT64_MAX for type_ in pair)
    return large and any(type_.low < 0 for type_ in pair)


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
        type_ = _stored_type(type_)
        common = unify(self.inferred, type_)
        if common is None or not self._lock_holds(type_) or _constant_outside(self.inferred, type_):
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
            self.spare = unify(self.spare, _stored_type(type_)) or self.spare
        else:
            self.offered = unify(self.offered, _stored_type(type_)) or self.offered

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

    def _lock_holds(self, type_: Type) -> bool:
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
            # What the last pass collected, with the offers of removed code.
            common = unify(self.inferred, self.offered)
            if common is None or not self._lock_holds(self.offered) or _constant_outside(self.inferred, self.offered):
                common = self.inferred
            type_ = common
            if isinstance(type_, Unknown):
                type_ = self.fallback if isinstance(self.spare, Unknown) else self.spare
        changed = type_ != self.known
        if changed:
            self.changed = number
        self.known, self.inferred, self.first = type_, UNKNOWN, None
        self.offered = self.spare = UNKNOWN
        return changed


def _stored_type(type_: Type) -> Type:
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
    """True after a declaration by ``let``."""
    assigned: bool = False
    offered: bool = False
    """Whether unreachable code assigns to it."""
    read: bool = False
    loop: bool = False
    """Whether a ``for`` sets it."""
    members: tuple[str, ...] = ()
    """What the script calls the members of the tuple that it has."""


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
    key_names: tuple[str, ...] = ()
    """What its first key with so many members calls them; empty where an expression has no name."""
    removed: tuple[str, Span] | None = None
    """The removed code that assigns to it."""

    @property
    def incomplete(self) -> bool:
        """True while its types are not known completely."""
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


def _new_variable(node: nodes.Variable, span: Span) -> VariableState:
    """The state of a variable that *node* declares."""
    name = node.shown
    return VariableState(name, node, Slot(), VariableInfo(name, VOID, node.span), span)


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


def _cast_hint(have: Type, type_: Type) -> tuple[str, ...]:
    if is_integer(have) and is_integer(type_):
        return (f"write ({have}) before the value to truncate it on purpose",)
    if isinstance(have, String) != isinstance(settle(type_), String):
        return ("a variable, and the key and value of a map, keep one type: use another name for the other",)
    return ()


Node = nodes.Call | nodes.Identifier
"""A use of a builtin: a call, or its bare name."""
Arguments = tuple[nodes.Expr | nodes.TypeExpr, ...]

NEVER_REACHED = Removed("unreachable code", None, spare=False)
TAKEN_OUT = Removed("removed by if comptime", None, spare=True)


def skipped_probe(probe: Span) -> Removed:
    """The reason for removing a probe without targets."""
    return Removed("this probe was skipped", probe, spare=True)


def _describe(type_: Type) -> str:
    """A type for messages, with the parameters that its name lacks."""
    type_ = settle(type_)
    if isinstance(type_, Hist):
        return f"a histogram with {1 << type_.bits} bucket{'s' if type_.bits else ''} a power of two"
    if isinstance(type_, LHist):
        return f"lhist_t from {type_.low} to {type_.high} by {type_.step}"
    if isinstance(type_, TSeries):
        reduction = f" by {type_.reduce}" if type_.reduce else ""
        return f"tseries_t of {type_.count} intervals of {type_.interval} ns{reduction}"
    if isinstance(type_, Fixed) and type_.path:
        return f"{type_} of {type_.path}"
    if isinstance(type_, Fixed):
        return f"{type_} of divisor {type_.divisor} with {type_.digits} decimals"
    if isinstance(type_, Joined):
        members = ", ".join(map(_describe, type_.members))
        return f"{type_} with {type_.separator!r} between {members}"
    if isinstance(type_, Stack):
        return f"{type_} in {type_.mode.value} mode"
    return str(type_)


def user_span(span: Span) -> Span:
    """*span*, or for a span inside the library the call in the user's script that it was expanded from."""
    chain = (span, *expansion_chain(span))
    return next((item for item in chain if not item.source.name.startswith(LIBRARY_PREFIX)), span)


class Checker:
    """Semantic analysis of one script."""

    def __init__(
        self,
        options: CompileOptions,
        kernel: KernelInfo,
        definitions: Definitions,
        config: Config,
        diagnostics: Diagnostics,
    ) -> None:
        self.rules: dict[type[nodes.Expr], Callable[[nodes.Expr], Type]] = {}
        """Typing rules by class of expression: methods of the collaborators, which ``Analysis`` adds."""
        self.options = options
        self.kernel = kernel
        self.definitions = definitions
        self.config = config
        self.reported = diagnostics
        self.diagnostics = Diagnostics()
        self.program = CheckedProgram(provenance=options.provenance)
        self.final = False
        self.number = 0
        self.unit: ProbeUnit | None = None
        self.function: FunctionInfo | None = None
        self.functions: dict[str, FunctionInfo] = {}
        self.imported: dict[str, ImportedFunction | None] = {}
        """Functions of imported C; None for static functions, which cannot be called."""
        self.maps: dict[str, MapState] = {}
        self.variables: dict[nodes.Variable, VariableState] = {}
        self.scope = Scope(None)
        self.loops = 0
        self.map_loops = 0
        self.aggregate: nodes.Expr | None = None
        """The call of count(), sum() … that is currently allowed: the right side of a map assignment."""
        self.retyped: dict[nodes.Expr, Type] = {}
        """Expressions whose type for the generator differs from their own."""
        self.callees: list[tuple[FunctionInfo, Span]] = []
        """Functions that the current body calls, and the spans of the calls."""
        self.locking: Span | None = None
        """Set while the operand of a type query (``sizeof`` …) is checked, which locks the types of slots it reads."""
        self.word_hints: dict[nodes.Identifier, str] = {}
        """Hints for bare words, should they be unknown, from where they stand."""
        self.answering = False
        """Whether type queries about variables and maps are answered: only after all types that do not depend on the
        answers have been inferred."""
        self.asked = False
        """Whether a type query was deferred."""
        self.removed: Removed | None = None
        """Set while removed code is checked."""
        self.searching = False
        """Whether code removed before inference is also checked, because something has no type otherwise."""
        self.left_out: list[ProbeUnit] | None = None
        """Probes without targets, if they are checked."""
        self.guessing = False
        """Whether operands of unknown type are assumed to be integers: ``@n = @n + 1``."""

    # ---------------------------------------------------------------------------------------- messages

    def error(
        self, message: str, span: Span, *, hints: Iterable[str] = (), notes: Iterable[tuple[str, Span]] = (),
        kernel: bool = False,
    ) -> Type:  # fmt: skip
        """Record an error; *kernel*: this kernel lacks something that others may have. Returns UNKNOWN, which a rule
        can return in turn.

        An error inside a library macro is reported at the user's call of the macro.
        """
        all_notes = [Note(text, place) for text, place in notes]
        outside = user_span(span)
        if outside is not span:
            all_notes.append(Note("inside the library, here", span))
        self.diagnostics.error(message, outside, hints=hints, notes=all_notes, kernel=kernel)
        return UNKNOWN

    def warn(
        self, message: str, span: Span, *, hints: Iterable[str] = (), notes: Iterable[tuple[str, Span]] = ()
    ) -> None:
        """Record a warning; warnings about library code are dropped."""
        if span.source.name.startswith(LIBRARY_PREFIX):
            return
        self.diagnostics.warn(message, span, hints=hints, notes=[Note(text, place) for text, place in notes])

    # ---------------------------------------------------------------------------------------- passes

    def begin_pass(self) -> bool:
        """Start a pass; True when the last one changed a type."""
        self.number += 1
        changed = self.number == 1
        for state in self.maps.values():
            for slot in state.slots:
                changed |= slot.begin(self.number)
        for variable in self.variables.values():
            changed |= variable.slot.begin(self.number)
        if self.asked and not changed:
            self.asked, self.answering = False, True
            changed = True
        if not changed and self._has_unknown_types():
            if not self.searching:
                self.searching = changed = True
            elif not self.guessing:
                self.guessing = changed = True
        if not changed:
            changed = self._supply_types()
        self.diagnostics = Diagnostics()
        self.program = CheckedProgram(units=self.program.units, provenance=self.options.provenance)
        for variable in self.variables.values():
            variable.assigned = variable.offered = variable.read = False
        for state in self.maps.values():
            state.used = state.named = False
        return changed

    def _has_unknown_types(self) -> bool:
        """Whether a map or variable is assigned whose type is not known."""
        maps = any(state.used and state.incomplete for state in self.maps.values())
        return maps or any(
            state.assigned and state.slot.fixed is None and isinstance(state.slot.known, Unknown)
            for state in self.variables.values()
        )

    def _supply_types(self) -> bool:
        """Set types of declared maps that are never assigned, once for each. Returns False when none is left."""
        supplied = False
        for state in self.maps.values():
            if state.used and state.declaration is not None and state.incomplete and not state.supplied:
                state.make_empty()
                supplied = True
        return supplied

    def make_final(self) -> None:
        """Make the current pass the final one: all types are known."""
        self.final = True
        self.diagnostics = self.reported

    # ---------------------------------------------------------------------------------------- expressions

    def value(self, node: nodes.Expr) -> Type:
        """Check an expression that is evaluated, and record its type for the generator.

        Returns:
            Its type; :data:`UNKNOWN` if it is not inferred yet or has an error.
        """
        rule = self.rules.get(type(node))
        if rule is None:
            raise InternalError(f"no rule for {type(node).__name__}")
        type_ = rule(node)
        if type_ == VOID:
            name = f"{node.name}() returns nothing" if isinstance(node, nodes.Call) else "this has no value"
            type_ = self.error(name, node.span)
        elif isinstance(type_, Int) and type_.width > UINT64.width and self.locking is None:
            hints = ["print the struct that it is in, or read its halves through a (uint64 *)"]
            message = f"an integer of {8 * type_.width} bits is not supported as a value"
            type_ = self.error(message, node.span, hints=hints)
        self.program.types[node] = type_
        return type_

    def unevaluated(self, node: nodes.Expr) -> Type:
        """Type of an expression that is not evaluated (an operand of ``sizeof``); locks the slots that it reads."""
        with self.lock(node.span):
            return self.value(node)

    @contextmanager
    def lock(self, span: Span) -> Iterator[None]:
        """Lock the types of slots that are read inside the block."""
        before, self.locking = self.locking, span
        try:
            yield
        finally:
            self.locking = before

    def relies_on(self, slot: Slot) -> bool:
        """Whether the type of *slot* may be used now; inside a type query, the type is locked."""
        if self.locking is None or slot.fixed is not None or self.final or self.removed is not None:
            return True
        if not self.answering:
            self.asked = True
            return False
        slot.lock_now(self.locking)
        return slot.locked is not None

    def constant(self, node: nodes.Expr) -> int | bool | bytes | None:
        """The constant value of an expression, if it has one."""
        return self.program.constants.get(node)

    def set_constant(self, node: nodes.Expr, value: int | bool | bytes) -> None:
        """Record the constant value of *node*."""
        self.program.constants[node] = value

    def set_fact(self, node: nodes.Expr, value: int | bool, what: str, *parts: str) -> None:
        """Record a value of *node* that depends on the machine; an ahead-of-time file resolves it at load time."""
        if self.options.ahead:
            self.program.loaded[node] = LoadTime(what, parts, int(value))
        else:
            self.set_constant(node, value)

    def constant_hints(self, node: nodes.Node) -> list[str]:
        """Hints for a value that must be a constant and is not."""
        parameter = next((inner for inner in nodes.walk(node) if isinstance(inner, nodes.OpenParameter)), None)
        if parameter is None:
            return []
        name = f"--{parameter.name}" if parameter.name.isidentifier() else f"${parameter.name}"
        return [f"parameter {name} is open in this ahead-of-time file; give it with --aot to fix it"]

    def constant_integer(self, node: nodes.Expr, what: str) -> int | None:
        """The value of an expression that must be an integer constant; None after an error."""
        type_ = self.value(node)
        constant = self.constant(node)
        if isinstance(constant, int) and not isinstance(constant, bool):
            return constant
        if not isinstance(type_, Unknown):
            self.error(f"{what} must be an integer constant", node.span, hints=self.constant_hints(node))
        return None

    def constant_text(self, node: nodes.Expr | nodes.TypeExpr, what: str) -> bytes | None:
        """The value of an expression that must be a string literal; None after an error."""
        if isinstance(node, nodes.StringLiteral):
            # Formats and the like never reach the kernel, so they are not limited like string values.
            return node.value
        if isinstance(node, nodes.Expr):
            type_ = self.value(node)
            constant = self.constant(node)
            if isinstance(constant, bytes):
                return constant
            if isinstance(type_, Unknown):
                return None
        self.error(f"{what} must be a string literal", node.span, hints=self.constant_hints(node))
        return None

    def integer(self, node: nodes.Expr, what: str) -> Type:
        """Type of an expression that must be an integer."""
        return self.as_integer(self.value(node), node, what)

    def as_integer(self, type_: Type, node: nodes.Expr, what: str) -> Type:
        """The type of a checked expression, which must be an integer."""
        if not is_integer(type_) and not isinstance(type_, Unknown):
            return self.error(f"{what} must be an integer, not {settle(type_)}", node.span)
        return type_

    def condition(self, node: nodes.Expr) -> bool | None:
        """Check a condition; its value when it is known."""
        type_ = self.value(node)
        constant = self.constant(node)
        if constant is not None:
            return bool(constant)
        if not is_condition(type_):
            message = f"a condition must be an integer, bool or pointer, not {settle(type_)}"
            # (name = value) in parentheses is a record of one field.
            hints = ["use '==' to compare"] if isinstance(node, nodes.RecordLiteral) and len(node.names) == 1 else []
            self.error(message, node.span, hints=hints)
        return None

    # ---------------------------------------------------------------------------------------- variables

    def declare(self, node: nodes.Variable, span: Span, *, declared: bool = False, loop: bool = False) -> VariableState:
        """Declare a variable in the innermost scope."""
        state = self.variables.get(node)
        if state is None:
            state = self.variables[node] = _new_variable(node, span)
        state.declared, state.loop = declared, loop
        self.scope.names[node.name] = state
        self.bind(node, state)
        return state

    def bind(self, node: nodes.Variable, state: VariableState) -> None:
        """Record the variable that a node refers to."""
        self.program.variables[node] = state.info
        self.program.types[node] = state.slot.type

    @contextmanager
    def block(self) -> Iterator[Scope]:
        """A scope for variables."""
        self.scope = Scope(self.scope)
        try:
            yield self.scope
        finally:
            ended, parent = self.scope, self.scope.parent
            if parent is None:
                raise InternalError("scope without parent")
            for state in ended.names.values():
                if state.declared and not state.assigned and not state.offered:
                    self.warn(f"${state.name} is never assigned", state.span)
            parent.ended.update(ended.names)
            parent.ended.update(ended.ended)
            self.scope = parent

    # ---------------------------------------------------------------------------------------- maps

    def map(self, node: nodes.MapRef) -> MapState:
        """The state of a map."""
        state = self.state_of(node)
        state.named = True
        state.used = state.used or self.removed is None
        if state.span is None:
            state.span = node.span
        return state

    def state_of(self, node: nodes.MapRef) -> MapState:
        """The state of a map; does not count as a use."""
        return self.maps.setdefault(node.name, MapState(node.name))

    def settled(self, node: nodes.Expr) -> Type:
        """The real type of a checked expression (see :func:`~pytrace.frontend.check.conversions.settle`)."""
        return settle(self.program.types.get(node, UNKNOWN))

    # ---------------------------------------------------------------------------------------- slots

    def declare_new(
        self, node: nodes.Variable, span: Span, *, declared: bool = False, loop: bool = False
    ) -> VariableState:
        """Declare a variable (``let``, ``for``); reports an error if it exists already."""
        existing = self.scope.find(node.name)
        if existing is not None and existing.node is not node:
            same = node.name in self.scope.names
            message = f"${node.shown} is already declared"
            if not same:
                message = f"${node.shown} would hide a variable of an outer block"
            self.error(message, span, notes=[("first declared here", existing.span)], hints=["use another name"])
        return self.declare(node, span, declared=declared, loop=loop)

    def unknown_variable(self, node: nodes.Variable) -> None:
        """Report a read of a variable that does not exist."""
        name = node.shown
        notes, hints = (
            [],
            did_you_mean("$" + name, ("$" + item for item in self.scope.visible() if HYGIENE not in item)),
        )
        scope = self.scope
        if HYGIENE in node.name and scope.find(name) is not None:
            hints = (f"a macro sees only its own variables: add ${name} to its parameters",)
        if node.name in scope.ended:
            notes.append(("it exists only in this block", scope.ended[node.name].span))
            hints = (f"declare it before the block: let ${name};",)
        elif not hints and any(state.name == node.name for state in self.variables.values()):
            hints = (f"a variable belongs to one run of one probe; a map such as @{name}[tid] is shared by all probes",)
        self.error(f"undefined variable ${name}", node.span, notes=notes, hints=hints)

    def put(self, state: VariableState, type_: Type, place: Span, *, known: bool = True) -> bool:
        """Assign a value to a variable; reports an error when it does not fit.

        Args:
            state: the variable.
            type_: the type of the value.
            place: where it is assigned, for messages.
            known: constants in *type_* come from the value itself, not from a variable that holds them.

        Returns:
            Whether it fits.
        """
        slot = state.slot
        if self.removed is not None:
            state.offered = True
            slot.offer(type_, spare=self.removed.spare)
            return True
        mixed = slot.mixes_signs(type_)
        self._warn_spaces(slot, type_, place)
        state.assigned = True
        if slot.takes(type_, place):
            if mixed:
                self.warn(f"${state.name} becomes int64: it holds both signed and unsigned 64-bit values", place)
            return True
        if slot.other_sign(type_ if known else settle(type_)):
            self.warn(f"${state.name} is {slot.fixed}: the value, which is {settle(type_)}, is cast to it", place)
            return True
        self._report_misfit(f"${state.name}", slot, type_, place, state.span)
        return False

    def put_map(self, name: str, slot: Slot, type_: Type, place: Span, what: str) -> bool:
        """Use a type as key or value of a map; reports an error when it does not fit.

        Args:
            name: the map.
            slot: its key or value.
            type_: the type that is used.
            place: where it is used, for messages.
            what: ``key`` or ``value``.

        Returns:
            Whether it fits.
        """
        if self.removed is not None:
            if what == "value":
                self.maps[name].removed = (self.removed.what, self.removed.span or place)
            slot.offer(type_, spare=self.removed.spare)
            return True
        mixed = slot.mixes_signs(type_)
        self._warn_spaces(slot, type_, place)
        if slot.takes(type_, place):
            if mixed:
                self.warn(f"the {what} of {name} becomes int64: it holds signed and unsigned 64-bit values", place)
            return True
        self._report_misfit(f"the {what} of {name}", slot, type_, place, None)
        return False

    def _warn_spaces(self, slot: Slot, type_: Type, place: Span) -> None:
        have = slot.fixed if slot.fixed is not None else slot.inferred
        if not isinstance(have, Pointer) or not isinstance(type_, Pointer) or have.space is type_.space:
            return
        if AddressSpace.NONE not in (have.space, type_.space):
            self.warn(
                f"a pointer into {type_.space.value} memory is assigned where one into {have.space.value} memory was",
                place,
                hints=["mark the pointer by kptr() or uptr() where it is dereferenced"],
            )

    def _report_misfit(self, what: str, slot: Slot, type_: Type, place: Span, declared: Span | None) -> None:
        have = settle(slot.fixed if slot.fixed is not None else slot.inferred)
        notes: list[tuple[str, Span]] = []
        if slot.fixed is not None and declared is not None:
            notes.append(("declared here", declared))
        elif slot.locked is not None and slot.lock is not None:
            have = slot.locked
            notes.append(("its type is used here", slot.lock))
        elif slot.first is not None:
            notes.append(("first used here", slot.first))
        mismatch = f"this is {_describe(type_)}"
        if isinstance(type_, Flexible) and isinstance(have, Int):
            mismatch = f"which holds {have.low} to {have.high}, not {type_.low if type_.low < have.low else type_.high}"
        self.error(f"{what} is {_describe(have)}, {mismatch}", place, notes=notes, hints=_cast_hint(have, type_))

    def check_removed(self, why: Removed, run: Callable[[], object]) -> None:
        """Check removed code by calling *run*."""
        around = self.removed
        if why.spare and not self.searching:
            return
        kept = self.diagnostics, self.program, self.callees
        self.diagnostics, self.program, self.callees = Diagnostics(), CheckedProgram(units=kept[1].units), []
        self.removed = why if around is None or why.spare else around
        try:
            run()
        finally:
            self.diagnostics, self.program, self.callees = kept
            self.removed = around

    def undefined_map(self, state: MapState, span: Span) -> Type:
        """Report a map whose types are not known."""
        if state.value.untyped and self.diagnostics.failed:
            return UNKNOWN  # what is stored in it has an error, which has been reported
        if state.removed is None:
            return self.error(f"undefined map {state.name}: nothing is ever stored in it", span)
        kind = "percpuhash" if state.value.type.aggregate else "hash"
        entries = 1 if state.keyed is False else 1024
        return self.error(
            f"undefined map {state.name}: only removed code stores something in it",
            span,
            notes=[state.removed],
            hints=[f"declare the map to make it exist: let {state.name} = {kind}({entries});"],
        )
