"""The state of semantic analysis, and the services that all rules share.

A :class:`Checker` traverses the whole program several times. All passes but the last only infer types (their
diagnostics are discarded); the last one changes no type, reports errors, and fills the tables of the
:class:`~pytrace.frontend.syntax.typed_program.CheckedProgram`. Rules are functions that take the checker and a node:
those of expressions and statements in ``rules``, those of builtins in ``builtins``; :class:`Rules` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeVar

import msgspec

from pytrace.core.config import Config
from pytrace.core.diagnostics import Diagnostics, InternalError, Note
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.source import Span
from pytrace.core.types import UINT64, VOID, Int, Type
from pytrace.frontend.check.inference.conversions import (
    UNKNOWN,
    Unknown,
    contains_unknown,
    is_condition,
    is_integer,
    settle,
)
from pytrace.frontend.check.inference.slots import MapState, Removed, Scope, Slot, VariableState, new_variable
from pytrace.frontend.expand.c_definitions import Definitions
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import (
    LIBRARY_PREFIX,
    CheckedProgram,
    FunctionInfo,
    ImportedFunction,
    LoadTime,
    ProbeUnit,
    user_span,
)

Node = nodes.Call | nodes.Identifier
"""A use of a builtin: a call, or its bare name."""
Arguments = tuple[nodes.Expr | nodes.TypeExpr, ...]

N_contra = TypeVar("N_contra", contravariant=True)


class BranchRule(Protocol[N_contra]):
    """Typing rule of an ``if`` or a block, as a statement or (*wanted*) as a value."""

    def __call__(self, checker: Checker, node: N_contra, /, *, wanted: bool) -> Type: ...


class Rules(msgspec.Struct, frozen=True):
    """The typing rules of the language that the checker and other rules call."""

    expressions: Mapping[type[nodes.Expr], Callable[[Checker, nodes.Expr], Type]]
    """Rules by node class."""
    builtins: Mapping[str, Callable[[Checker, Node, Arguments], Type]]
    """Checks of builtins by the name of their row."""
    check_if: BranchRule[nodes.If]
    check_block: BranchRule[nodes.Block]
    probe_exists: Callable[[Checker, str, Span], bool]
    """Whether an attach point exists and can be attached to on this machine; reports syntax errors in it."""


class Checker:
    """Semantic analysis of one script."""

    def __init__(
        self,
        rules: Rules,
        options: CompileOptions,
        kernel: KernelInfo,
        definitions: Definitions,
        config: Config,
        diagnostics: Diagnostics,
    ) -> None:
        self.rules = rules
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
        self.word_hints: dict[nodes.Identifier, str] = {}
        """Hints for bare words, should they be unknown, from where they stand."""
        """Set while the operand of a type query (``sizeof`` …) is checked, which locks the types of slots it reads."""
        self.answering = False
        """Whether type queries about variables and maps are answered: only after all types that do not depend on the
        answers have been inferred."""
        self.asked = False
        """Whether a type query was deferred."""
        self.removed: Removed | None = None
        """Set while removed code is checked (``frontend.check.inference.removed_code``)."""
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
        for slot in self._slots():
            changed |= slot.begin(self.number)
        if self.asked and not changed:
            self.asked, self.answering = False, True
            changed = True
        if not changed and not self.searching and self._stuck():
            self.searching = changed = True
        if not changed and not self.guessing and self._stuck():
            self.guessing = changed = True
        if not changed:
            changed = self._supply()
        self.diagnostics = Diagnostics()
        self.program = CheckedProgram(units=self.program.units, provenance=self.options.provenance)
        for variable in self.variables.values():
            variable.assigned = variable.offered = variable.read = False
        for state in self.maps.values():
            state.used = state.named = False
        return changed

    def _stuck(self) -> bool:
        """Whether a map or variable is assigned whose type is not known."""
        maps = any(state.used and state.incomplete for state in self.maps.values())
        return maps or any(
            state.assigned and state.slot.fixed is None and isinstance(state.slot.known, Unknown)
            for state in self.variables.values()
        )

    def _supply(self) -> bool:
        """Set types of declared maps that are never assigned, once for each. Returns False when none is left."""
        declared = [item for item in self.maps.values() if item.used and item.declaration is not None]
        incomplete = [item for item in declared if item.incomplete and not item.supplied]
        for state in incomplete:
            state.make_empty()
        return bool(incomplete)

    def make_final(self) -> None:
        """Make the current pass the final one: all types are known."""
        self.final = True
        self.diagnostics = self.reported

    def _slots(self) -> Iterator[Slot]:
        for state in self.maps.values():
            yield from state.slots
        for variable in self.variables.values():
            yield variable.slot

    # ---------------------------------------------------------------------------------------- expressions

    def value(self, node: nodes.Expr) -> Type:
        """Check an expression that is evaluated, and record its type for the generator.

        Returns:
            Its type; :data:`UNKNOWN` if it is not inferred yet or has an error.
        """
        rule = self.rules.expressions.get(type(node))
        if rule is None:
            raise InternalError(f"no rule for {type(node).__name__}")
        type_ = rule(self, node)
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
            state = self.variables[node] = new_variable(node, span)
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
            self.scope.close(self)
            parent = self.scope.parent
            if parent is None:
                raise InternalError("scope without parent")
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
        """The real type of a checked expression (see :func:`~pytrace.frontend.check.inference.conversions.settle`)."""
        return settle(self.program.types.get(node, UNKNOWN))

    def known(self, type_: Type) -> bool:
        """True when all parts of a type are known."""
        return not contains_unknown(type_)
