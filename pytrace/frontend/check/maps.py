"""Typing rules of maps: reads, uses with and without a key, declarations, and the kinds of maps.

Aggregations are per-CPU, so that no CPU waits for another. In a map with very many keys this costs more than it gains:
the kernel allocates, copies and frees keys x CPUs values (1.1 million counts on two CPUs: 0.7 s to create the map
instead of 0.03 s). Such a map is shared: an ordinary hash map with one value per key, to which all CPUs add atomically.
That is possible for sums only, and for maps that the script does not set to zero: zeroing replaces the element in the
hash map while another CPU may still be adding to the old one, which the kernel may already have reused for another key.

``print(@m); clear(@m);`` are merged into one atomic step: both are asynchronous, so programs on other CPUs could update
the map between printing and clearing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pytrace.base.dispatch import handles, methods
from pytrace.core.diagnostics import did_you_mean
from pytrace.core.event_layout import (
    EmptiedMap,
    EventSpec,
)
from pytrace.core.manifest import MAP_TYPES
from pytrace.core.options import Config
from pytrace.core.source import Span
from pytrace.core.types import (
    INT64,
    SUMS,
    UINT64,
    AddressSpace,
    Avg,
    Count,
    Hist,
    LHist,
    Max,
    Min,
    Pointer,
    Stats,
    Sum,
    Tuple,
    Type,
)
from pytrace.frontend.check.checker import Checker, MapState
from pytrace.frontend.check.conversions import UNKNOWN, Unknown, contains_unknown, settle
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import MapInfo

MANY_KEYS = 1 << 16
"""Minimum number of keys of a shared map: with fewer keys, CPUs often add to the same one at the same time."""
MUCH_MEMORY = 1 << 20
"""Minimum size of all per-CPU values, in bytes, for a map to be shared."""

_MOST_CALLS = 16384
"""Calls of one probe that may be under way at the same time."""


def kind_of_undeclared(value: Type, entries: int, cpus: int, *, zeroed: bool) -> str:
    """The kind of a keyed map (:attr:`pytrace.core.manifest.MapSpec.kind`).

    Args:
        value: type of its values.
        entries: maximum number of keys.
        cpus: number of possible CPUs.
        zeroed: whether the script sets the map to zero.
    """
    if not value.aggregate:
        return "hash"
    many = entries >= MANY_KEYS and copies_size(value, entries, cpus) >= MUCH_MEMORY
    return "hash" if many and isinstance(value, SUMS) and not zeroed else "percpuhash"


def copies_size(value: Type, entries: int, cpus: int) -> int:
    """Size in bytes of the values of a full per-CPU map."""
    size = 8 if isinstance(value, Hist | LHist) else value.size
    return entries * cpus * size


def zeroed_maps(events: Iterable[EventSpec]) -> frozenset[str]:
    """Names of the maps that a script sets to zero, from the events that it sends."""
    return frozenset(spec.static_part(EmptiedMap).map for spec in events if spec.kind == "zero")


# ---------------------------------------------------------------------------------------------- documentation comments


def comment_above(span: Span) -> str:
    """The text of the comment that ends on the line above the one where *span* starts; empty when there is none.

    Consecutive ``//`` lines are one comment, and lines of a block comment are joined by newlines, without comment
    markers and surrounding spaces. A comment after code belongs to that code.
    """
    text = span.source.text
    end = text.rfind("\n", 0, span.start)
    lines: list[str] = []
    while end >= 0:
        start = text.rfind("\n", 0, end) + 1
        line = text[start:end].strip()
        if not lines and line.endswith("*/"):
            return _block_comment(text, end)
        if not line.startswith("//"):
            break
        lines.append(line.lstrip("/").strip())
        end = start - 1
    return "\n".join(reversed(lines)).strip()


def _block_comment(text: str, end: int) -> str:
    """The block comment that ends the line that ends at *end*."""
    start = text.rfind("/*", 0, end)
    if start < 0 or text[text.rfind("\n", 0, start) + 1 : start].strip():
        return ""
    inner = text[start + 2 : end].rstrip().removesuffix("*/")
    return "\n".join(line.strip().lstrip("*").strip() for line in inner.split("\n")).strip()


# ---------------------------------------------------------------------------------------------- names of keys


def key_names(keys: tuple[nodes.Expr, ...]) -> tuple[str, ...]:
    """What a script calls the members of a key: ``comm``, ``filename`` of ``str(args.filename)``; else empty.

    Members of several records of one name have that of the record, too: ``waker comm`` of ``$waker.comm``. A text in
    quotes is its own name, with its quotes: it is a name for people, not for columns of files.
    """
    if len(keys) == 1 and isinstance(keys[0], nodes.TupleLiteral):
        keys = keys[0].members
    names = [
        f'"{key.value.decode("utf-8", "replace")}"' if isinstance(key, nodes.StringLiteral) else _KeyNames().of(key)
        for key in keys
    ]
    return tuple(
        f"{_KeyNames().of(key.base)} {name}".lstrip()
        if names.count(name) > 1 and isinstance(key, nodes.FieldAccess) and not isinstance(key.base, nodes.Call)
        else name
        for key, name in zip(keys, names, strict=True)
    )


_NAMED = {"syscall_name": "syscall", "signal_name": "signal", "strerror": "error"}
"""What functions return, where that is not their argument in another form."""


class _KeyNames:
    """What a script calls members of keys, by their expressions."""

    def of(self, node: nodes.Node | None) -> str:
        """The name of a member; empty where it has none."""
        rule = methods(_KeyNames).get(type(node))
        name: str = "" if rule is None else rule(self, node)
        return name

    @handles(nodes.Identifier, nodes.FieldAccess)
    def _named(self, node: nodes.Identifier | nodes.FieldAccess) -> str:
        return node.name

    @handles(nodes.Variable)
    def _variable(self, node: nodes.Variable) -> str:
        return node.shown

    @handles(nodes.CallPart)
    def _part(self, node: nodes.CallPart) -> str:
        return node.part

    @handles(nodes.MapIndex)
    def _element(self, node: nodes.MapIndex) -> str:
        return node.map.name.removeprefix("@")

    @handles(nodes.Cast, nodes.Unary)
    def _operand(self, node: nodes.Cast | nodes.Unary) -> str:
        return self.of(node.operand)

    @handles(nodes.Call)
    def _call(self, node: nodes.Call) -> str:
        return _NAMED.get(node.name) or (self.of(node.args[0]) if node.args else "") or node.name

    @handles(nodes.Binary)
    def _binary(self, node: nodes.Binary) -> str:
        return self.of(node.left) if isinstance(node.right, nodes.IntLiteral) else ""

    @handles(nodes.Ternary)
    def _ternary(self, node: nodes.Ternary) -> str:
        return self.of(node.then) or self.of(node.other)

    @handles(nodes.BlockExpr)
    def _block_value(self, node: nodes.BlockExpr) -> str:
        return self.of(node.block)

    @handles(nodes.Block)
    def _block(self, node: nodes.Block) -> str:
        return self.of(node.value)

    @handles(nodes.If)
    def _if(self, node: nodes.If) -> str:
        return self.of(node.then) or self.of(node.other)


def _first_names(known: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """*known* names, with those of *names* where it lacks any; two texts in quotes name nothing."""
    if len(known) != len(names):
        return known or names
    return tuple(
        '""' if one != other and one[:1] == other[:1] == '"' else one or other
        for one, other in zip(known, names, strict=True)
    )


# ---------------------------------------------------------------------------------------------- the rules


def read_type(type_: Type) -> Type | None:
    """The type of an expression that reads a map with values of type *type_*; None for unreadable aggregates."""
    if isinstance(type_, Count):
        return INT64
    if isinstance(type_, Sum | Avg | Min | Max):
        return INT64 if type_.signed else UINT64
    if isinstance(type_, Stats):
        return type_
    return None if type_.aggregate else type_

PRIVATE = "private"
"""The word that declares a map which is not printed at the end."""


class Maps(msgspec.Struct, eq=False):
    """Typing rules of maps: uses with and without key, reads, declarations."""

    checker: Checker

    def declare(self, node: nodes.MapDecl) -> None:
        """Check ``let @m = kind(size)``."""
        state = self.checker.state_of(node.map)
        if state.declaration is not None and state.declaration is not node:
            notes = [("first declared here", state.declaration.span)]
            self.checker.error(f"{node.map.name} is already declared", node.span, notes=notes)
            return
        state.declaration = node
        if node.modifier not in ("", PRIVATE):
            self._report_modifier(node)
            return
        if node.size is None:
            return
        if node.kind not in MAP_TYPES:
            known = ", ".join(MAP_TYPES)
            hints = did_you_mean(node.kind, MAP_TYPES) or (f"there are {known}",)
            self.checker.error(f"there is no map type {node.kind!r}", node.span, hints=hints)
        size = self.checker.constant_integer(node.size, "the size of a map")
        if size is not None and not 1 <= size < 1 << 32:
            self.checker.error(f"a map cannot have {size} entries", node.size.span)

    def _report_modifier(self, node: nodes.MapDecl) -> None:
        name, word = node.map.name, node.modifier
        hints = [f"let {name} = {PRIVATE}; is a map that is not printed at the end"]
        if word in MAP_TYPES and node.size is None:
            hints = [f"write let {name} = {word}(SIZE);"]
            self.checker.error(f"{word} needs the number of its entries", node.span, hints=hints)
        elif node.size is None and (alike := did_you_mean(word, [*MAP_TYPES, PRIVATE])):
            self.checker.error(f"there is no map type {word!r}", node.span, hints=alike)
        else:
            self.checker.error(f"{word!r} is no word for a map", node.span, hints=hints)

    def finish(self) -> None:
        """Fill in the program's maps; report declarations that conflict with the use."""
        # Those of calls come last: a manifest has them apart.
        for name, state in sorted(self.checker.maps.items(), key=lambda item: (":" in item[0], item[0])):
            if state.declaration is not None and not state.named:
                self.checker.warn(f"{name} is declared but never used", state.declaration.span)
            if not state.used:
                continue
            value = settle(state.value.type)
            if state.incomplete:
                # Reads of such a map have been reported; only calls such as clear(@m) remain.
                if not self.checker.diagnostics.failed and state.span is not None:
                    self.checker.undefined_map(state, state.span)
                continue
            self.checker.program.maps[name] = self._map_info(state, value)

    def _map_info(self, state: MapState, value: Type) -> MapInfo:
        declaration = state.declaration
        span = state.span if state.span is not None else (declaration.span if declaration is not None else None)
        assert span is not None
        private = declaration is not None and declaration.modifier == PRIVATE
        comment = ("" if declaration is None else comment_above(declaration.span)) or comment_above(span)
        if declaration is not None and declaration.size is None:
            declaration = None
        if not state.keyed:
            if declaration is not None and declaration.kind.startswith("percpu") != value.aggregate:
                self._report_kind(declaration, value)
            return MapInfo(state.name, None, value, "global", 1, span, comment, private=private)
        key, entries, kind = settle(state.key.type), self.checker.config.max_map_keys, "hash"
        if ":" in state.name:
            entries = _MOST_CALLS if entries == Config().max_map_keys else entries
        if declaration is not None:
            kind = declaration.kind
            assert declaration.size is not None
            size = self.checker.constant(declaration.size)
            entries = size if isinstance(size, int) else entries
            if kind.startswith("percpu") != value.aggregate:
                self._report_kind(declaration, value)
        elif value.aggregate:
            kind = self._kind_of_aggregation(state, value, span)
        return MapInfo(state.name, key, value, kind, entries, span, comment, state.key_names, private)

    def _kind_of_aggregation(self, state: MapState, value: Type, span: Span) -> str:
        entries, cpus = self.checker.config.max_map_keys, self.checker.kernel.possible_cpus
        zeroed = state.name in zeroed_maps(self.checker.program.event_list)
        kind = kind_of_undeclared(value, entries, cpus, zeroed=zeroed)
        if kind == "hash" and self.checker.options.verbose:
            size = copies_size(value, entries, cpus) >> 20
            self.checker.diagnostics.note(
                f"{state.name} has one value for each key, which all CPUs add to: {entries} keys with a value for each "
                f"of {cpus} CPUs would take {size} MiB (to have that, declare {state.name} as percpuhash)",
                span,
            )
        return kind

    def _report_kind(self, declaration: nodes.MapDecl, value: Type) -> None:
        wanted = "percpuhash or percpulruhash" if value.aggregate else "hash or lruhash"
        self.checker.error(
            f"{declaration.map.name} holds {value}, which a {declaration.kind} cannot",
            declaration.span,
            hints=[f"declare it as {wanted}"],
        )

    def read_map(self, node: nodes.MapRef | nodes.MapIndex, state: MapState) -> Type:
        """Type of a map's value when it is read."""
        if not self.checker.relies_on(state.value):
            return UNKNOWN
        type_ = state.value.type
        if isinstance(type_, Unknown):
            if self.checker.final:
                return self.checker.undefined_map(state, node.span)
            return UNKNOWN
        value_type = read_type(type_)
        if value_type is None:
            return self.checker.error(
                f"a value of {type_} cannot be read by the script",
                node.span,
                hints=[f"print({state.name}) prints the map"],
            )
        shared = not type_.aggregate or (state.declaration is not None and state.declaration.kind == "hash")
        if isinstance(node, nodes.MapIndex) and not shared and not self.checker.kernel.feature("lookup_percpu_elem"):
            hints = ["Linux 5.19 can (bpf_map_lookup_percpu_elem); print() shows the value"]
            message = "this kernel cannot read a key of an aggregation in programs"
            return self.checker.error(message, node.span, hints=hints, kernel=True)
        return value_type

    def use_scalar(self, node: nodes.MapRef) -> MapState | None:
        """A map used without key; None after an error."""
        state = self.checker.map(node)
        return state if self._same_shape(state, keyed=False, node=node) else None

    def use_keyed(self, node: nodes.MapIndex) -> MapState | None:
        """A map used with a key, which is checked; None after an error."""
        state = self.checker.map(node.map)
        if not self._same_shape(state, keyed=True, node=node):
            for key in node.keys:
                self.checker.value(key)
            return None
        self.put_key(state, node.keys, node)
        return state

    def put_key(self, state: MapState, keys: tuple[nodes.Expr, ...], node: nodes.Expr) -> None:
        """Check that *keys* may be the key of a map."""
        key_types = tuple(self.checker.value(key) for key in keys)
        for key, key_type in zip(keys, key_types, strict=True):
            if isinstance(key_type, Stats) or key_type.aggregate:
                self.checker.error(f"{key_type} cannot be a key", key.span)
                return
            if self._is_context(key_type):
                self.checker.error("the context cannot be a key: it is gone after the probe", key.span)
                return
        key_type = key_types[0] if len(key_types) == 1 else Tuple(key_types)
        state.key_names = _first_names(state.key_names, self._names(keys))
        if not contains_unknown(key_type):
            self.checker.put_map(state.name, state.key, key_type, node.span, "key")

    def _names(self, keys: tuple[nodes.Expr, ...]) -> tuple[str, ...]:
        """As :func:`key_names`; of a variable those of the members of the tuple that it has."""
        variable = self.checker.scope.find(keys[0].name) if isinstance(keys[0], nodes.Variable) else None
        return variable.members if len(keys) == 1 and variable is not None and variable.members else key_names(keys)

    def _is_context(self, type_: Type) -> bool:
        context = self.checker.unit.context.ctx_type if self.checker.unit is not None else None
        if not isinstance(type_, Pointer) or not isinstance(context, Pointer):
            return False
        return type_.space is AddressSpace.BPF and type_.target == context.target

    def _same_shape(self, state: MapState, *, keyed: bool, node: nodes.Expr) -> bool:
        if state.keyed is None or (state.keyed_offered and self.checker.removed is None):
            state.keyed, state.keyed_at, state.keyed_offered = keyed, node.span, self.checker.removed is not None
        if state.keyed == keyed:
            return True
        place = state.keyed_at or node.span
        if keyed:
            message, first = f"{state.name} has no key, so it cannot be indexed", "used without key here"
        else:
            message, first = f"{state.name} has keys, so it needs one here", "used with a key here"
        self.checker.error(message, node.span, notes=[(first, place)])
        return False

    @handles(nodes.MapRef)
    def map_value(self, node: nodes.MapRef) -> Type:
        """A read of ``@x``."""
        state = self.use_scalar(node)
        return UNKNOWN if state is None else self.read_map(node, state)

    @handles(nodes.MapIndex)
    def map_index(self, node: nodes.MapIndex) -> Type:
        """A read of ``@x[k]``."""
        state = self.use_keyed(node)
        return UNKNOWN if state is None else self.read_map(node, state)

    def require(self, node: nodes.MapRef, state: MapState) -> Type:
        """Type of a map's values, for a call that takes the map itself; reports a map that is never assigned."""
        type_ = state.value.type
        if isinstance(type_, Unknown) and self.checker.final:
            self.checker.undefined_map(state, node.span)
        return type_
