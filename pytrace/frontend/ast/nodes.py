"""The abstract syntax tree: frozen classes of plain data, one class per construct.

Nodes compare and hash by identity, so that side tables (types, scopes, constants) can be keyed by node.  A pass that
changes a tree builds new nodes (``replace`` or the visitor's ``rebuild``); nothing is edited in place.
Every node has ``span``.
"""
# ruff: noqa: F403, F405 - nodes of expressions and types have a module of their own; all are used from here

from __future__ import annotations

from pytrace.core.source import Span
from pytrace.frontend.ast.expressions import *
from pytrace.frontend.ast.expressions import Expr, MapRef, Node, TypeExpr, Variable

__all__ = [
    "ArrayTypeExpr", "Assign", "AttachPoint", "Binary", "Block", "BlockExpr", "BoolLiteral", "BpfObject", "Break",
    "CPart", "Call", "Cast", "Comptime", "ConfigBlock", "ConfigEntry", "Continue", "Discard", "Expr", "ExprStmt",
    "FieldAccess", "FloatLiteral", "For", "Function", "Identifier", "If", "Import", "Index", "IntLiteral", "Let",
    "Macro",
    "MapDecl", "MapIndex", "MapRef", "NamedType", "Node", "Offsetof", "OpenParameter", "OptionDeclaration",
    "ParamCount", "Parameter",
    "PointerTypeExpr", "PositionalParam", "Probe", "Program", "Range", "RecordLiteral", "Return", "RootFail", "RootIf",
    "RootItem",
    "Sizeof", "Stmt", "StringLiteral", "StructTypeExpr", "Ternary", "TupleAccess", "TupleLiteral",
    "TupleTypeExpr", "TypeExpr", "TypeInfo", "TypeofExpr", "Unary", "Unroll", "Variable", "While",
]  # fmt: skip


# ---------------------------------------------------------------------------------------------- statements


class Stmt(Node, frozen=True, eq=False):
    """A statement."""



class Block(Node, frozen=True, eq=False):
    """``{ … }`` or ``< … >`` (*angle*); *value* is a trailing expression without semicolon, wherever it stands.

    Later passes decide whether a trailing expression is a value or a statement: the parser always stores it here.
    """

    statements: tuple[Stmt, ...]
    value: Expr | None = None
    angle: bool = False


class If(Expr, frozen=True, eq=False):
    """``if [comptime] condition { … } else …``: a statement, or an expression when the blocks have values."""

    condition: Expr
    then: Block
    other: Block | If | None
    comptime: bool = False


class BlockExpr(Expr, frozen=True, eq=False):
    """``{ …; value }`` used as an expression, or a bare block used as a statement."""

    block: Block


class ExprStmt(Stmt, frozen=True, eq=False):
    """An expression statement."""

    value: Expr


class Let(Stmt, frozen=True, eq=False):
    """``let $v``, ``let $v: T``, ``let $v = e``, ``let $v: T = e``."""

    variable: Variable
    type: TypeExpr | None
    value: Expr | None


class Assign(Stmt, frozen=True, eq=False):
    """``target op value`` with op one of ``= += -= *= /= %= &= |= ^= <<= >>=``."""

    target: Expr
    operator: str
    value: Expr


class Discard(Stmt, frozen=True, eq=False):
    """``_ = value``."""

    value: Expr


class Range(Node, frozen=True, eq=False):
    """``start..stop``, stop excluded."""

    start: Expr
    stop: Expr


class For(Stmt, frozen=True, eq=False):
    """``for ($v : @map) { … }`` or ``for ($v : a..b) { … }``."""

    variable: Variable
    source: Expr | Range
    body: Block


class While(Stmt, frozen=True, eq=False):
    """``while (condition) { … }``."""

    condition: Expr
    body: Block


class Unroll(Stmt, frozen=True, eq=False):
    """``unroll (count) { … }``."""

    count: Expr
    body: Block


class Break(Stmt, frozen=True, eq=False):
    """``break``."""


class Continue(Stmt, frozen=True, eq=False):
    """``continue``."""


class Return(Stmt, frozen=True, eq=False):
    """``return [value]``."""

    value: Expr | None


class Import(Stmt, frozen=True, eq=False):
    """``import "path";`` at the root or inside a block."""

    path: str


# ---------------------------------------------------------------------------------------------- root items


class AttachPoint(Node, frozen=True, eq=False):
    """One attach point as written, parameters not yet expanded; *name* is N of ``N=attachpoint``.

    *options* are the names and texts of the script's options, if it may contain one.
    """

    text: str
    name: str | None = None
    options: tuple[tuple[str, str], ...] = ()


class Probe(Node, frozen=True, eq=False):
    """``attachpoint, … /predicate/ { … }``; *head* spans the attach points.

    *off*: the script's options disable it, so it is not attached.
    """

    attach_points: tuple[AttachPoint, ...]
    predicate: Expr | None
    body: Block
    head: Span
    off: bool = False


class MapDecl(Node, frozen=True, eq=False):
    """``let @m = kind(size);``."""

    map: MapRef
    kind: str
    size: Expr


class OptionDeclaration(Node, frozen=True, eq=False):
    """``getopt("x|name=ARGUMENT", default, "help", ("choice", …));`` at the root; *head* is the word."""

    args: tuple[Expr | TypeExpr, ...]
    head: Span


class Macro(Node, frozen=True, eq=False):
    """``macro name(parameters) { … }``; a parameter is a Variable, MapRef or Identifier. *head* spans the name part."""

    name: str
    parameters: tuple[Expr, ...]
    body: Block
    head: Span


class Parameter(Node, frozen=True, eq=False):
    """``$a : T`` of a function."""

    variable: Variable
    type: TypeExpr


class Function(Node, frozen=True, eq=False):
    """``fn name(parameters) : T { … }``."""

    name: str
    parameters: tuple[Parameter, ...]
    result: TypeExpr | None
    body: Block
    head: Span


class ConfigEntry(Node, frozen=True, eq=False):
    """``key = value``; the value as written: a string (bytes), integer, bool, or a bare word (str)."""

    key: str
    value: bytes | int | bool | str
    key_span: Span
    value_span: Span


class ConfigBlock(Node, frozen=True, eq=False):
    """``config = { … }``."""

    entries: tuple[ConfigEntry, ...]
    head: Span


class CPart(Node, frozen=True, eq=False):
    """A preprocessor line or a C definition, verbatim."""

    text: str


class BpfObject(Node, frozen=True, eq=False):
    """An imported BPF object file: *data* is the ELF file, compiled from *path* or read from it.

    *headers* are the other files that the C compiler read.
    """

    path: str
    data: bytes
    headers: tuple[str, ...] = ()


class RootIf(Node, frozen=True, eq=False):
    """``if comptime condition { items } else { items }`` at the root; *other* of an ``else if`` is one RootIf."""

    condition: Expr
    then: tuple[RootItem, ...]
    other: tuple[RootItem, ...]
    head: Span


class RootFail(Node, frozen=True, eq=False):
    """``fail("format", …);`` at the root."""

    call: Expr


RootItem = ConfigBlock | Import | Probe | Macro | Function | MapDecl | OptionDeclaration | RootIf | RootFail


class Program(Node, frozen=True, eq=False):
    """A whole script; *items* in source order.

    *shebang* is the ``#!`` line, which only blank lines and comments may precede. *decided* are the facts about the
    kernel (rows of ``runtime.aot.layouts``) that selected items at the root.
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
