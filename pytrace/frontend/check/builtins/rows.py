"""Builtins for tables: ``row()``, ``print_rows()``, and functions mostly used in rows (``fixed()``, ``joined()``)."""

from __future__ import annotations

from collections.abc import Iterator

from pytrace.core.diagnostics import did_you_mean
from pytrace.core.event_layout import NoStaticPart, RowMembers
from pytrace.core.types import INT64, VOID, Enum, Fixed, Int, Joined, Record, Tuple, Type, Void
from pytrace.core.types.tables import Column, TableSchema, joined_path
from pytrace.frontend.check.inference.argument_checks import (
    expressions,
    formatted,
    integer_argument,
    literal_integer,
)
from pytrace.frontend.check.inference.checker import Arguments, Checker, Node
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, settle
from pytrace.frontend.check.inference.resources import send, text_of
from pytrace.frontend.syntax import nodes

_EXAMPLE = "write row((pid=pid, comm=comm)), with a name for each column"


def row(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``row((name=value, …)[, column…])``."""
    record = arguments[0]
    if not isinstance(record, nodes.Expr):
        return checker.error("row() takes a record, not a type", record.span, hints=[_EXAMPLE])
    if _whole_map(checker, record):
        return VOID
    type_ = checker.value(record)
    if isinstance(type_, Unknown):
        return VOID
    if not isinstance(type_, Record):
        checker.error(f"row() takes a record, whose members have names, not {_named(type_)}", record.span,
                      hints=[_EXAMPLE])
        return VOID
    parts = list(_parts(record, ""))
    for _, part in parts:
        if isinstance(checker.program.types[part], Void):
            checker.error("there is no value for the column", part.span)
            return VOID
    names = [path for path, _ in parts]
    member_types = [settle(checker.program.types[part]) for _, part in parts]
    order = _order(checker, node, TableSchema.of(names, member_types).columns, arguments[1:])
    send(checker, node, "row", RowMembers(names, order), tuple(part for _, part in parts))
    return VOID


def _order(checker: Checker, node: Node, columns: tuple[Column, ...], arguments: Arguments) -> list[int]:
    """The value of :attr:`RowMembers.order` for the columns that a call names."""
    order: list[int] = []
    names = [column.name for column in columns]
    descending = False
    for argument in arguments:
        text = checker.constant_text(argument, "the column that rows are sorted by")
        if text is None:
            return []
        name = text.decode("utf-8", "surrogateescape")
        if name == "-" and not descending:
            descending = True
            continue
        if name not in names and name.startswith("-"):
            descending, name = True, name[1:]
        if name not in names:
            hints = did_you_mean(name, names) or ("the columns are " + ", ".join(names),)
            checker.error(f"the rows have no column {name!r} to sort by", argument.span, hints=hints)
            return []
        number = names.index(name) + 1
        order.append(-number if descending else number)
        descending = False
    if descending:
        checker.error('no column follows the "-"', node.span, hints=['"-name" sorts by name in descending order'])
    return order


def print_rows(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``print_rows([n])``."""
    values = expressions(checker, arguments)
    for value in values:
        integer_argument(checker, node, value, "the number of rows of print_rows()")
        number = checker.constant(value)
        if isinstance(number, int) and number < 0:
            hints = ["0 prints all"]
            return checker.error(f"print_rows() cannot print {number} rows", value.span, hints=hints)
    send(checker, node, "print_rows", NoStaticPart(), values, (INT64,) * len(values))
    return VOID


def clear_terminal(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``clear_terminal()``."""
    send(checker, node, "clear_terminal", NoStaticPart())
    return VOID


MOST_DIVISOR, MOST_DIGITS, MOST_WORDS = 10**12, 9, 10_000


def fixed(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``fixed(value, divisor, digits)``."""
    type_ = integer_argument(checker, node, arguments[0], "the value of fixed()")
    divisor = literal_integer(checker, node, arguments[1], "the divisor of fixed()", 1, MOST_DIVISOR)
    digits = literal_integer(checker, node, arguments[2], "the number of decimals of fixed()", 0, MOST_DIGITS)
    if isinstance(type_, Unknown) or divisor is None or digits is None:
        return UNKNOWN
    settled = settle(type_)
    return Fixed(divisor, digits, isinstance(settled, Int | Enum) and settled.signed)


def file_number(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``file_number(path, word, digits)``."""
    path = checker.constant_text(arguments[0], "the path of file_number()")
    word = literal_integer(checker, node, arguments[1], "the word of file_number()", 1, MOST_WORDS)
    digits = literal_integer(checker, node, arguments[2], "the number of decimals of file_number()", 0, MOST_DIGITS)
    if path is None or word is None or digits is None:
        return UNKNOWN
    if not path.startswith(b"/"):
        hints = ["a relative path would depend on where the script is started"]
        return checker.error("file_number() needs an absolute path", arguments[0].span, hints=hints)
    return Fixed(10**digits, digits, True, text_of(path), word)


def joined(checker: Checker, _node: Node, arguments: Arguments) -> Type:
    """``joined(separator, value…)``."""
    separator = checker.constant_text(arguments[0], "the separator of joined()")
    members: list[Type] = []
    for value in expressions(checker, arguments[1:]):
        type_ = checker.value(value)
        if isinstance(type_, Void) or type_.aggregate:
            return checker.error(f"{settle(type_)} cannot be part of a text", value.span)
        members.append(type_)
    if separator is None:
        return UNKNOWN
    return Joined(text_of(separator), tuple(members))


def sprintf(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``sprintf(fmt, value…)``."""
    format_, values = formatted(checker, node, arguments)
    if format_ is None:
        return UNKNOWN
    types = tuple(checker.value(value) for value in values)
    if any(isinstance(type_, Unknown) for type_ in types):
        return UNKNOWN
    return Joined(text_of(format_.text), types, formatted=True)


def _whole_map(checker: Checker, record: nodes.Expr) -> bool:
    """Whether a keyed map is used without a key; reports an error."""
    if not isinstance(record, nodes.MapRef) or not checker.map(record).keyed:
        return False
    hints = [f"print({record.name}) prints the map, row({record.name}[key]) the record of one key"]
    checker.error(f"row() takes a record, not the map {record.name}", record.span, hints=hints)
    return True


def _named(type_: Type) -> str:
    return f"the tuple {settle(type_)}" if isinstance(type_, Tuple) else str(settle(type_))


def _parts(value: nodes.Expr, path: str) -> Iterator[tuple[str, nodes.Expr]]:
    """The expressions whose values are sent, with their paths; literals of records and tuples are flattened."""
    if isinstance(value, nodes.RecordLiteral) and value.members:
        names = value.names
    elif isinstance(value, nodes.TupleLiteral) and value.members:
        names = tuple(map(str, range(len(value.members))))
    else:
        yield path, value
        return
    for name, member in zip(names, value.members, strict=True):
        yield from _parts(member, joined_path(path, name))
