"""AST nodes of types and expressions; other modules import them from ``ast.nodes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.base.fast_dataclass import dataclass

if TYPE_CHECKING:
    from pytrace.core.source import Span
    from pytrace.frontend.ast.nodes import Block


@dataclass(frozen=True, eq=False)
class Node:
    """Base of all nodes."""

    span: Span


# ---------------------------------------------------------------------------------------------- type expressions


class TypeExpr(Node):
    """A type expression."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class NamedType(TypeExpr):
    """A type name: ``int64``, ``string``, ``pid_t``, ``count_t``; *capacity* is N of ``string[N]`` and such."""

    name: str
    capacity: int | None = None


@dataclass(frozen=True, eq=False)
class StructTypeExpr(TypeExpr):
    """``struct X``, ``union X`` or ``enum X``."""

    kind: str
    name: str


@dataclass(frozen=True, eq=False)
class PointerTypeExpr(TypeExpr):
    """``T*``."""

    target: TypeExpr


@dataclass(frozen=True, eq=False)
class ArrayTypeExpr(TypeExpr):
    """``T[N]``; *count* is None for ``T[]``, whose size a cast infers."""

    element: TypeExpr
    count: Expr | None


@dataclass(frozen=True, eq=False)
class TupleTypeExpr(TypeExpr):
    """``(T, U)`` as a type."""

    members: tuple[TypeExpr, ...]


@dataclass(frozen=True, eq=False)
class TypeofExpr(TypeExpr):
    """``typeof(expression or type)`` where a type is expected."""

    operand: Expr | TypeExpr


# ---------------------------------------------------------------------------------------------- expressions


class Expr(Node):
    """An expression."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class IntLiteral(Expr):
    """An integer; *text* is the literal as written (with suffix), empty when a pass created the node."""

    value: int
    text: str = ""


@dataclass(frozen=True, eq=False)
class BoolLiteral(Expr):
    """``true`` or ``false``."""

    value: bool


@dataclass(frozen=True, eq=False)
class StringLiteral(Expr):
    """A string, escapes resolved; bytes, since ``\\x`` escapes may be any."""

    value: bytes


@dataclass(frozen=True, eq=False)
class Identifier(Expr):
    """A bare name: builtin, enum member, C macro, macro parameter or argument-less macro; resolved by a pass."""

    name: str


@dataclass(frozen=True, eq=False)
class PositionalParam(Expr):
    """``$1`` …"""

    number: int


@dataclass(frozen=True, eq=False)
class ParamCount(Expr):
    """``$#``."""


@dataclass(frozen=True, eq=False)
class OpenParameter(Expr):
    """A parameter of an ahead-of-time file, known only when that file runs; made by ``frontend.expand.parameters``.

    *name* is the number of a positional one, ``#`` for their count, else the name. *form* is ``number``, ``text`` or
    ``flag``; *default* is its text when no value is given. The first *skip* bytes of a text are left out.
    """

    name: str
    form: str
    default: str = ""
    skip: int = 0


@dataclass(frozen=True, eq=False)
class Variable(Expr):
    """``$name``; *name* comes without the dollar sign."""

    name: str


@dataclass(frozen=True, eq=False)
class MapRef(Expr):
    """``@name`` without a key; *name* comes with the at sign (``@`` alone is the unnamed map)."""

    name: str


@dataclass(frozen=True, eq=False)
class MapIndex(Expr):
    """``@name[k]`` or ``@name[a, b]``; *keys* as written (two or more mean a tuple)."""

    map: MapRef
    keys: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Unary(Expr):
    """``! ~ - * &`` before, ``++ --`` before or after (*postfix*) the operand."""

    operator: str
    operand: Expr
    postfix: bool = False


@dataclass(frozen=True, eq=False)
class Binary(Expr):
    """``a op b`` for all binary operators, ``&&`` and ``||`` included."""

    operator: str
    left: Expr
    right: Expr


@dataclass(frozen=True, eq=False)
class Ternary(Expr):
    """``condition ? then : other``; *then* is None in ``condition ?: other``, which evaluates the condition once."""

    condition: Expr
    then: Expr | None
    other: Expr


@dataclass(frozen=True, eq=False)
class Cast(Expr):
    """``(T)operand``."""

    type: TypeExpr
    operand: Expr


@dataclass(frozen=True, eq=False)
class FieldAccess(Expr):
    """``base.name`` or ``base->name``, which mean the same."""

    base: Expr
    name: str


@dataclass(frozen=True, eq=False)
class TupleAccess(Expr):
    """``base.0``."""

    base: Expr
    index: int


@dataclass(frozen=True, eq=False)
class Index(Expr):
    """``base[index]`` of an array, pointer, string or tuple."""

    base: Expr
    index: Expr


@dataclass(frozen=True, eq=False)
class Call(Expr):
    """``name(args)``; an argument may be a type expression where the callee takes types."""

    name: str
    args: tuple[Expr | TypeExpr, ...]


@dataclass(frozen=True, eq=False)
class Sizeof(Expr):
    """``sizeof(T)`` or ``sizeof(expression)``."""

    operand: Expr | TypeExpr


@dataclass(frozen=True, eq=False)
class Offsetof(Expr):
    """``offsetof(T, a.b[2].c)``; *path* holds the member names; an index is stored as its decimal digits."""

    operand: Expr | TypeExpr
    path: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class TypeInfo(Expr):
    """``typeinfo(x)``."""

    operand: Expr | TypeExpr


@dataclass(frozen=True, eq=False)
class Comptime(Expr):
    """``comptime e``: *operand* must be a constant."""

    operand: Expr


@dataclass(frozen=True, eq=False)
class TupleLiteral(Expr):
    """``(a, b)``, ``(a,)`` or ``()``."""

    members: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class RecordLiteral(Expr):
    """``(name=value, …)``."""

    names: tuple[str, ...]
    members: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class If(Expr):
    """``if [comptime] condition { … } else …``: a statement, or an expression when the blocks have values."""

    condition: Expr
    then: Block
    other: Block | If | None
    comptime: bool = False


@dataclass(frozen=True, eq=False)
class BlockExpr(Expr):
    """``{ …; value }`` used as an expression, or a bare block used as a statement."""

    block: Block
