"""AST nodes of types and expressions; other modules import them from ``ast.nodes``."""

from __future__ import annotations

import msgspec

from pytrace.core.source import Span


class Node(msgspec.Struct, frozen=True, eq=False):
    """Base of all nodes."""

    span: Span


# ---------------------------------------------------------------------------------------------- type expressions


class TypeExpr(Node, frozen=True, eq=False):
    """A type expression."""



class NamedType(TypeExpr, frozen=True, eq=False):
    """A type name: ``int64``, ``string``, ``pid_t``, ``count_t``; *capacity* is N of ``string[N]`` and such."""

    name: str
    capacity: int | None = None


class StructTypeExpr(TypeExpr, frozen=True, eq=False):
    """``struct X``, ``union X`` or ``enum X``."""

    kind: str
    name: str


class PointerTypeExpr(TypeExpr, frozen=True, eq=False):
    """``T*``."""

    target: TypeExpr


class ArrayTypeExpr(TypeExpr, frozen=True, eq=False):
    """``T[N]``; *count* is None for ``T[]``, whose size a cast infers."""

    element: TypeExpr
    count: Expr | None


class TupleTypeExpr(TypeExpr, frozen=True, eq=False):
    """``(T, U)`` as a type."""

    members: tuple[TypeExpr, ...]


class TypeofExpr(TypeExpr, frozen=True, eq=False):
    """``typeof(expression or type)`` where a type is expected."""

    operand: Expr | TypeExpr


# ---------------------------------------------------------------------------------------------- expressions


class Expr(Node, frozen=True, eq=False):
    """An expression."""



class IntLiteral(Expr, frozen=True, eq=False):
    """An integer; *text* is the literal as written (with suffix), empty when a pass created the node."""

    value: int
    text: str = ""


class FloatLiteral(Expr, frozen=True, eq=False):
    """A floating-point number, as written in *text*."""

    value: float
    text: str = ""


class BoolLiteral(Expr, frozen=True, eq=False):
    """``true`` or ``false``."""

    value: bool


class StringLiteral(Expr, frozen=True, eq=False):
    """A string with escapes resolved; bytes, as ``\\x`` escapes need not form UTF-8."""

    value: bytes


class Identifier(Expr, frozen=True, eq=False):
    """A bare name: builtin, enum member, C macro, macro parameter or argument-less macro; resolved by a pass."""

    name: str


class PositionalParam(Expr, frozen=True, eq=False):
    """``$1`` …"""

    number: int


class ParamCount(Expr, frozen=True, eq=False):
    """``$#``."""


class OpenParameter(Expr, frozen=True, eq=False):
    """A parameter of an ahead-of-time file, known only when it runs; created by ``frontend.expand.parameters``.

    *name* is the number of a positional one, ``#`` for their count, else the name. *form* is ``number``, ``text`` or
    ``flag``; *default* is its text when no value is given. The first *skip* bytes of a text are skipped.
    """

    name: str
    form: str
    default: str = ""
    skip: int = 0


HYGIENE = "#"
"""Separates the name of a macro's variable from the number of its expansion; it cannot occur in a script."""


class Variable(Expr, frozen=True, eq=False):
    """``$name``; *name* comes without the dollar sign."""

    name: str

    @property
    def shown(self) -> str:
        """The name as the script spells it."""
        return self.name.partition(HYGIENE)[0]


class MapRef(Expr, frozen=True, eq=False):
    """``@name`` without a key; *name* comes with the at sign (``@`` alone is the unnamed map)."""

    name: str


class MapIndex(Expr, frozen=True, eq=False):
    """``@name[k]`` or ``@name[a, b]``; *keys* as written (two or more mean a tuple)."""

    map: MapRef
    keys: tuple[Expr, ...]


class Unary(Expr, frozen=True, eq=False):
    """``! ~ - * &`` before, ``++ --`` before or after (*postfix*) the operand."""

    operator: str
    operand: Expr
    postfix: bool = False


class Binary(Expr, frozen=True, eq=False):
    """``a op b`` for all binary operators, ``&&`` and ``||`` included."""

    operator: str
    left: Expr
    right: Expr


class Ternary(Expr, frozen=True, eq=False):
    """``condition ? then : other``; *then* is None in ``condition ?: other``, which evaluates the condition once."""

    condition: Expr
    then: Expr | None
    other: Expr


class Cast(Expr, frozen=True, eq=False):
    """``(T)operand``."""

    type: TypeExpr
    operand: Expr


class FieldAccess(Expr, frozen=True, eq=False):
    """``base.name`` or ``base->name``, which mean the same."""

    base: Expr
    name: str


class TupleAccess(Expr, frozen=True, eq=False):
    """``base.0``."""

    base: Expr
    index: int


class Index(Expr, frozen=True, eq=False):
    """``base[index]`` of an array, pointer, string or tuple."""

    base: Expr
    index: Expr


class Call(Expr, frozen=True, eq=False):
    """``name(args)``; an argument may be a type expression where the callee takes types."""

    name: str
    args: tuple[Expr | TypeExpr, ...]


class Sizeof(Expr, frozen=True, eq=False):
    """``sizeof(T)`` or ``sizeof(expression)``."""

    operand: Expr | TypeExpr


class Offsetof(Expr, frozen=True, eq=False):
    """``offsetof(T, a.b[2].c)``; *path* holds the member names; an index is stored as its decimal digits."""

    operand: Expr | TypeExpr
    path: tuple[str, ...]


class TypeInfo(Expr, frozen=True, eq=False):
    """``typeinfo(x)``."""

    operand: Expr | TypeExpr


class Comptime(Expr, frozen=True, eq=False):
    """``comptime e``: *operand* must be a constant."""

    operand: Expr


class TupleLiteral(Expr, frozen=True, eq=False):
    """``(a, b)``, ``(a,)`` or ``()``."""

    members: tuple[Expr, ...]


class RecordLiteral(Expr, frozen=True, eq=False):
    """``(name=value, …)``."""

    names: tuple[str, ...]
    members: tuple[Expr, ...]
