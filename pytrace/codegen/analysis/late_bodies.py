"""Bodies at the entry of a system call that may run when the call returns, because a string cannot be read before.

A program of a tracepoint cannot wait for a page. When a string of the call's arguments cannot be read and nothing in
the body has had an effect yet, the hit is kept and the whole body runs at the call's return: everything in it happens
once and in order (:mod:`pytrace.codegen.emit.deferred_events`). That means the same where the body depends only on
what is the same then: arguments of the call, names and numbers of the task, the time of the hit, which is kept, and
constants. Everything that another thread or the call itself may have changed keeps a body at its place, and so does
what other probes might look for in the middle of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pytrace.codegen.analysis.shared_variables import called_functions
from pytrace.core.builtins import Builtin
from pytrace.core.probes.kinds import BEGIN, END, SELF, TRACEPOINT
from pytrace.core.probes.targets import ENTER, EXIT, TracepointTarget
from pytrace.core.types import Pointer
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import children, walk
from pytrace.frontend.syntax.typed_program import CallRegister, CheckedProgram, ContextField, ProbeArgument, ProbeUnit

MOST_NODES = 1000
"""Nodes of a body that is emitted twice: for the entry and for the return."""

_NOT_THE_SAME = frozenset({"execve", "execveat", "exit", "exit_group", "prctl", "rt_sigreturn", "vfork"})
"""System calls at whose return the memory or the name of the task is another one, or that do not return."""

_VALUES = frozenset({
    "bswap", "cgroup", "comm", "cpid", "elapsed", "euid", "fixed", "getopt", "gid", "has_cpid", "joined", "ncpus",
    "nsecs", "one_of", "only_if", "pid", "probe", "probetype", "signal_name", "sprintf", "str", "str_concat", "strcap",
    "strcontains", "strerror", "strftime", "strlen", "strncmp", "strstr", "syscall_name", "tid", "uid", "uptr",
    "username",
})  # fmt: skip
"""Builtins whose values are the same at the return of the call."""

_EFFECTS = frozenset({
    "avg", "cat", "count", "debugf", "errorf", "hist", "join", "lhist", "max", "min", "print", "printf", "row", "stats",
    "sum", "system", "warnf",
})  # fmt: skip
"""Builtins that update maps or send events."""

_PLAIN = (
    nodes.Block, nodes.If, nodes.BlockExpr, nodes.ExprStmt, nodes.Let, nodes.Discard, nodes.Return, nodes.Ternary,
    nodes.Cast, nodes.Binary, nodes.IntLiteral, nodes.BoolLiteral, nodes.StringLiteral, nodes.Variable,
    nodes.TupleLiteral, nodes.RecordLiteral, nodes.TupleAccess, nodes.TypeExpr,
)  # fmt: skip

_STEPS = ("++", "--")

_AROUND = frozenset({BEGIN, END, SELF})
"""Kinds of probes that do not run in the middle of a call of the traced task."""


class LateBody(msgspec.Struct, frozen=True):
    """*reads* are the calls of ``str()`` that postpone the body where they fail: no effect precedes them.

    Those *ahead*, each with the expression of its address, are read before the body, too, as effects precede them.
    *arguments* are those of the system call that the body reads.
    """

    reads: frozenset[nodes.Node]
    ahead: tuple[tuple[nodes.Call, nodes.Expr], ...]
    arguments: tuple[ProbeArgument, ...]


def late_body(checked: CheckedProgram, unit: ProbeUnit) -> LateBody | None:
    """How the body of *unit* can be postponed; None where it keeps its place, or where only events have strings."""
    places = [target.place for target in unit.targets]
    if unit.kind.name != TRACEPOINT or not all(
        isinstance(place, TracepointTarget) and place.call[0] == ENTER and place.call[1] not in _NOT_THE_SAME
        for place in places
    ):
        return None
    if (not unit.calls and len(places) > 1) or called_functions(checked, unit.body):
        return None
    body = _Body(checked, unit)
    return body.result()


class _Body:
    def __init__(self, checked: CheckedProgram, unit: ProbeUnit) -> None:
        self._checked = checked
        self._unit = unit
        self._arguments: dict[str, ProbeArgument] = {}
        self._maps = _updated_only(unit.body)

    def result(self) -> LateBody | None:
        checked = self._checked
        alive = list(self._alive(self._unit.body))
        if len(alive) > MOST_NODES or not all(map(self._same, alive)):
            return None
        strings = self._strings()
        sent = {below for node in alive for item in checked.event_arguments.get(node, ()) for below in walk(item)}
        if all(node in sent for node, _ in strings) or self._looked_for():
            return None
        if not all(isinstance(item.place, CallRegister | ContextField) for item in self._arguments.values()):
            return None
        ahead = tuple(
            (node, address)
            for node, after in strings
            for address in node.args[:1]
            if after and isinstance(address, nodes.FieldAccess) and isinstance(checked.types.get(address), Pointer)
        )
        reads = frozenset(node for node, after in strings if not after)
        return LateBody(reads, ahead, tuple(self._arguments.values())) if reads or ahead else None

    def _alive(self, node: nodes.Node) -> Iterator[nodes.Node]:
        """The nodes that are evaluated when the program runs, in source order."""
        waiting = [node]
        while waiting:
            current = waiting.pop()
            if current in self._checked.dead:
                continue
            yield current
            if not (isinstance(current, nodes.Expr) and current in self._checked.constants):
                waiting += reversed(children(current))

    def _same(self, node: nodes.Node) -> bool:
        """Whether a node means the same at the return of the call."""
        checked = self._checked
        if isinstance(node, nodes.Expr) and node in checked.constants:
            return True
        if isinstance(node, nodes.FieldAccess):
            path = checked.fields.get(node)
            if path is None or path.argument is None:
                return path is not None and path.how == "record"
            self._arguments[path.argument.name] = path.argument
            return True
        if isinstance(node, nodes.Call | nodes.Identifier):
            if node.name == "args":
                # All arguments together are not kept.
                return self._has_member(node)
            builtin = checked.calls.get(node)
            if builtin is None and node not in checked.types:
                return True  # a word, such as the clock of nsecs()
            return isinstance(builtin, Builtin) and builtin.name in _VALUES | _EFFECTS
        if isinstance(node, nodes.Unary):
            return node.operator in ("!", "~", "-") or _updates(node)
        if isinstance(node, nodes.Assign):
            return isinstance(node.target, nodes.Variable) or _updates(node)
        if isinstance(node, nodes.MapIndex | nodes.MapRef):
            return (node.name if isinstance(node, nodes.MapRef) else node.map.name) in self._maps
        return isinstance(node, _PLAIN)

    def _has_member(self, node: nodes.Node) -> bool:
        return any(isinstance(item, nodes.FieldAccess) and item.base is node for item in walk(self._unit.body))

    def _strings(self) -> list[tuple[nodes.Call, bool]]:
        """The calls of ``str()`` in order, and whether an effect precedes each."""
        strings: list[tuple[nodes.Call, bool]] = []
        effects = False
        for step in _steps(self._unit.body):
            inside = list(self._alive(step))
            has_effect = any(map(_has_effect, inside))
            # Blocks inside of an expression may do one before the other.
            before = effects or (has_effect and any(isinstance(node, nodes.Block) for node in inside))
            strings += [(node, before) for node in inside if isinstance(node, nodes.Call) and node.name == "str"]
            effects = effects or has_effect
        return strings

    def _looked_for(self) -> bool:
        """Whether a probe that may run in the middle of the call reads what the body writes."""
        for unit in self._checked.units:
            if unit is self._unit or unit.kind.name in _AROUND or _at_exits(unit):
                continue
            bodies = [unit.body, *(function.body for function in called_functions(self._checked, unit.body))]
            for body in bodies:
                if self._maps & _names(body) - _updated_only(body) - _printed(body):
                    return True
        return False


def _at_exits(unit: ProbeUnit) -> bool:
    """Whether a unit runs at returns of system calls: after the bodies that were postponed until then."""
    places = [target.place for target in unit.targets]
    return all(isinstance(place, TracepointTarget) and place.call[0] == EXIT for place in places)


def _names(body: nodes.Node) -> set[str]:
    return {node.name for node in walk(body) if isinstance(node, nodes.MapRef)}


def _steps(block: nodes.Node) -> Iterator[nodes.Node]:
    """Statements and conditions of a block, in order."""
    waiting: list[nodes.Node] = [block]
    while waiting:
        node = waiting.pop()
        if isinstance(node, nodes.ExprStmt | nodes.Block | nodes.BlockExpr | nodes.If):
            waiting += reversed(children(node))
        else:
            yield node


def _updates(node: nodes.Node) -> bool:
    """Whether a node assigns to a map."""
    if isinstance(node, nodes.Unary):
        return node.operator in _STEPS and isinstance(node.operand, nodes.MapIndex | nodes.MapRef)
    return isinstance(node, nodes.Assign) and isinstance(node.target, nodes.MapIndex | nodes.MapRef)


def _has_effect(node: nodes.Node) -> bool:
    return (isinstance(node, nodes.Call | nodes.Identifier) and node.name in _EFFECTS) or _updates(node)


def _targets(body: nodes.Node) -> Iterator[nodes.Node]:
    """What is assigned to; steps only where nothing uses their value."""
    for node in walk(body):
        value = node.value if isinstance(node, nodes.ExprStmt | nodes.Block) else None
        if isinstance(node, nodes.Assign):
            yield node.target
        elif isinstance(value, nodes.Unary) and value.operator in _STEPS:
            yield value.operand


def _updated_only(body: nodes.Node) -> set[str]:
    """Maps that a body updates without reading them."""
    targets = {node.map if isinstance(node, nodes.MapIndex) else node for node in _targets(body)}
    references = [node for node in walk(body) if isinstance(node, nodes.MapRef)]
    read = {node.name for node in references if node not in targets}
    return {node.name for node in references} - read


def _printed(body: nodes.Node) -> set[str]:
    """Maps that a body only prints, as a whole: pytrace reads them at some later moment anyway."""
    printed = {
        item
        for node in walk(body)
        if isinstance(node, nodes.Call) and node.name in ("print", "print_clear", "clear", "zero")
        for item in node.args
        if isinstance(item, nodes.MapRef)
    }
    references = [node for node in walk(body) if isinstance(node, nodes.MapRef)]
    return {node.name for node in references} - {node.name for node in references if node not in printed}


def strings_of_keys(bodies: Iterable[nodes.Node]) -> frozenset[nodes.Node]:
    """The calls of ``str()`` whose texts are keys of maps, or part of one, also by way of a variable."""
    variables: set[str] = set()
    found: set[nodes.Node] = set()
    assigned: list[tuple[str, nodes.Expr]] = []
    for body in bodies:
        for node in walk(body):
            if isinstance(node, nodes.MapIndex):
                below = [item for key in node.keys for item in walk(key)]
                found.update(item for item in below if isinstance(item, nodes.Call) and item.name == "str")
                variables.update(item.name for item in below if isinstance(item, nodes.Variable))
            elif isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Variable):
                assigned.append((node.target.name, node.value))
            elif isinstance(node, nodes.Let) and node.value is not None:
                assigned.append((node.variable.name, node.value))
    for name, value in assigned:
        if name in variables:
            found.update(item for item in walk(value) if isinstance(item, nodes.Call) and item.name == "str")
    return frozenset(found)
