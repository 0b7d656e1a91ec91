"""What the front end hands to the code generator: a program in which everything is known and legal.

The trees in here have been expanded: macros and parameters are substituted, constant conditions decided, and each
:class:`ProbeUnit` owns its nodes (a body that serves several contexts was copied), so a node has exactly one
type.  The code generator asks no question about legality; what it does not find in a table is a bug
(``InternalError``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytrace.builtin_table import Builtin
from pytrace.compiled import Target
from pytrace.events import EventSpec
from pytrace.frontend import ast
from pytrace.probes import ProbeKind
from pytrace.source import Span
from pytrace.types import Struct, Type

Constant = int | bool | bytes


# ---------------------------------------------------------------------------------------------- probe contexts


@dataclass(frozen=True, slots=True)
class ContextField:
    """An argument that lies in the context at a byte offset (tracepoint records, iterator contexts)."""

    offset: int


@dataclass(frozen=True, slots=True)
class DataLoc:
    """A ``__data_loc`` (or, *relative*, ``__rel_loc``) field: offset and length of the data, at a byte offset."""

    offset: int
    relative: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """Element *index* of the ``u64`` array that is the context (fentry, fexit, raw tracepoints)."""

    index: int


@dataclass(frozen=True, slots=True)
class Argument:
    """Function argument *index* by the calling convention, from ``pt_regs``."""

    index: int


@dataclass(frozen=True, slots=True)
class ReturnValue:
    """The function's result, from ``pt_regs``."""


@dataclass(frozen=True, slots=True)
class RegisterLocation:
    """A value in a register (*dereference* False) or in memory at register + offset; from DWARF or a USDT note.

    *size* and *signed* say how wide the value is there. *register* is a ``pt_regs`` name (``ax``, ``r12``, ``sp`` …),
    *index* a second register times *scale*; register empty with dereference False means the constant *offset*.
    """

    register: str
    offset: int = 0
    dereference: bool = False
    size: int = 8
    signed: bool = False
    index: str = ""
    scale: int = 1


Place = ContextField | DataLoc | Slot | Argument | ReturnValue | RegisterLocation


@dataclass(frozen=True, slots=True)
class ProbeArgument:
    """One member of ``args``."""

    name: str
    type: Type
    place: Place


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """What ``args``, ``argN``, ``retval`` and ``ctx`` mean in a unit.

    *args_type* is the struct that ``args`` as a whole prints as (None where there is no ``args``); its fields have the names
    of *arguments*. *positional* are the places of ``arg0`` … for USDT probes (else derived from the kind).
    """

    arguments: tuple[ProbeArgument, ...] = ()
    args_type: Struct | None = None
    result: ProbeArgument | None = None
    positional: tuple[RegisterLocation, ...] = ()
    ctx_type: Type | None = None
    slots: int = 0
    """Number of ``u64`` arguments in a :class:`Slot` context."""

    def argument(self, name: str) -> ProbeArgument | None:
        """The member of ``args`` of that name."""
        return next((item for item in self.arguments if item.name == name), None)


@dataclass(frozen=True, slots=True, eq=False)
class ProbeUnit:
    """One BPF program: a body in one context, attached to one or more targets.

    *body* contains the predicate already (as an ``if``). *symbol* is unique and a valid C name. *index* counts the
    script's probe blocks in source order (several units may come from one block).
    """

    symbol: str
    index: int
    kind: ProbeKind
    targets: tuple[Target, ...]
    context: ProbeContext
    body: ast.Block
    span: Span
    multi: str = ""
    pid_filter: int | None = None
    """Process id that an injected ``-p`` filter compares with."""


# ---------------------------------------------------------------------------------------------- resources


@dataclass(slots=True, eq=False)
class VariableInfo:
    """A scratch variable: one for each declaration (scope), shared by all nodes that mean it."""

    name: str
    type: Type
    span: Span


@dataclass(frozen=True, slots=True)
class MapInfo:
    """A map of the script. *kind* as in :class:`pytrace.compiled.MapSpec`."""

    name: str
    key: Type | None
    value: Type
    kind: str
    max_entries: int
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class FunctionInfo:
    """A user function after checking."""

    name: str
    symbol: str
    parameters: tuple[VariableInfo, ...]
    result: Type
    body: ast.Block
    span: Span


@dataclass(frozen=True, slots=True)
class FieldPath:
    """How a field access reads: what kind of base it has, and where the field lies in it.

    *how* is ``pointer`` (base is a pointer to struct; follow it), ``memory`` (base is a struct value in memory),
    ``record`` (member *index* of a record), ``argument`` (member of ``args``: see *argument*).
    """

    how: str
    type: Type
    offset: int = 0
    bit_offset: int = 0
    bit_size: int = 0
    index: int = 0
    argument: ProbeArgument | None = None


@dataclass(slots=True, eq=False)
class CheckedProgram:
    """The result of the front end.

    - *types*: the type of every expression that is evaluated.
    - *constants*: expressions whose value is known; the code generator does not look below them.
    - *variables*: for each ``Variable`` node (declarations and uses) what it means.
    - *fields*: for each ``FieldAccess``.
    - *calls*: for each ``Call``, and each ``Identifier`` that names a builtin, the row, or the function.
    - *events*: for each node that sends an event, its spec (its arguments are in *event_arguments*).
    - *event_arguments*: the expressions evaluated into the event, in layout order.
    - *runtime_events*: specs for run-time errors that the generator may report at a node, by (node, kind).
    - *static*: other compile-time facts of a call by node (literal parameters of hist, modes of stacks …), by row.
    """

    units: list[ProbeUnit] = field(default_factory=list)
    functions: list[FunctionInfo] = field(default_factory=list)
    maps: dict[str, MapInfo] = field(default_factory=dict)
    types: dict[ast.Expr, Type] = field(default_factory=dict)
    constants: dict[ast.Expr, Constant] = field(default_factory=dict)
    variables: dict[ast.Variable, VariableInfo] = field(default_factory=dict)
    fields: dict[ast.FieldAccess, FieldPath] = field(default_factory=dict)
    calls: dict[ast.Expr, Builtin | FunctionInfo] = field(default_factory=dict)
    events: dict[ast.Node, EventSpec] = field(default_factory=dict)
    event_arguments: dict[ast.Node, tuple[ast.Expr, ...]] = field(default_factory=dict)
    runtime_events: dict[tuple[ast.Node, str], EventSpec] = field(default_factory=dict)
    static: dict[ast.Node, Mapping[str, Any]] = field(default_factory=dict)
    event_list: list[EventSpec] = field(default_factory=list)
    """All specs; a spec's id is its index."""
    strings: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    sources: list[Any] = field(default_factory=list)
    """Every :class:`~pytrace.source.Source`, the script first."""
