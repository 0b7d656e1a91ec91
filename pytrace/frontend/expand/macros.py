"""Macro expansion: macros of the script and of the library, and object-like macros of the C part.

Expansion is hygienic: variables of a macro's body are renamed, and the body can access the caller's variables and
maps through its parameters only. Nodes of a body get :class:`~pytrace.core.source.ExpandedSpan` spans, so that
messages about them show the macro calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict, replace

from pytrace.base.dispatch import handlers, handles
from pytrace.core.builtins import bare_builtin, builtin
from pytrace.core.diagnostics import Diagnostics, Note
from pytrace.core.source import ExpandedSpan, Span
from pytrace.frontend.expand import imports
from pytrace.frontend.expand.c_definitions import place_at
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import HYGIENE, run_deep
from pytrace.frontend.syntax.typed_program import LIBRARY_PREFIX

if TYPE_CHECKING:
    from pytrace.frontend.expand.c_definitions import Definitions

Arguments = tuple[nodes.Expr | nodes.TypeExpr, ...]

MOST_NODES = 100_000
"""Maximum number of expanded nodes: a macro that uses another one twice doubles them in each step."""

_C_MACRO = 20
"""Cost of a use of a C macro besides its nodes: its text is parsed each time."""


def expand(program: nodes.Program, definitions: Definitions, diagnostics: Diagnostics) -> nodes.Program:
    """*program* with all macros expanded and their definitions removed."""
    expander = _Expander(program, definitions, diagnostics)
    expander.check_duplicates()

    def run() -> nodes.Program:
        items: list[nodes.RootItem] = []
        for item in program.items:
            if not isinstance(item, nodes.Macro):
                expanded = expander.node(item, None)
                assert isinstance(expanded, nodes.RootItem)
                items.append(expanded)
        return replace(program, items=tuple(items))

    return run_deep(run, program, diagnostics, program.span)


# ---------------------------------------------------------------------------------------------- expansion scopes


class _Expansion(msgspec.Struct, frozen=True):
    """One expansion of a macro: the bindings of its parameters."""

    macro: nodes.Macro
    call: Span
    number: int
    outer: _Expansion | None
    names: dict[str, nodes.Expr | nodes.TypeExpr] = msgspec.field(default_factory=dict)
    variables: dict[str, nodes.Variable] = msgspec.field(default_factory=dict)
    maps: dict[str, nodes.MapRef] = msgspec.field(default_factory=dict)

    @property
    def library(self) -> bool:
        """True when the macro is one of the library."""
        return _in_library(self.macro)

    def chain(self) -> list[nodes.Macro]:
        """The macros that are being expanded, innermost first."""
        macros, expansion = [self.macro], self.outer
        while expansion is not None:
            macros.append(expansion.macro)
            expansion = expansion.outer
        return macros

    def span(self, span: Span) -> Span:
        """A span of the macro's body, as part of this expansion."""
        return ExpandedSpan(span.source, span.start, span.end, self.call)


def _in_library(macro: nodes.Macro) -> bool:
    return macro.span.source.name.startswith(LIBRARY_PREFIX)


def _kinds(macro: nodes.Macro) -> tuple[type[nodes.Expr], ...]:
    return tuple(type(parameter) for parameter in macro.parameters)


class _Expander:
    def __init__(self, program: nodes.Program, definitions: Definitions, diagnostics: Diagnostics) -> None:
        self.definitions = definitions
        self.diagnostics = diagnostics
        self.functions = {item.name for item in program.items if isinstance(item, nodes.Function)}
        self.macros: dict[str, list[nodes.Macro]] = {}
        for item in program.items:
            if isinstance(item, nodes.Macro):
                self.macros.setdefault(item.name, []).append(item)
        self._rules: Mapping[type[nodes.Node], Callable[[nodes.Node, _Expansion | None], nodes.Node]] = handlers(self)
        self.number = 0
        self.c_names: list[str] = []
        self.size = 0
        """Number of nodes that expansions have created."""
        self.full = False

    def check_duplicates(self) -> None:
        """Report macros of the same name that do not differ in number or kind of parameters."""
        for overloads in self.macros.values():
            for index, macro in enumerate(overloads):
                twin = next((other for other in overloads[:index] if _kinds(other) == _kinds(macro)), None)
                if twin is not None:
                    self.diagnostics.error(
                        f"the macro {macro.name!r} is already defined with the same parameters",
                        macro.head,
                        notes=[Note("first defined here", twin.head)],
                    )
                self._check_parameters(macro)

    def _check_parameters(self, macro: nodes.Macro) -> None:
        seen: set[str] = set()
        for parameter in macro.parameters:
            text = parameter.span.text
            if text in seen:
                self.diagnostics.error(f"the parameter {text} appears twice", parameter.span)
            seen.add(text)

    # ---------------------------------------------------------------------------------------- trees

    def node(self, node: nodes.Node, scope: _Expansion | None) -> nodes.Node:
        """*node* expanded in *scope*: a new tree inside an expansion; outside, the same tree if nothing changes."""
        rule = self._rules.get(type(node))
        return rule(node, scope) if rule is not None else self.plain(node, scope)

    def plain(self, node: nodes.Node, scope: _Expansion | None, **changes: object) -> nodes.Node:
        """*node* with its children expanded."""
        self.size += scope is not None
        values: dict[str, Any] = {}
        for name in nodes.child_fields(type(node)):
            old = getattr(node, name)
            if isinstance(old, nodes.Node):
                child = self.node(old, scope)
                if child is not old:
                    values[name] = child
            elif isinstance(old, tuple):
                members = tuple(self.node(item, scope) if isinstance(item, nodes.Node) else item for item in old)
                if any(a is not b for a, b in zip(members, old, strict=True)):
                    values[name] = members
        values.update(changes)
        if scope is not None:
            for name, old in asdict(node).items():
                if isinstance(old, Span):
                    values[name] = scope.span(old)
        return replace(node, **values) if values or scope is not None else node

    # ---------------------------------------------------------------------------------------- names

    @handles(nodes.Variable)
    def variable(self, node: nodes.Variable, scope: _Expansion | None) -> nodes.Node:
        """A variable: the argument of a parameter, or a renamed variable of the body."""
        if scope is None:
            return node
        argument = scope.variables.get(node.name)
        if argument is not None:
            return nodes.copy(argument)
        return nodes.Variable(scope.span(node.span), f"{node.name}{HYGIENE}{scope.number}")

    @handles(nodes.MapRef)
    def map(self, node: nodes.MapRef, scope: _Expansion | None) -> nodes.Node:
        """A map; a macro body can use only maps that are passed to it."""
        if scope is None:
            return node
        argument = scope.maps.get(node.name)
        if argument is not None:
            return nodes.copy(argument)
        self.diagnostics.error(
            f"the macro {scope.macro.name!r} cannot use {node.name}, which is not one of its parameters",
            scope.span(node.span),
            hints=[f"add {node.name} to the parameters and pass the map"],
        )
        return nodes.MapRef(scope.span(node.span), node.name)

    @handles(nodes.Identifier)
    def identifier(self, node: nodes.Identifier, scope: _Expansion | None) -> nodes.Node:
        """A bare name: a parameter, a macro without arguments, a C macro, or unchanged."""
        if scope is not None and node.name in scope.names:
            return nodes.copy(scope.names[node.name])
        macro = self._choose_overload(node.name, (), scope)
        if macro is not None:
            return self._expand_use(macro, node.span if scope is None else scope.span(node.span), (), scope)
        if not bare_builtin(node.name) and node.name not in self.c_names:
            expression = self.definitions.macro(node.name)
            if expression is not None:
                return self._c_macro(node, expression, scope)
        return self.plain(node, scope)

    def _c_macro(self, node: nodes.Identifier, expression: nodes.Expr, scope: _Expansion | None) -> nodes.Node:
        place = node.span if scope is None else scope.span(node.span)
        self.size += _C_MACRO + sum(1 for _ in nodes.walk(expression))
        if self._is_full(node.name, place):
            return nodes.IntLiteral(place, 0)
        self.c_names.append(node.name)
        result = self.node(place_at(expression, place), None)
        self.c_names.pop()
        return result

    @handles(nodes.NamedType)
    def named_type(self, node: nodes.NamedType, scope: _Expansion | None) -> nodes.Node:
        """A type name, which may be a parameter of the macro."""
        argument = scope.names.get(node.name) if scope is not None else None
        if isinstance(argument, nodes.TypeExpr):
            return nodes.copy(argument)
        if isinstance(argument, nodes.Identifier):
            return nodes.NamedType(argument.span, argument.name)
        return self.plain(node, scope)

    @handles(nodes.Sizeof, nodes.TypeofExpr)
    def about(self, node: nodes.Sizeof | nodes.TypeofExpr, scope: _Expansion | None) -> nodes.Node:
        """A type query: its bare name is a parameter or the name of a type, never a macro."""
        operand = node.operand
        if not isinstance(operand, nodes.Identifier) or (scope is not None and operand.name in scope.names):
            return self.plain(node, scope)
        return self.plain(node, scope, operand=self._bare_type(operand, scope))

    def _bare_type(self, operand: nodes.Identifier, scope: _Expansion | None) -> nodes.Node:
        """A name used as a type: a C macro may stand for a type or value, a macro of the language does not."""
        if self._choose_overload(operand.name, (), scope) is None:
            return self.node(operand, scope)
        return operand if scope is None else replace(operand, span=scope.span(operand.span))

    @handles(nodes.Offsetof)
    def offset(self, node: nodes.Offsetof, scope: _Expansion | None) -> nodes.Node:
        """``offsetof``, whose path may start with a parameter that stands for members."""
        path: list[str] = []
        for step in node.path:
            argument = scope.names.get(step) if scope is not None else None
            path.extend(_members(argument) if isinstance(argument, nodes.Identifier | nodes.FieldAccess) else [step])
        return self.plain(node, scope, path=tuple(path))

    # ---------------------------------------------------------------------------------------- records

    @handles(nodes.RecordLiteral)
    def record(self, node: nodes.RecordLiteral, scope: _Expansion | None) -> nodes.Node:
        """A record, without the members whose value is ``only_if(false, …)``."""
        expanded = self.plain(node, scope)
        assert isinstance(expanded, nodes.RecordLiteral)
        if not any(map(_conditional, expanded.members)):
            return expanded
        kept = [
            (name, value)
            for name, member in zip(expanded.names, expanded.members, strict=True)
            if (value := self._member(member)) is not None
        ]
        if not kept:
            message = "the record has no member left: all conditions of only_if() are false"
            self.diagnostics.error(message, expanded.span)
            return expanded
        return replace(expanded, names=tuple(name for name, _ in kept), members=tuple(value for _, value in kept))

    def _member(self, member: nodes.Expr) -> nodes.Expr | None:
        """The value of a member; None when its condition is false."""
        if not (_conditional(member) and isinstance(member, nodes.Call)):
            return member
        condition, chosen = member.args
        truth = nodes.literal_truth(condition)
        if truth is None:
            self.diagnostics.error(
                "the condition of only_if() must be known when the script is compiled",
                condition.span,
                hints=["possible are literals, $1, getopt(), comparisons, &&, || and !"],
            )
        assert isinstance(chosen, nodes.Expr)
        return None if truth is False else chosen

    # ---------------------------------------------------------------------------------------- calls

    @handles(nodes.Call)
    def call(self, node: nodes.Call, scope: _Expansion | None) -> nodes.Node:
        """A call of a macro; calls of anything else only have their arguments expanded."""
        macro = self._choose_overload(node.name, node.args, scope)
        place = node.span if scope is None else scope.span(node.span)
        if macro is not None:
            return self._expand_use(macro, place, node.args, scope)
        known = self._overloads(node.name, scope)
        if known and builtin(node.name) is None and node.name not in self.functions:
            self._report_misfit(node.name, known, node.args, place)
        if node.name == "member_exist" and len(node.args) == 2:
            return self._member_question(node, scope)
        return self.plain(node, scope)

    def _member_question(self, node: nodes.Call, scope: _Expansion | None) -> nodes.Node:
        """``member_exist``, whose member is never a macro, but may be a parameter that stands for members."""
        path: list[str] = []
        for step in _members(node.args[1]):
            argument = scope.names.get(step) if scope is not None else None
            path.extend(_members(argument) if argument is not None else [step])
        if not path:
            return self.plain(node, scope)
        span = node.args[1].span if scope is None else scope.span(node.args[1].span)
        member: nodes.Expr = nodes.Identifier(span, path[0])
        for name in path[1:]:
            member = nodes.FieldAccess(span, member, name)
        first = node.args[0]
        if isinstance(first, nodes.Identifier) and (scope is None or first.name not in scope.names):
            asked = self._bare_type(first, scope)
        else:
            asked = self.node(first, scope)
        return self.plain(node, scope, args=(asked, member))

    def _overloads(self, name: str, scope: _Expansion | None) -> list[nodes.Macro]:
        own = [] if scope is not None and scope.library else self.macros.get(name, [])
        return [*own, *imports.library_macros(name)]

    def _choose_overload(self, name: str, args: Arguments, scope: _Expansion | None) -> nodes.Macro | None:
        """The overload for *args*: the one with the most specific parameters, macros of the script before those of the
        library.
        """
        best, most = None, -1
        for macro in self._overloads(name, scope):
            score = _specificity(macro, args, scope)
            if score > most:
                best, most = macro, score
        return best

    def _report_misfit(self, name: str, known: list[nodes.Macro], args: Arguments, place: Span) -> None:
        macro = known[0]
        same = next((item for item in known if len(item.parameters) == len(args)), None)
        if same is None:
            counts = " or ".join(sorted({str(len(item.parameters)) for item in known}))
            message = f"the macro {name!r} takes {counts} arguments, not {len(args)}"
        else:
            macro = same
            wanted = ", ".join(parameter.span.text for parameter in macro.parameters)
            message = f"these arguments do not fit the macro {name}({wanted}): $ needs a variable, @ a map"
        self.diagnostics.error(message, place, notes=[Note("defined here", macro.head)])

    def _is_full(self, name: str, place: Span) -> bool:
        """Whether expansions exceed :data:`MOST_NODES`; reported once, at the outermost use in the script."""
        if self.size > MOST_NODES and not self.full:
            self.full = True
            message = f"macros become more than {MOST_NODES:,} parts of a program; the last one was {name!r}"
            hints = ["a macro that uses another one twice doubles it: use a variable for its value, or a function (fn)"]
            self.diagnostics.error(message, place, hints=hints)
        return self.full

    def _expand_use(self, macro: nodes.Macro, place: Span, args: Arguments, scope: _Expansion | None) -> nodes.Node:
        if scope is not None and macro in scope.chain():
            chain = [item.name for item in reversed(scope.chain())]
            names = " → ".join((*chain, macro.name))
            self.diagnostics.error(f"the macro {macro.name!r} uses itself: {names}", place)
            return nodes.IntLiteral(place, 0)
        if self._is_full(macro.name, place):
            return nodes.IntLiteral(place, 0)
        self.number += 1
        inner = _Expansion(macro, place, self.number, scope)
        for parameter, arg in zip(macro.parameters, args, strict=True):
            argument = self.node(arg, scope)
            if isinstance(parameter, nodes.Variable) and isinstance(argument, nodes.Variable):
                inner.variables[parameter.name] = argument
            elif isinstance(parameter, nodes.MapRef) and isinstance(argument, nodes.MapRef):
                inner.maps[parameter.name] = argument
            elif isinstance(parameter, nodes.Identifier) and isinstance(argument, nodes.Expr | nodes.TypeExpr):
                inner.names[parameter.name] = argument
        body = self.node(macro.body, inner)
        assert isinstance(body, nodes.Block)
        if not body.statements and body.value is not None:
            return body.value
        return nodes.BlockExpr(body.span, body)


def _specificity(macro: nodes.Macro, args: Arguments, scope: _Expansion | None) -> int:
    """Specificity of a match: the number of parameters that accept only their kind of argument; -1 for no match."""
    if len(args) != len(macro.parameters):
        return -1
    score = 0
    for parameter, arg in zip(macro.parameters, args, strict=True):
        if isinstance(parameter, nodes.Identifier):
            continue
        argument: nodes.Node = arg
        if isinstance(arg, nodes.Identifier) and scope is not None:
            argument = scope.names.get(arg.name, arg)
        if not isinstance(argument, type(parameter)):
            return -1
        score += 1
    return score


def _conditional(node: nodes.Node) -> bool:
    """Whether *node* is ``only_if(condition, value)``."""
    return (
        isinstance(node, nodes.Call)
        and node.name == "only_if"
        and len(node.args) == 2
        and isinstance(node.args[1], nodes.Expr)
    )


def _members(node: nodes.Node) -> list[str]:
    if isinstance(node, nodes.FieldAccess):
        return [*_members(node.base), node.name]
    return [node.name] if isinstance(node, nodes.Identifier) else []
