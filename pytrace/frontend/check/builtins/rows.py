"""``row()``: a row of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytrace.core.event_layout import RowMembers
from pytrace.core.types import VOID, Record, Tuple, Type, Void
from pytrace.core.types.tables import joined_path
from pytrace.frontend.ast import nodes
from pytrace.frontend.check.inference.argument_checks import Arguments, Node
from pytrace.frontend.check.inference.conversions import Unknown, settle
from pytrace.frontend.check.inference.resources import send

if TYPE_CHECKING:
    from pytrace.frontend.check.inference.checker import Checker

_EXAMPLE = "write row((pid=pid, comm=comm)), with a name for each column"


def row(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``row((name=value, …))``."""
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
    send(checker, node, "row", RowMembers([path for path, _ in parts]), tuple(part for _, part in parts))
    return VOID


def _whole_map(checker: Checker, record: nodes.Expr) -> bool:
    """Whether a keyed map is used without a key, which is reported."""
    if not isinstance(record, nodes.MapRef) or not checker.map(record).keyed:
        return False
    hints = [f"print({record.name}) prints the map, row({record.name}[key]) the record of one key"]
    checker.error(f"row() takes a record, not the map {record.name}", record.span, hints=hints)
    return True


def _named(type_: Type) -> str:
    return f"the tuple {settle(type_)}" if isinstance(type_, Tuple) else str(settle(type_))


def _parts(value: nodes.Expr, path: str) -> Iterator[tuple[str, nodes.Expr]]:
    """The expressions whose values are sent: for record and tuple literals their members, at any nesting."""
    if isinstance(value, nodes.RecordLiteral) and value.members:
        names = value.names
    elif isinstance(value, nodes.TupleLiteral) and value.members:
        names = tuple(map(str, range(len(value.members))))
    else:
        yield path, value
        return
    for name, member in zip(names, value.members, strict=True):
        yield from _parts(member, joined_path(path, name))
