from __future__ import annotations

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.syntax import nodes, parser
from tests.support.rows import each_row


@each_row(
    ("text", "value"),
    [
        ("3 > 2", True),
        ("-3 > 2", False),
        ('"a" == "b"', False),
        ('"a" != "b"', True),
        ("!true", False),
        ("!0", True),
        ("pid && false", False),
        ("false && pid", False),
        ("pid || 1", True),
        ("true && pid", None),
        ("1 < pid", None),
        ('"a" && false', False),
        ('"a" || false', None),
        ('!"a"', None),
        ("true == 1", True),
        ("2 + 1", None),
    ],
)
def test_values(text: str, value: object) -> None:
    diagnostics = Diagnostics()
    found = nodes.literal_value(parser.parse_expression(Source("x", text), diagnostics))
    assert not diagnostics.items
    assert (type(found), found) == (type(value), value)
    assert nodes.is_false_literal(parser.parse_expression(Source("x", text), diagnostics)) == (value is False)


def test_texts_are_not_false() -> None:
    assert not nodes.is_false_literal(parser.parse_expression(Source("x", '""'), Diagnostics()))
    assert nodes.is_false_literal(parser.parse_expression(Source("x", "0"), Diagnostics()))
    assert not nodes.is_false_literal(None)
