"""The abstract syntax tree: frozen classes of plain data, one class per construct; its traversal and rewriting.

Nodes compare and hash by identity, so that side tables (types, scopes, constants) can be keyed by node.  A pass that
changes a tree builds new nodes (``replace`` or :func:`rebuild`); nothing is edited in place.
Every node has ``span``.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TypeVar

import msgspec
from msgspec.structs import asdict

from pytrace.core.diagnostics import Diagnostics
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


class CallPart(Expr, frozen=True, eq=False):
    """A part of what identifies a call at its entry and return, in probes of ``call:``.

    *part* is ``frame`` (where on the stack it is), ``function`` (its address), ``owner`` (the process, of Go the
    goroutine) or ``thread`` (of Go the number of the goroutine, and the process); ``inner`` is the frame as a number
    that is smaller the further in a call is.
    """

    part: str


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


# ---------------------------------------------------------------------------------------------------------------- nodes


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


class CallCount(Stmt, frozen=True, eq=False):
    """Counts a call of the hidden map *table*: *what* is ``call_entered``, ``call_returned`` or ``call_begun``."""

    table: str
    what: str


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


CALL_ENTRY, CALL_RETURN = "entry", "return"
"""Roles of the two probes that a ``call:`` becomes."""


class Probe(Node, frozen=True, eq=False):
    """``attachpoint, … /predicate/ { … }``; *head* spans the attach points.

    *off*: the script's options disable it, so it is not attached. *role*: ``entry`` or ``return`` of a ``call:``.
    """

    attach_points: tuple[AttachPoint, ...]
    predicate: Expr | None
    body: Block
    head: Span
    off: bool = False
    role: str = ""


class MapDecl(Node, frozen=True, eq=False):
    """``let @m = kind(size);``, ``let @m = modifier;``, ``let @m = modifier kind(size);``."""

    map: MapRef
    kind: str
    size: Expr | None
    modifier: str = ""


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
    kernel (rows of ``runtime.load.ahead_of_time``) that selected items at the root.
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


# ------------------------------------------------------------------------------------------------------------ traversal

# Traversal, rewriting, copying and comparison of ASTs.
#
# Nothing here recurses, so the depth of a tree is not limited. run_deep is for passes that do.


N = TypeVar("N", bound=Node)

_PLAIN = frozenset(
    {"Span", "str", "bool", "int", "float", "bytes", "int | None", "str | None", "tuple[str, ...]",
     "tuple[tuple[str, str], ...]", "tuple[tuple[str, ...], ...]", "bytes | int | bool | str"}
)
"""Types of fields that contain no nodes."""


def _fields(kind: type[Node]) -> list[tuple[str, str]]:
    """Names of the fields of a node class, and the text of their type annotations."""
    written: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        written.update(getattr(base, "__annotations__", {}))
    return [(name, written[name]) for name in kind.__struct_fields__]


@cache
def child_fields(kind: type[Node]) -> tuple[str, ...]:
    """Names of the fields of a node class that hold nodes, tuples of nodes, or None, in source order."""
    return tuple(name for name, written in _fields(kind) if written not in _PLAIN)


def children(node: Node) -> list[Node]:
    """The nodes directly below *node*, in source order."""
    below: list[Node] = []
    for name in child_fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, tuple):
            below.extend(value)
        elif value is not None:
            below.append(value)
    return below


def walk(node: Node) -> Iterator[Node]:
    """*node* and all nodes below it, each before its children, in source order."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        below = children(current)
        below.reverse()
        waiting += below


def rebuild(node: Node, function: Callable[[Node], Node]) -> Node:
    """The tree with every node replaced by the result of *function*, bottom-up.

    *function* gets a node whose children are rebuilt already and returns its replacement, or the node itself. A node
    without changes is not copied: the result shares it with the old tree.
    """
    return _build(node, lambda old, below: function(with_children(old, below)))


def copy(node: N) -> N:
    """A copy in which every node is fresh; spans are kept."""
    result = _build(node, _fresh)
    assert isinstance(result, type(node))
    return result


def conjuncts(predicate: Expr | None) -> list[Expr]:
    """The conditions that a predicate joins by ``&&``, in order."""
    if isinstance(predicate, Binary) and predicate.operator == "&&":
        return [*conjuncts(predicate.left), *conjuncts(predicate.right)]
    return [] if predicate is None else [predicate]


def same(left: Node, right: Node) -> bool:
    """Whether two trees are equal except for spans (and the spelling of numbers, arrows and block brackets)."""
    waiting: list[tuple[object, object]] = [(left, right)]
    while waiting:
        one, other = waiting.pop()
        if isinstance(one, Node):
            if type(one) is not type(other):
                return False
            waiting.extend((getattr(one, name), getattr(other, name)) for name in _compared_fields(type(one)))
        elif isinstance(one, tuple):
            if not isinstance(other, tuple) or len(one) != len(other):
                return False
            waiting.extend(zip(one, other, strict=True))
        elif one != other or type(one) is not type(other):
            return False
    return True


_SPELLING = {("IntLiteral", "text"), ("FloatLiteral", "text"), ("Block", "angle")}


@cache
def _compared_fields(kind: type[Node]) -> tuple[str, ...]:
    written = _fields(kind)
    return tuple(name for name, type_ in written if type_ != "Span" and (kind.__name__, name) not in _SPELLING)


def _build(node: Node, make: Callable[[Node, list[Node]], Node]) -> Node:
    """Call *make* with each node and the results for its children, children first. Returns the result for *node*."""
    done: list[Node] = []
    waiting: list[tuple[Node, int]] = [(node, -1)]
    while waiting:
        current, count = waiting.pop()
        if count < 0:
            below = children(current)
            waiting.append((current, len(below)))
            waiting.extend((child, -1) for child in reversed(below))
            continue
        results = done[len(done) - count :]
        del done[len(done) - count :]
        done.append(make(current, results))
    return done[0]


def with_children(node: Node, below: list[Node]) -> Node:
    """*node* with other children; itself if they are the same."""
    if all(new is old for new, old in zip(below, children(node), strict=True)):
        return node
    return _fresh(node, below)


def _fresh(node: Node, below: list[Node]) -> Node:
    """A new node like *node* with the children *below*."""
    kind = type(node)
    values = asdict(node)
    following = iter(below)
    for name in child_fields(kind):
        value = values[name]
        if isinstance(value, Node):
            values[name] = next(following)
        elif isinstance(value, tuple):
            values[name] = tuple(next(following) if isinstance(item, Node) else item for item in value)
    return kind(**values)


# ---------------------------------------------------------------------------------------------- depth

T = TypeVar("T")

RECURSION_LIMIT = 60_000
"""Python frames that a pass may take; frames of Python functions live on the heap (CPython 3.11)."""


def run_deep(run: Callable[[], T], otherwise: T, diagnostics: Diagnostics, span: Span) -> T:
    """Run a recursive pass and return its result; if the tree is too deep, record an error and return *otherwise*."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION_LIMIT))
    try:
        return run()
    except RecursionError:
        diagnostics.error("the script is nested too deeply", span)
        return otherwise
    finally:
        sys.setrecursionlimit(before)


# --------------------------------------------------------------------------------------------------- values of literals

# Evaluation of expressions that consist of literals only.


Value = bool | int | bytes

_INTEGERS: Mapping[str, Callable[[int, int], Value]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
_TEXTS: Mapping[str, Callable[[bytes, bytes], Value]] = {"==": operator.eq, "!=": operator.ne}


def literal_value(node: Node | None) -> Value | None:
    """The value of *node*: a literal, a comparison of literals, or these joined by ``&& || !``; None if it is unknown.

    ``false && x`` and ``true || x`` are known for any x. Texts are neither true nor false.
    """
    if isinstance(node, IntLiteral | BoolLiteral | StringLiteral):
        return node.value
    if isinstance(node, Unary):
        return _unary_value(node)
    return _binary_value(node) if isinstance(node, Binary) else None


def literal_truth(node: Node | None) -> bool | None:
    """Whether *node* is true; None if it is unknown, or a text."""
    return _truth(literal_value(node))


def _truth(known: Value | None) -> bool | None:
    return bool(known) if isinstance(known, int) else None


def _unary_value(node: Unary) -> Value | None:
    operand = literal_value(node.operand)
    if node.operator == "!":
        truth = _truth(operand)
        return None if truth is None else not truth
    return -operand if node.operator == "-" and isinstance(operand, int) else None


def _binary_value(node: Binary) -> Value | None:
    left, right = literal_value(node.left), literal_value(node.right)
    if node.operator in ("&&", "||"):
        decisive = node.operator == "||"
        sides = (_truth(left), _truth(right))
        return decisive if decisive in sides else None if None in sides else not decisive
    if isinstance(left, bytes) and isinstance(right, bytes):
        text = _TEXTS.get(node.operator)
        return text(left, right) if text is not None else None
    if isinstance(left, int) and isinstance(right, int):
        number = _INTEGERS.get(node.operator)
        return number(left, right) if number is not None else None
    return None
