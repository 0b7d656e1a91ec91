"""How programs use maps: large keys that are digested, elements that are read again, programs that may be sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from pytrace.base.dispatch import handlers, handles, methods
from pytrace.codegen.emit.bodies import called_functions
from pytrace.core.probe_kinds import INTERVAL, ITER
from pytrace.core.types import Record, Stack, String, Tuple, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import children, walk
from pytrace.frontend.syntax.typed_program import (
    CheckedProgram,
    FunctionInfo,
    ImportedFunction,
    MapAccess,
    ProbeUnit,
    VariableInfo,
)

WORD = 8
"""Bytes that are digested at a time."""

LEAST = 64
"""Keys of at most this size are compared by the kernel as quickly as they would be digested."""


class Words(msgspec.Struct, frozen=True):
    """Words *start* to *stop* of a key; those after its used part are zero."""

    start: int
    stop: int
    text: bool = False
    """The used part ends with the word that contains a NUL byte, as in a string."""
    frame: int = 0
    """For a stack, the words per frame, otherwise 0; the word before *start* begins with the number of frames."""

    @property
    def variable(self) -> bool:
        """Whether the number of used words depends on the key."""
        return self.text or self.frame > 0


def digested_maps(checked: CheckedProgram) -> frozenset[str]:
    """Names of the maps that are indexed by a digest of their keys.

    Maps that programs delete from or iterate over are excluded: their BPF map needs the keys themselves.
    """
    names = {
        name
        for name, info in checked.maps.items()
        if info.key is not None
        and info.kind in ("hash", "percpuhash")
        and info.key.size > LEAST
        and any(_variable(info.key, 0))
    }
    return frozenset(names - set(_by_key(checked))) if names else frozenset()


def _by_key(checked: CheckedProgram) -> Iterator[str]:
    """Maps that programs delete from or iterate over."""
    bodies = [unit.body for unit in checked.units] + [function.body for function in checked.functions]
    for node in (node for body in bodies for node in walk(body)):
        if isinstance(node, nodes.For):
            yield from _maps(node.source)
        elif isinstance(node, nodes.Call) and node.name == "delete":
            yield from _maps(node)


def _maps(node: nodes.Node) -> Iterator[str]:
    return (item.name for item in walk(node) if isinstance(item, nodes.MapRef))


def words_of(key: Type) -> tuple[Words, ...]:
    """All words of a key, in order."""
    words: list[Words] = []
    start, end = 0, (key.size + WORD - 1) // WORD
    for part in _variable(key, 0):
        if part.start > start:
            words.append(Words(start, part.start))
        words.append(part)
        start = part.stop
    if end > start:
        words.append(Words(start, end))
    return tuple(words)


def _variable(type_: Type, offset: int) -> Iterator[Words]:
    """The words of parts of variable length, without words that other parts share."""
    if isinstance(type_, Stack):
        if type_.chunked:
            return
        yield Words((offset + type_.header) // WORD, (offset + type_.size) // WORD, frame=type_.frame_size // WORD)
    elif isinstance(type_, String):
        start, stop = (offset + WORD - 1) // WORD, (offset + type_.size) // WORD
        if type_.size > LEAST:
            yield Words(start, stop, text=True)
    elif isinstance(type_, Tuple | Record):
        for member, inner in zip(type_.members, type_.offsets, strict=True):
            yield from _variable(member, offset + inner)


_CONSTANT = frozenset({"pid", "tid", "uid", "gid", "cpu", "curtask", "cgroup", "retval", "func", "ctx"})
"""Builtins without arguments whose value does not change during a run of a program."""

_READ_ONLY = frozenset({"has_key", "len", "print", "printf"})
"""Builtins that take maps or elements as arguments and do not modify them."""


def element_maps(checked: CheckedProgram) -> frozenset[str]:
    """Names of the maps whose elements are numbers, and that are modified only by name, not through a pointer."""
    names = {
        name
        for name, info in checked.maps.items()
        if info.key is not None and info.value.scalar and not info.value.aggregate
    }
    if not names:
        return frozenset()
    bodies = [unit.body for unit in checked.units] + [function.body for function in checked.functions]
    for node in (node for body in bodies for node in walk(body)):
        if isinstance(node, nodes.Unary) and node.operator == "&":
            names -= _maps_in(node.operand)
    return frozenset(names)


def repeated_reads(
    checked: CheckedProgram, body: nodes.Block, names: frozenset[str]
) -> Mapping[nodes.MapIndex, nodes.MapIndex]:
    """Maps each read of an element that repeats an earlier one in *body* to the earlier one.

    Args:
        checked: the program.
        body: the body of a probe or function.
        names: the maps to consider, from :func:`element_maps`.
    """
    if not names:
        return {}
    reads = _Reads(checked, names)
    reads.visit(body)
    return reads.repeated


class _Element:
    """A map and a key's value, with the variables that the key depends on; equal if map and key are the same."""

    __slots__ = ("name", "parts", "variables")

    def __init__(self, name: str, parts: tuple[object, ...], variables: frozenset[VariableInfo]) -> None:
        self.name = name
        self.parts = parts
        self.variables = variables

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Element) and self.name == other.name and self.parts == other.parts

    def __hash__(self) -> int:
        return hash((self.name, self.parts))


class _Reads:
    """Walks a body in evaluation order; *known* contains the elements that have been read."""

    def __init__(self, checked: CheckedProgram, names: frozenset[str]) -> None:
        self.checked = checked
        self.names = names
        self.repeated: dict[nodes.MapIndex, nodes.MapIndex] = {}
        self.known: dict[_Element, nodes.MapIndex] = {}
        self._calls = 0
        self._visits: Mapping[type[nodes.Node], Callable[[nodes.Node], None]] = handlers(self)

    def visit(self, node: nodes.Node) -> None:
        """Record the reads in *node*, and drop the elements that it modifies."""
        rule = self._visits.get(type(node))
        if rule is not None:
            rule(node)
            return
        for child in children(node):
            self.visit(child)

    # ------------------------------------------------------------------ reads

    @handles(nodes.MapIndex)
    def _element(self, node: nodes.MapIndex) -> None:
        for key in node.keys:
            self.visit(key)
        element = self._same(node)
        if element is None:
            return
        earlier = self.known.get(element)
        if earlier is not None:
            self.repeated[node] = earlier
        elif not self._calls:
            # Arguments are not always evaluated: the ring buffer may be full.
            self.known[element] = node

    def _same(self, node: nodes.MapIndex) -> _Element | None:
        """The element, if its keys can change only by assignment to a variable, else None."""
        if node.map.name not in self.names:
            return None
        variables: set[VariableInfo] = set()
        parts = tuple(self._part(key, variables) for key in node.keys)
        return None if None in parts else _Element(node.map.name, parts, frozenset(variables))

    def _part(self, node: nodes.Expr, variables: set[VariableInfo]) -> tuple[object, ...] | None:
        """A hashable form of a key's value; None when it can change other than by assignment to a variable."""
        if isinstance(node, nodes.IntLiteral):
            return ("number", node.value)
        if isinstance(node, nodes.Variable):
            info = self.checked.variables.get(node)
            if info is None or not info.type.scalar:
                return None
            variables.add(info)
            return ("variable", info)
        if isinstance(node, nodes.Identifier):
            return ("builtin", node.name) if _constant(node.name) else None
        if isinstance(node, nodes.FieldAccess) and isinstance(node.base, nodes.Identifier) and node.base.name == "args":
            scalar = self.checked.types[node].scalar
            return ("args", node.name) if scalar else None
        return None

    # ------------------------------------------------------------------ changes

    def _forget(self, names: Iterable[str]) -> None:
        gone = set(names)
        self.known = {element: node for element, node in self.known.items() if element.name not in gone}

    def _forget_variable(self, node: nodes.Variable) -> None:
        info = self.checked.variables.get(node)
        self.known = {element: read for element, read in self.known.items() if info not in element.variables}

    def _changed(self, target: nodes.Expr) -> None:
        """Process an assignment to *target*: its keys are read, the element itself is not."""
        if isinstance(target, nodes.MapIndex):
            for key in target.keys:
                self.visit(key)
            self._forget([target.map.name])
        elif isinstance(target, nodes.MapRef):
            self._forget([target.name])
        elif isinstance(target, nodes.Variable):
            self._forget_variable(target)
        else:
            self.visit(target)
            self.known = {}

    @handles(nodes.Assign)
    def _assign(self, node: nodes.Assign) -> None:
        self.visit(node.value)
        self._changed(node.target)

    @handles(nodes.Let)
    def _let(self, node: nodes.Let) -> None:
        if node.value is not None:
            self.visit(node.value)
        self._forget_variable(node.variable)

    @handles(nodes.Unary)
    def _unary(self, node: nodes.Unary) -> None:
        if node.operator in ("++", "--"):
            self._changed(node.operand)
        else:
            self.visit(node.operand)

    @handles(nodes.Call)
    def _call(self, node: nodes.Call) -> None:
        self._calls += 1
        for arg in node.args:
            if node.name == "delete" and isinstance(arg, nodes.MapIndex):
                self._changed(arg)
            else:
                self.visit(arg)
        self._calls -= 1
        if isinstance(self.checked.calls.get(node), FunctionInfo | ImportedFunction):
            self.known = {}
        elif node.name not in _READ_ONLY:
            self._forget(arg.name for arg in node.args if isinstance(arg, nodes.MapRef))
            self._forget(arg.map.name for arg in node.args if isinstance(arg, nodes.MapIndex))
            for arg in node.args:
                if isinstance(arg, nodes.Variable):
                    # It may be assigned, as by find().
                    self._forget_variable(arg)

    # ------------------------------------------------------------------ ways

    def _condition(self, node: nodes.Expr) -> dict[_Element, nodes.MapIndex]:
        """Visit a condition. *known* is then valid where it holds; the result is valid in either case."""
        if isinstance(node, nodes.Binary) and node.operator == "&&":
            left = self._condition(node.left)
            self._condition(node.right)
            return _common(left, self.known)
        self.visit(node)
        return dict(self.known)

    @handles(nodes.Binary)
    def _binary(self, node: nodes.Binary) -> None:
        if node.operator not in ("&&", "||"):
            self.visit(node.left)
            self.visit(node.right)
            return
        self.visit(node.left)
        left = dict(self.known)
        self.visit(node.right)
        self.known = _common(left, self.known)

    @handles(nodes.If)
    def _if(self, node: nodes.If) -> None:
        self._either(node.condition, node.then, node.other)

    @handles(nodes.Ternary)
    def _ternary(self, node: nodes.Ternary) -> None:
        self._either(node.condition, node.then, node.other)

    def _either(self, condition: nodes.Expr, then: nodes.Node | None, other: nodes.Node | None) -> None:
        otherwise = self._condition(condition)
        if then is not None:
            self.visit(then)
        after, self.known = self.known, otherwise
        if other is not None:
            self.visit(other)
        self.known = _common(after, self.known)

    @handles(nodes.For, nodes.While, nodes.Unroll)
    def _loop(self, node: nodes.Stmt) -> None:
        self.known = {}
        for child in children(node):
            self.visit(child)
        self.known = {}


def _common(
    one: dict[_Element, nodes.MapIndex], other: dict[_Element, nodes.MapIndex]
) -> dict[_Element, nodes.MapIndex]:
    return {element: node for element, node in one.items() if other.get(element) is node}


def _constant(name: str) -> bool:
    return name in _CONSTANT or (name.startswith(("arg", "sarg")) and name.lstrip("sarg").isdigit())


def _maps_in(node: nodes.Node) -> set[str]:
    return {item.name for item in walk(node) if isinstance(item, nodes.MapRef)}


# ---------------------------------------------------------------------------------------------- insertions


def inserted_maps(checked: CheckedProgram, names: frozenset[str]) -> dict[nodes.Block, frozenset[str]]:
    """For each probe body, the maps that it mostly inserts into when it assigns to an element.

    An assignment looks the key up first and stores in place, which is cheaper than having the kernel replace an
    element. Where the key is mostly missing, the look-up is wasted.

    These are the maps in *names* whose elements some probe reads and deletes (the return of a pair of entry and return
    probes), except for those that the body itself reads.
    """
    if not names:
        return {}
    accesses = {unit.body: _used(unit.body) for unit in checked.units}
    names_taken = names & {name for read, deleted in accesses.values() for name in read & deleted}
    return {body: names_taken - read for body, (read, _) in accesses.items()}


def _used(body: nodes.Block) -> tuple[set[str], set[str]]:
    """Names of the maps whose elements *body* reads, and of those whose elements it deletes."""
    read: set[str] = set()
    deleted: set[str] = set()
    targets: set[nodes.Expr] = set()
    for node in walk(body):
        if isinstance(node, nodes.Assign) and node.operator == "=":
            targets.add(node.target)
        elif isinstance(node, nodes.Call) and node.name == "delete" and node.args:
            argument = node.args[0]
            if isinstance(argument, nodes.MapIndex):
                targets.add(argument)
                deleted.add(argument.map.name)
            elif isinstance(argument, nodes.MapRef):
                deleted.add(argument.name)
        elif isinstance(node, nodes.MapIndex) and node not in targets:
            read.add(node.map.name)
    return read, deleted


class Uses(msgspec.Struct):
    """What a program does with maps, and the events that it sends."""

    reads: set[str] = msgspec.field(default_factory=set)
    writes: set[str] = msgspec.field(default_factory=set)
    deletes: set[str] = msgspec.field(default_factory=set)
    events: set[int] = msgspec.field(default_factory=set)


class SamplingPlan(msgspec.Struct, frozen=True):
    """The result for a script. Units are numbered in the order of :attr:`CheckedProgram.units`."""

    uses: tuple[Uses, ...]
    sampled: frozenset[int]
    """Units that may leave hits out."""
    weighted: frozenset[str]
    """Maps whose values have weights beside them."""
    linked: frozenset[str]
    """Maps that link programs."""

    def storing(self, number: int) -> frozenset[str]:
        """Maps for whose values a unit stores weights."""
        return self.weighted & self.uses[number].writes if number in self.sampled else frozenset()

    def reading(self, number: int) -> frozenset[str]:
        """Maps whose values give a unit its weight."""
        uses = self.uses[number]
        return frozenset() if number in self.sampled else self.weighted & (uses.reads | uses.deletes)


def gated(unit: ProbeUnit) -> bool:
    """Whether hits of a unit may be left out: not those of programs that the tracer runs, and of its timers."""
    return not unit.kind.special and unit.kind.name not in (INTERVAL, ITER)


def weights_symbol(name: str) -> str:
    """Name of the map with the weights of a map's values."""
    return f"weights_{name.removeprefix('@')}"


def sampling_plan(checked: CheckedProgram) -> SamplingPlan:
    """Find the programs that may be sampled."""
    uses = tuple(_uses(checked, unit) for unit in checked.units)
    numbers = [number for number, unit in enumerate(checked.units) if gated(unit)]
    written = _all(uses[number].writes for number in numbers)
    deleted = _all(uses[number].deletes for number in numbers)
    plain = {name for name, info in checked.maps.items() if not info.value.aggregate}
    linked = written & (deleted | (plain & _all(uses[number].reads for number in numbers)))
    keyed = {name for name in linked if checked.maps[name].key is not None}

    def runs_always(use: Uses) -> bool:
        stateful = (use.writes & linked - keyed) | (use.writes & linked & (use.reads | use.deletes))
        return bool(stateful or use.deletes & linked or use.reads & keyed or use.writes & keyed - deleted)

    sampled = frozenset(number for number in numbers if not runs_always(uses[number]))
    weighted = keyed & plain & _all(uses[number].writes for number in sampled)
    return SamplingPlan(uses, sampled, frozenset(weighted), frozenset(linked))


def _all(sets: Iterable[set[str]]) -> set[str]:
    return {name for each in sets for name in each}


def _uses(checked: CheckedProgram, unit: ProbeUnit) -> Uses:
    visitor = _UsesOfBody(checked, Uses())
    for body in (unit.body, *(function.body for function in called_functions(checked, unit.body))):
        visitor.visit(body)
    return visitor.uses


_DELETE = "delete"
_EMPTYING = ("clear", "zero")
_PASSED = ("print", "clear", "zero", "quantiles")
"""Calls that pass the map itself to user space, which reads it there."""


class _UsesOfBody(msgspec.Struct):
    """Records in *uses* what bodies do with maps."""

    checked: CheckedProgram
    uses: Uses

    def visit(self, node: nodes.Node) -> None:
        """Record the uses in *node*."""
        if node in self.checked.events:
            self.uses.events.add(self.checked.events[node].id)
        rule = methods(_UsesOfBody).get(type(node))
        if rule is not None:
            rule(self, node)
        else:
            self._inside(node)

    def _inside(self, node: nodes.Node) -> None:
        for child in children(node):
            self.visit(child)

    @handles(nodes.Assign)
    def _assign(self, node: nodes.Assign) -> None:
        target = _name(node.target)
        if target is None:
            self._inside(node)
            return
        self.uses.writes.add(target)
        self._keys(node.target)
        self.visit(node.value)

    @handles(nodes.Unary)
    def _unary(self, node: nodes.Unary) -> None:
        target = _name(node.operand) if node.operator in ("++", "--", "&") else None
        if target is not None:
            self.uses.writes.add(target)
            if node.operator != "&":
                self._keys(node.operand)
                return
        self._inside(node)

    @handles(nodes.Call)
    def _call(self, node: nodes.Call) -> None:
        access = self.checked.find_fact(node, MapAccess)
        if access is not None:
            (self.uses.deletes if node.name == _DELETE else self.uses.reads).add(access.map)
            for key in access.keys:
                self.visit(key)
        for argument in node.args:
            if isinstance(argument, nodes.MapRef) and (access is not None or node.name in _PASSED):
                if node.name in _EMPTYING:
                    self.uses.deletes.add(argument.name)
            elif access is None:
                self.visit(argument)

    @handles(nodes.MapRef, nodes.MapIndex)
    def _read(self, node: nodes.MapRef | nodes.MapIndex) -> None:
        self.uses.reads.add(_known(node))
        self._keys(node)

    def _keys(self, node: nodes.Node) -> None:
        for key in node.keys if isinstance(node, nodes.MapIndex) else ():
            self.visit(key)


def _name(node: nodes.Node) -> str | None:
    return _known(node) if isinstance(node, nodes.MapRef | nodes.MapIndex) else None


def _known(node: nodes.MapRef | nodes.MapIndex) -> str:
    return node.name if isinstance(node, nodes.MapRef) else node.map.name
