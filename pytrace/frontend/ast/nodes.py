"""The abstract syntax tree: frozen classes of plain data, one class per construct.

Nodes compare and hash by identity, so that side tables (types, scopes, constants) can be keyed by node.  A pass that
changes a tree builds new nodes (``replace`` or the visitor's ``rebuild``); nothing is edited in place.
Every node has ``span``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.base.fast_dataclass import dataclass
from pytrace.frontend.ast.expressions import (
    ArrayTypeExpr,
    Binary,
    BlockExpr,
    BoolLiteral,
    Call,
    Cast,
    Comptime,
    Expr,
    FieldAccess,
    Identifier,
    If,
    Index,
    IntLiteral,
    MapIndex,
    MapRef,
    NamedType,
    Node,
    Offsetof,
    OpenParameter,
    ParamCount,
    PointerTypeExpr,
    PositionalParam,
    RecordLiteral,
    Sizeof,
    StringLiteral,
    StructTypeExpr,
    Ternary,
    TupleAccess,
    TupleLiteral,
    TupleTypeExpr,
    TypeExpr,
    TypeInfo,
    TypeofExpr,
    Unary,
    Variable,
)

if TYPE_CHECKING:
    from pytrace.core.source import Span

__all__ = [
    "ArrayTypeExpr", "Assign", "AttachPoint", "Binary", "Block", "BlockExpr", "BoolLiteral", "BpfObject", "Break",
    "CPart", "Call", "Cast", "Comptime", "ConfigBlock", "ConfigEntry", "Continue", "Discard", "Expr", "ExprStmt",
    "FieldAccess", "For", "Function", "Identifier", "If", "Import", "Index", "IntLiteral", "Let", "Macro",
    "MapDecl", "MapIndex", "MapRef", "NamedType", "Node", "Offsetof", "OpenParameter", "OptionDeclaration",
    "ParamCount", "Parameter",
    "PointerTypeExpr", "PositionalParam", "Probe", "Program", "Range", "RecordLiteral", "Return", "RootFail", "RootIf",
    "RootItem",
    "Sizeof", "Stmt", "StringLiteral", "StructTypeExpr", "Ternary", "TupleAccess", "TupleLiteral",
    "TupleTypeExpr", "TypeExpr", "TypeInfo", "TypeofExpr", "Unary", "Unroll", "Variable", "While",
]  # fmt: skip


# ---------------------------------------------------------------------------------------------- statements


class Stmt(Node):
    """A statement."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Block(Node):
    """``{ … }`` or ``< … >`` (*angle*); *value* is a trailing expression without semicolon, wherever it stands.

    Later passes decide whether a trailing expression is a value or a statement: the parser always stores it here.
    """

    statements: tuple[Stmt, ...]
    value: Expr | None = None
    angle: bool = False


@dataclass(frozen=True, eq=False)
class ExprStmt(Stmt):
    """An expression statement."""

    value: Expr


@dataclass(frozen=True, eq=False)
class Let(Stmt):
    """``let $v``, ``let $v: T``, ``let $v = e``, ``let $v: T = e``."""

    variable: Variable
    type: TypeExpr | None
    value: Expr | None


@dataclass(frozen=True, eq=False)
class Assign(Stmt):
    """``target op value`` with op one of ``= += -= *= /= %= &= |= ^= <<= >>=``."""

    target: Expr
    operator: str
    value: Expr


@dataclass(frozen=True, eq=False)
class Discard(Stmt):
    """``_ = value``."""

    value: Expr


@dataclass(frozen=True, eq=False)
class Range(Node):
    """``start..stop``, stop excluded."""

    start: Expr
    stop: Expr


@dataclass(frozen=True, eq=False)
class For(Stmt):
    """``for ($v : @map) { … }`` or ``for ($v : a..b) { … }``."""

    variable: Variable
    source: Expr | Range
    body: Block


@dataclass(frozen=True, eq=False)
class While(Stmt):
    """``while (condition) { … }``."""

    condition: Expr
    body: Block


@dataclass(frozen=True, eq=False)
class Unroll(Stmt):
    """``unroll (count) { … }``."""

    count: Expr
    body: Block


@dataclass(frozen=True, eq=False)
class Break(Stmt):
    """``break``."""


@dataclass(frozen=True, eq=False)
class Continue(Stmt):
    """``continue``."""


@dataclass(frozen=True, eq=False)
class Return(Stmt):
    """``return [value]``."""

    value: Expr | None


@dataclass(frozen=True, eq=False)
class Import(Stmt):
    """``import "path";`` at the root or inside a block."""

    path: str


# ---------------------------------------------------------------------------------------------- root items


@dataclass(frozen=True, eq=False)
class AttachPoint(Node):
    """One attach point as written, parameters not yet expanded; *name* is N of ``N=attachpoint``.

    *options* are the names and texts of the script's options, where it may contain one.
    """

    text: str
    name: str | None = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Probe(Node):
    """``attachpoint, … /predicate/ { … }``; *head* spans the attach points.

    *off*: the script's options switch it off: it is not attached.
    """

    attach_points: tuple[AttachPoint, ...]
    predicate: Expr | None
    body: Block
    head: Span
    off: bool = False


@dataclass(frozen=True, eq=False)
class MapDecl(Node):
    """``let @m = kind(size);``."""

    map: MapRef
    kind: str
    size: Expr


@dataclass(frozen=True, eq=False)
class OptionDeclaration(Node):
    """``getopt("x|name=ARGUMENT", default, "help", ("choice", …));`` at the root; *head* is the word."""

    args: tuple[Expr | TypeExpr, ...]
    head: Span


@dataclass(frozen=True, eq=False)
class Macro(Node):
    """``macro name(parameters) { … }``; a parameter is a Variable, MapRef or Identifier. *head* spans the name part."""

    name: str
    parameters: tuple[Expr, ...]
    body: Block
    head: Span


@dataclass(frozen=True, eq=False)
class Parameter(Node):
    """``$a : T`` of a function."""

    variable: Variable
    type: TypeExpr


@dataclass(frozen=True, eq=False)
class Function(Node):
    """``fn name(parameters) : T { … }``."""

    name: str
    parameters: tuple[Parameter, ...]
    result: TypeExpr | None
    body: Block
    head: Span


@dataclass(frozen=True, eq=False)
class ConfigEntry(Node):
    """``key = value``; the value as written: a string (bytes), integer, bool, or a bare word (str)."""

    key: str
    value: bytes | int | bool | str
    key_span: Span
    value_span: Span


@dataclass(frozen=True, eq=False)
class ConfigBlock(Node):
    """``config = { … }``."""

    entries: tuple[ConfigEntry, ...]
    head: Span


@dataclass(frozen=True, eq=False)
class CPart(Node):
    """A preprocessor line or a C definition, verbatim."""

    text: str


@dataclass(frozen=True, eq=False)
class BpfObject(Node):
    """An imported BPF object file: *data* is the ELF file, compiled from *path* or read from it.

    *headers* are the other files that the C compiler read.
    """

    path: str
    data: bytes
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class RootIf(Node):
    """``if comptime condition { items } else { items }`` at the root; *other* of an ``else if`` is one RootIf."""

    condition: Expr
    then: tuple[RootItem, ...]
    other: tuple[RootItem, ...]
    head: Span


@dataclass(frozen=True, eq=False)
class RootFail(Node):
    """``fail("format", …);`` at the root."""

    call: Expr


RootItem = ConfigBlock | Import | Probe | Macro | Function | MapDecl | OptionDeclaration | RootIf | RootFail


@dataclass(frozen=True, eq=False)
class Program(Node):
    """A whole script; *items* in source order.

    *shebang* is the ``#!`` line, which only blank lines and comments may precede. *decided* are the answers about
    the kernel (rows of ``runtime.aot.layouts``) that chose among items at the root.
    """

    shebang: str | None
    c_parts: tuple[CPart, ...]
    items: tuple[RootItem, ...]
    objects: tuple[BpfObject, ...] = ()
    decided: tuple[tuple[str, ...], ...] = ()

    @property
    def probes(self) -> tuple[Probe, ...]:
        """The probes in source order."""
        return tuple(item for item in self.items if isinstance(item, Probe))
