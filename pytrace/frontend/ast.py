"""The abstract syntax tree: frozen classes of plain data, one class per construct.

Nodes compare and hash by identity, so that side tables (types, scopes, constants) can be keyed by node.  A pass that
changes a tree builds new nodes (``replace`` or the visitor's ``rebuild``); nothing is edited in place.
Every node has ``span``.
"""

from __future__ import annotations

from pytrace.dataclass import dataclass
from pytrace.source import Span


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """Base of all nodes."""

    span: Span


# ---------------------------------------------------------------------------------------------- type expressions


class TypeExpr(Node):
    """Something written where a type is expected."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class NamedType(TypeExpr):
    """A type by its name: ``int64``, ``string``, ``pid_t``, ``count_t``; *capacity* is N of ``string[N]`` and such."""

    name: str
    capacity: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StructTypeExpr(TypeExpr):
    """``struct X``, ``union X`` or ``enum X``."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class PointerTypeExpr(TypeExpr):
    """``T*``."""

    target: TypeExpr


@dataclass(frozen=True, slots=True, eq=False)
class ArrayTypeExpr(TypeExpr):
    """``T[N]``; *count* is None for ``T[]``, whose size a cast infers."""

    element: TypeExpr
    count: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class TupleTypeExpr(TypeExpr):
    """``(T, U)`` as a type."""

    members: tuple[TypeExpr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TypeofExpr(TypeExpr):
    """``typeof(expression or type)`` where a type is expected."""

    operand: Expr | TypeExpr


# ---------------------------------------------------------------------------------------------- expressions


class Expr(Node):
    """Something that has a value."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class IntLiteral(Expr):
    """An integer; *text* is what was written (with suffix), empty when a pass made the node."""

    value: int
    text: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class BoolLiteral(Expr):
    """``true`` or ``false``."""

    value: bool


@dataclass(frozen=True, slots=True, eq=False)
class StringLiteral(Expr):
    """A string, escapes resolved; bytes, since ``\\x`` escapes may be any."""

    value: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Identifier(Expr):
    """A bare name: builtin, enum member, C macro, macro parameter or argument-less macro; resolved by a pass."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class PositionalParam(Expr):
    """``$1`` …"""

    number: int


@dataclass(frozen=True, slots=True, eq=False)
class ParamCount(Expr):
    """``$#``."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenParameter(Expr):
    """A parameter of an ahead-of-time file, known only when that file runs; made by ``frontend.parameters``.

    *name* is the number of a positional one, ``#`` for their count, else the name. *form* is ``number``, ``text`` or
    ``flag``; *default* its text when it is not given. The first *skip* bytes of a text are left out.
    """

    name: str
    form: str
    default: str = ""
    skip: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Variable(Expr):
    """``$name``; *name* comes without the dollar sign."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class MapRef(Expr):
    """``@name`` without a key; *name* comes with the at sign (``@`` alone is the unnamed map)."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class MapIndex(Expr):
    """``@name[k]`` or ``@name[a, b]``; *keys* as written (two or more mean a tuple)."""

    map: MapRef
    keys: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Unary(Expr):
    """``! ~ - * &`` before, ``++ --`` before or after (*postfix*) the operand."""

    operator: str
    operand: Expr
    postfix: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Expr):
    """``a op b`` for all binary operators, ``&&`` and ``||`` included; *operator_span* marks the operator."""

    operator: str
    left: Expr
    right: Expr
    operator_span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Ternary(Expr):
    """``condition ? then : other``; *then* is None in ``condition ?: other``, which evaluates the condition once."""

    condition: Expr
    then: Expr | None
    other: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Cast(Expr):
    """``(T)operand``."""

    type: TypeExpr
    operand: Expr


@dataclass(frozen=True, slots=True, eq=False)
class FieldAccess(Expr):
    """``base.name`` or ``base->name`` (*arrow*), which mean the same."""

    base: Expr
    name: str
    arrow: bool
    name_span: Span


@dataclass(frozen=True, slots=True, eq=False)
class TupleAccess(Expr):
    """``base.0``."""

    base: Expr
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Index(Expr):
    """``base[index]`` of an array, pointer, string or tuple."""

    base: Expr
    index: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expr):
    """``name(args)``; an argument may be a type expression where the callee takes types."""

    name: str
    args: tuple[Expr | TypeExpr, ...]
    name_span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Sizeof(Expr):
    """``sizeof(T)`` or ``sizeof(expression)``."""

    operand: Expr | TypeExpr


@dataclass(frozen=True, slots=True, eq=False)
class Offsetof(Expr):
    """``offsetof(T, a.b[2].c)``; *path* holds the member names; an index is there as its decimal digits."""

    operand: Expr | TypeExpr
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TypeInfo(Expr):
    """``typeinfo(x)``."""

    operand: Expr | TypeExpr


@dataclass(frozen=True, slots=True, eq=False)
class Comptime(Expr):
    """``comptime e``: *operand* must be a constant."""

    operand: Expr


@dataclass(frozen=True, slots=True, eq=False)
class TupleLiteral(Expr):
    """``(a, b)``, ``(a,)`` or ``()``."""

    members: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RecordLiteral(Expr):
    """``(name=value, …)``."""

    names: tuple[str, ...]
    members: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class If(Expr):
    """``if [comptime] condition { … } else …``: a statement, or an expression when the blocks have values."""

    condition: Expr
    then: Block
    other: Block | If | None
    comptime: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class BlockExpr(Expr):
    """``{ …; value }`` used as an expression, or a bare block used as a statement."""

    block: Block


# ---------------------------------------------------------------------------------------------- statements


class Stmt(Node):
    """Something that is done."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Block(Node):
    """``{ … }`` or ``< … >`` (*angle*); *value* is a trailing expression without semicolon, wherever it stands.

    Whether a trailing expression is a value or a statement is for the passes to say: the parser always stores it here.
    """

    statements: tuple[Stmt, ...]
    value: Expr | None = None
    angle: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ExprStmt(Stmt):
    """An expression made for its effect."""

    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Let(Stmt):
    """``let $v``, ``let $v: T``, ``let $v = e``, ``let $v: T = e``."""

    variable: Variable
    type: TypeExpr | None
    value: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class Assign(Stmt):
    """``target op value`` with op one of ``= += -= *= /= %= &= |= ^= <<= >>=``."""

    target: Expr
    operator: str
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Discard(Stmt):
    """``_ = value``."""

    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Range(Node):
    """``start..stop``, stop excluded."""

    start: Expr
    stop: Expr


@dataclass(frozen=True, slots=True, eq=False)
class For(Stmt):
    """``for ($v : @map) { … }`` or ``for ($v : a..b) { … }``."""

    variable: Variable
    source: Expr | Range
    body: Block


@dataclass(frozen=True, slots=True, eq=False)
class While(Stmt):
    """``while (condition) { … }``."""

    condition: Expr
    body: Block


@dataclass(frozen=True, slots=True, eq=False)
class Unroll(Stmt):
    """``unroll (count) { … }``."""

    count: Expr
    body: Block


@dataclass(frozen=True, slots=True, eq=False)
class Break(Stmt):
    """``break``."""


@dataclass(frozen=True, slots=True, eq=False)
class Continue(Stmt):
    """``continue``."""


@dataclass(frozen=True, slots=True, eq=False)
class Return(Stmt):
    """``return [value]``."""

    value: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class Import(Stmt):
    """``import "path";`` at the root or inside a block."""

    path: str


# ---------------------------------------------------------------------------------------------- root items


@dataclass(frozen=True, slots=True, eq=False)
class AttachPoint(Node):
    """One attach point as written, parameters not yet expanded; *name* is N of ``N=attachpoint``."""

    text: str
    name: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Probe(Node):
    """``attachpoint, … /predicate/ { … }``; *head* spans the attach points."""

    attach_points: tuple[AttachPoint, ...]
    predicate: Expr | None
    body: Block
    head: Span


@dataclass(frozen=True, slots=True, eq=False)
class MapDecl(Node):
    """``let @m = kind(size);``."""

    map: MapRef
    kind: str
    size: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Macro(Node):
    """``macro name(parameters) { … }``; a parameter is a Variable, MapRef or Identifier. *head* spans the name part."""

    name: str
    parameters: tuple[Expr, ...]
    body: Block
    head: Span


@dataclass(frozen=True, slots=True, eq=False)
class Parameter(Node):
    """``$a : T`` of a function."""

    variable: Variable
    type: TypeExpr


@dataclass(frozen=True, slots=True, eq=False)
class Function(Node):
    """``fn name(parameters) : T { … }``."""

    name: str
    parameters: tuple[Parameter, ...]
    result: TypeExpr | None
    body: Block
    head: Span


@dataclass(frozen=True, slots=True, eq=False)
class ConfigEntry(Node):
    """``key = value``; the value as written: a string (bytes), integer, bool, or a bare word (str)."""

    key: str
    value: bytes | int | bool | str
    key_span: Span
    value_span: Span


@dataclass(frozen=True, slots=True, eq=False)
class ConfigBlock(Node):
    """``config = { … }``."""

    entries: tuple[ConfigEntry, ...]
    head: Span


@dataclass(frozen=True, slots=True, eq=False)
class CPart(Node):
    """A preprocessor line or a C definition, verbatim."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class BpfObject(Node):
    """A BPF object file that an import brought: *data* is the ELF file, compiled from *path* or read from it.

    *headers* are the files that the compiler read besides.
    """

    path: str
    data: bytes
    headers: tuple[str, ...] = ()


RootItem = ConfigBlock | Import | Probe | Macro | Function | MapDecl


@dataclass(frozen=True, slots=True, eq=False)
class Program(Node):
    """A whole script; *items* in source order. *shebang* is the first line when it starts with ``#!``."""

    shebang: str | None
    c_parts: tuple[CPart, ...]
    items: tuple[RootItem, ...]
    objects: tuple[BpfObject, ...] = ()

    @property
    def probes(self) -> tuple[Probe, ...]:
        """The probes in source order."""
        return tuple(item for item in self.items if isinstance(item, Probe))
