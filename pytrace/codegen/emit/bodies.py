"""How bodies become functions: shared variables, long bodies that are split, and bodies that run later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pytrace.base.dispatch import handles, methods
from pytrace.core.builtins import Builtin
from pytrace.core.probe_kinds import BEGIN, END, ENTER, EXIT, SELF, TRACEPOINT, TracepointTarget
from pytrace.core.types import VOID, Pointer
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import children, walk
from pytrace.frontend.syntax.typed_program import (
    CallRegister,
    CheckedProgram,
    ContextField,
    FunctionInfo,
    ProbeArgument,
    ProbeUnit,
    VariableInfo,
)


def shared_variables(checked: CheckedProgram, body: nodes.Block, plan: Plan) -> frozenset[VariableInfo]:
    """Variables that the loops and parts below *body* share with the code around them."""
    regions = _Regions(checked, plan)
    regions.visit(body, 0)
    return frozenset(regions.shared)


class _Regions:
    """The function that each part of a body belongs to, as a number."""

    def __init__(self, checked: CheckedProgram, plan: Plan) -> None:
        self.checked = checked
        self.plan = plan
        self.shared: set[VariableInfo] = set()
        self._first: dict[VariableInfo, int] = {}
        self._last = 0

    def visit(self, node: nodes.Node, region: int) -> None:
        """Record the variables of a node that belongs to *region*."""
        rule = methods(_Regions).get(type(node))
        if rule is not None:
            rule(self, node, region)
        else:
            self._inside(node, region)

    def _inside(self, node: nodes.Node, region: int) -> None:
        if self.plan.long or self.plan.loops:
            self._pointed_to(node)
        for child in children(node):
            self.visit(child, region)

    def _apart(self) -> int:
        self._last += 1
        return self._last

    @handles(nodes.Variable)
    def _variable(self, node: nodes.Variable, region: int) -> None:
        info = self.checked.variables.get(node)
        if info is not None and self._first.setdefault(info, region) != region:
            self.shared.add(info)

    @handles(nodes.Unroll)
    def _unroll(self, node: nodes.Unroll, region: int) -> None:
        if node in self.plan.loops:
            self.visit(node.body, self._apart())
        else:
            self._inside(node, region)

    @handles(nodes.While, nodes.For)
    def _loop(self, node: nodes.While | nodes.For, region: int) -> None:
        inner = self._apart()
        if isinstance(node, nodes.For):
            self.visit(node.source, region)
            self.visit(node.variable, inner)
        else:
            self.visit(node.condition, inner)
        self.visit(node.body, inner)

    @handles(nodes.Block)
    def _block(self, node: nodes.Block, region: int) -> None:
        for segment in self.plan.segments(node):
            inner = self._apart() if segment.apart else region
            for statement in segment.statements:
                self.visit(statement, inner)
        if node.value is not None:
            self.visit(node.value, region)

    @handles(nodes.If)
    def _if(self, node: nodes.If, region: int) -> None:
        chain = self.plan.chains.get(node)
        if chain is None:
            self._inside(node, region)
            return
        for group in chain.groups:
            inner = self._apart()
            for arm in group:
                self.visit(arm.condition, inner)
                self.visit(arm.then, inner)
        if chain.other is not None:
            self.visit(chain.other, region)

    def _pointed_to(self, node: nodes.Node) -> None:
        """Variables whose address is taken, which must outlive the part that takes it."""
        if not (isinstance(node, nodes.Unary) and node.operator == "&") and not isinstance(node, nodes.Cast):
            return
        if not isinstance(self.checked.types.get(node), Pointer):
            return
        place: nodes.Node = node.operand
        while isinstance(place, nodes.FieldAccess | nodes.Index):
            place = place.base
        info = self.checked.variables.get(place) if isinstance(place, nodes.Variable) else None
        if info is not None and (isinstance(node, nodes.Unary) or not info.type.scalar):
            self.shared.add(info)


def all_variables(checked: CheckedProgram, body: nodes.Block, _plan: Plan) -> frozenset[VariableInfo]:
    """All variables of *body*."""
    variables = (checked.variables.get(node) for node in walk(body) if isinstance(node, nodes.Variable))
    return frozenset(info for info in variables if info is not None)


def called_functions(checked: CheckedProgram, body: nodes.Block) -> list[FunctionInfo]:
    """User functions that *body* calls, directly or not; each after those that it calls itself."""
    functions: list[FunctionInfo] = []
    if not checked.functions:
        return functions

    def visit(node: nodes.Node) -> None:
        for child in children(node):
            visit(child)
        if isinstance(node, nodes.Call):
            target = checked.calls.get(node)
            if isinstance(target, FunctionInfo) and target not in functions:
                visit(target.body)
                functions.append(target)

    visit(body)
    return functions


WHOLE = 3000
"""Nodes of a body that stays one function."""

PART = 1000
"""Nodes of a part, unless there would be too many of them."""

UNROLLED = 2000
"""Total nodes of all iterations of an ``unroll`` before it becomes a loop."""

MOST_PARTS = 96
"""Maximum parts of a program, some of which may be half as long: the kernel allows 256 functions."""

DEEPEST = 3
"""Maximum nesting of unrolls that become loops: the kernel allows a call depth of eight functions."""


class Segment(msgspec.Struct, frozen=True):
    """Consecutive statements: in a function of their own (*apart*), or inline."""

    statements: tuple[nodes.Stmt, ...]
    apart: bool


class Arm(msgspec.Struct, frozen=True):
    """One branch of a chain of ``else if``."""

    condition: nodes.Expr
    then: nodes.Block


class Chain(msgspec.Struct, frozen=True):
    """A long ``if … else if …``: its branches in groups, each a function, and the final ``else``."""

    groups: tuple[tuple[Arm, ...], ...]
    other: nodes.Block | None


class Plan(msgspec.Struct, eq=False):
    """How the bodies of a program are split."""

    blocks: dict[nodes.Block, tuple[Segment, ...]] = msgspec.field(default_factory=dict)
    chains: dict[nodes.If, Chain] = msgspec.field(default_factory=dict)
    loops: set[nodes.Unroll] = msgspec.field(default_factory=set)
    iterates: bool = False
    """Whether there is any loop."""

    @property
    def long(self) -> bool:
        """Whether anything is split."""
        return bool(self.blocks)

    def segments(self, block: nodes.Block) -> Iterable[Segment]:
        """The statements of a block, as segments."""
        split = self.blocks.get(block)
        return (Segment(block.statements, False),) if split is None else split


class _Size(msgspec.Struct, frozen=True):
    """The size of a node: *nodes* with unrolled iterations, depth of nested *loops*, and whether it leaves a loop."""

    nodes: int
    loops: int = 0
    jumps: bool = False


def split_plan(checked: CheckedProgram, bodies: Iterable[nodes.Block]) -> Plan:
    """How the *bodies* of a program and of the functions that it calls are split."""
    planner = _Planner(checked)
    all_bodies = list(bodies)
    count = sum(planner.size(body).nodes for body in all_bodies)
    if count > WHOLE:
        planner.part = max(PART, count // MOST_PARTS)
        for body in all_bodies:
            planner.cut(body)
    return planner.plan


class _Planner(msgspec.Struct):
    checked: CheckedProgram
    plan: Plan = msgspec.field(default_factory=Plan)
    part: int = PART
    sizes: dict[nodes.Node, _Size] = {}

    # ---------------------------------------------------------------------------------------- sizes

    def size(self, node: nodes.Node) -> _Size:
        """The size of a node, cached for those that may be split."""
        count, loops, jumps = 1, 0, isinstance(node, nodes.Break | nodes.Continue)
        for child in children(node):
            inner = self.size(child)
            count += inner.nodes
            loops = max(loops, inner.loops)
            jumps = jumps or inner.jumps
        if isinstance(node, nodes.For | nodes.While):
            jumps = False
            self.plan.iterates = True
        elif isinstance(node, nodes.Unroll):
            jumps = False
            self.plan.iterates = True
            rounds = int(self.checked.constants.get(node.count, 1))
            if rounds * count <= UNROLLED or loops >= DEEPEST:
                count *= rounds
            else:
                self.plan.loops.add(node)
                loops += 1
        size = _Size(count, loops, jumps)
        if isinstance(node, nodes.Stmt | nodes.Block | nodes.If):
            self.sizes[node] = size
        return size

    # ---------------------------------------------------------------------------------------- splitting

    def cut(self, node: nodes.Node) -> None:
        """Split the blocks and chains of a node that are too long."""
        if node in self.sizes and self.sizes[node].nodes <= self.part:
            return
        if isinstance(node, nodes.Block):
            self.plan.blocks[node] = tuple(self._segments(node))
            if node.value is not None:
                self.cut(node.value)
        elif isinstance(node, nodes.If) and self.checked.types.get(node, VOID) == VOID and not self.sizes[node].jumps:
            self._chain(node)
        else:
            for child in children(node):
                self.cut(child)

    def _segments(self, block: nodes.Block) -> Iterator[Segment]:
        pending: list[nodes.Stmt] = []
        length = 0
        for statement in block.statements:
            size = self.sizes[statement]
            alone = size.nodes > self.part or size.jumps
            if pending and (alone or length + size.nodes > self.part):
                yield Segment(tuple(pending), 2 * length > self.part)
                pending, length = [], 0
            if alone:
                self.cut(statement)
                yield Segment((statement,), False)
            else:
                pending.append(statement)
                length += size.nodes
        if pending:
            yield Segment(tuple(pending), 2 * length > self.part)

    def _chain(self, node: nodes.If) -> None:
        groups: list[list[Arm]] = [[]]
        length = 0
        branch: nodes.Block | nodes.If | None = node
        while isinstance(branch, nodes.If):
            constant = self.checked.constants.get(branch.condition)
            if constant is not None:
                branch = branch.then if constant else branch.other
                continue
            size = self.sizes[branch.then].nodes + self._condition_nodes(branch)
            if groups[-1] and length + size > self.part:
                groups.append([])
                length = 0
            groups[-1].append(Arm(branch.condition, branch.then))
            length += size
            self.cut(branch.then)
            branch = branch.other
        if branch is not None:
            self.cut(branch)
        if len(groups) > 1:
            self.plan.chains[node] = Chain(tuple(tuple(group) for group in groups), branch)

    def _condition_nodes(self, node: nodes.If) -> int:
        other = self.sizes[node.other].nodes if node.other is not None else 0
        return self.sizes[node].nodes - self.sizes[node.then].nodes - other


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
        if isinstance(node, nodes.Expr) and node in self._checked.constants:
            return True
        rule = methods(type(self)).get(type(node))
        return isinstance(node, _PLAIN) if rule is None else bool(rule(self, node))

    @handles(nodes.FieldAccess)
    def _same_field(self, node: nodes.FieldAccess) -> bool:
        path = self._checked.fields.get(node)
        if path is None or path.argument is None:
            return path is not None and path.how == "record"
        self._arguments[path.argument.name] = path.argument
        return True

    @handles(nodes.Call, nodes.Identifier)
    def _same_name(self, node: nodes.Call | nodes.Identifier) -> bool:
        if node.name == "args":
            # All arguments together are not kept.
            return self._has_member(node)
        builtin = self._checked.calls.get(node)
        if builtin is None and node not in self._checked.types:
            return True  # a word, such as the clock of nsecs()
        return isinstance(builtin, Builtin) and builtin.name in _VALUES | _EFFECTS

    @handles(nodes.Unary)
    def _same_unary(self, node: nodes.Unary) -> bool:
        return node.operator in ("!", "~", "-") or _updates(node)

    @handles(nodes.Assign)
    def _same_assignment(self, node: nodes.Assign) -> bool:
        return isinstance(node.target, nodes.Variable) or _updates(node)

    @handles(nodes.MapRef)
    def _same_map(self, node: nodes.MapRef) -> bool:
        return node.name in self._maps

    @handles(nodes.MapIndex)
    def _same_element(self, node: nodes.MapIndex) -> bool:
        return node.map.name in self._maps

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


_READS = frozenset({"buf", "pystr", "str"})
"""Builtins that read a text or bytes."""

_LOOKED_INTO = frozenset({"delete", "has_key", "strcontains", "strlen", "strncmp", "strstr"})
"""Builtins that look into a text, or for the element that has it as its key."""

_COMPARED = frozenset({"==", "!=", "<", ">", "<=", ">=", "&&", "||"})


def deciding_strings(checked: CheckedProgram) -> frozenset[nodes.Node]:
    """The calls of ``str()`` and ``buf()`` on which a key or a condition depends.

    Also by way of variables and maps (functions take and return no strings): where such a read fails, something is
    counted under another name or left out, and nothing that is printed shows it.
    """
    if not any(isinstance(node, nodes.Call) and node.name in _READS for node in checked.calls):
        return frozenset()
    functions = {function for unit in checked.units for function in called_functions(checked, unit.body)}
    bodies = [*(unit.body for unit in checked.units), *(function.body for function in functions)]
    every = [node for body in bodies for node in walk(body)]
    decides = [value for node in every for value in _deciding(node)]
    passed = [pair for node in every for pair in _passed(node)]
    names: set[str] = set()
    found: set[nodes.Node] = set()
    while decides:
        for below in walk(decides.pop()):
            if isinstance(below, nodes.Call) and below.name in _READS:
                found.add(below)
            name = _name(below)
            if name and name not in names:
                names.add(name)
                decides += [value for target, value in passed if target == name]
    return frozenset(found)


def _deciding(node: nodes.Node) -> Sequence[nodes.Node]:
    """What a node uses as a key, or decides by."""
    if isinstance(node, nodes.MapIndex):
        return node.keys
    if isinstance(node, nodes.If | nodes.Ternary | nodes.While):
        return (node.condition,)
    if isinstance(node, nodes.Binary) and node.operator in _COMPARED:
        return (node.left, node.right)
    return node.args if isinstance(node, nodes.Call) and node.name in _LOOKED_INTO else ()


def _passed(node: nodes.Node) -> Iterator[tuple[str, nodes.Node]]:
    """Values that a node assigns, each with the name of the variable or map."""
    if isinstance(node, nodes.Assign):
        yield _name(node.target), node.value
    elif isinstance(node, nodes.Let) and node.value is not None:
        yield _name(node.variable), node.value


def _name(node: nodes.Node) -> str:
    """The name of the variable or map that a node is, or is an element of; empty for others."""
    if isinstance(node, nodes.MapIndex):
        node = node.map
    if isinstance(node, nodes.Variable):
        return f"${node.name}"
    return node.name if isinstance(node, nodes.MapRef) else ""
