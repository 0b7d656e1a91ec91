"""Values of numbers, strings and parameters."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source, Span
from pytrace.frontend.syntax import nodes, parser
from pytrace.frontend.syntax.tokens import decode_integer, decode_parameter, decode_string
from tests.support.rows import each_row


@each_row(
    ("text", "value"),
    [
        ("0", 0), ("7", 7), ("0777", 511), ("0x10", 16), ("0Xff", 255), ("0x1_0", 16), ("1_000_000", 1_000_000),
        ("1e3", 1000), ("5e9", 5_000_000_000), ("1ns", 1), ("5us", 5000), ("3ms", 3_000_000), ("2s", 2_000_000_000),
        ("1m", 60_000_000_000), ("1h", 3_600_000_000_000), ("1d", 86_400_000_000_000), ("5u", 5), ("5UL", 5),
        ("5ull", 5),
        ("4294967295u", 4294967295), ("9223372036854775807ll", (1 << 63) - 1), ("18446744073709551615", (1 << 64) - 1),
    ],
)  # fmt: skip
def test_numbers(text: str, value: int) -> None:
    diagnostics = Diagnostics()
    node = parser.parse_expression(Source("t", text), diagnostics)
    assert isinstance(node, nodes.IntLiteral)
    assert (node.value, node.text) == (value, text)
    assert not diagnostics.items


@pytest.mark.parametrize(
    ("text", "value"),
    [("0x10UL", 16), ("0xffu", 255), ("5LLU", 5), ("010l", 8), ("0xFFFFFFFFFFFFFFFFull", (1 << 64) - 1)],
)
def test_numbers_of_c_macros(text: str, value: int) -> None:
    node = parser.parse_expression(Source("t", text), Diagnostics(), in_c=True)
    assert isinstance(node, nodes.IntLiteral)
    assert node.value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\tb\\c\"d\x41\101\n"', b'a\tb\\c"d\x41\x41\n'),
        (r'"\xff\x1\0\r"', b"\xff\x01\x00\r"),
        ('"é"', "é".encode()),
        ('"// no comment"', b"// no comment"),
        ('"\udcff"', b"\xff"),
    ],
)
def test_strings(text: str, value: bytes) -> None:
    node = parser.parse_expression(Source("t", text), Diagnostics())
    assert isinstance(node, nodes.StringLiteral)
    assert node.value == value


@each_row(
    ("text", "message"),
    [
        ("1_", "'_' at the end of a number"), ("0x", "hexadecimal number without digits"),
        ("0x1g", "invalid suffix 'g'"),
        ("08", "'8' is not an octal digit"), ("12e3", "'12' before the exponent"), ("0e3", "'0' before the exponent"),
        ("18446744073709551616", "does not fit into 64 bits"), ("0x10000000000000000", "does not fit into 64 bits"),
        ("2e19", "does not fit"), ("1e21", "does not fit"), ("1x", "invalid suffix 'x'"),
        ("4294967296u", "its suffix 'u'"),
        ("9223372036854775808l", "its suffix 'l'"), ("213504d", "the duration does not fit"),
        ("1" * 65, "does not fit"),
    ],
)  # fmt: skip
def test_numbers_without_a_value(text: str, message: str) -> None:
    found = Diagnostics()
    assert decode_integer(text, Span(Source("stdin", text), 0, len(text)), found) == 0
    assert message in found.errors[0].message


@each_row(
    ("text", "number"),
    [("1e19", 10**19), ("18446744073709551615", 2**64 - 1), ("4294967295u", 2**32 - 1),
     ("9223372036854775807L", 2**63 - 1),
     ("213503d", 213503 * 86_400 * 10**9), ("5m", 300 * 10**9), ("0", 0), ("00", 0), ("1_0_0", 100), ("0xF_F", 255)],
)  # fmt: skip
def test_limits(text: str, number: int) -> None:
    found = Diagnostics()
    assert decode_integer(text, Span(Source("stdin", text), 0, len(text)), found) == number
    assert not found.errors


@pytest.mark.parametrize(
    ("text", "fine"),
    [("$1", True), ("$0", False), ("$2147483647", True), ("$2147483648", False), ("$99999999999999", False)],
)
def test_parameters_count_from_1(text: str, fine: bool) -> None:
    found = Diagnostics()
    decode_parameter(text, Span(Source("stdin", text), 0, len(text)), found)
    assert not found.errors if fine else "they count from $1" in found.errors[0].message


@pytest.mark.parametrize(
    ("body", "message"),
    [(r"a\q", "unknown escape '\\q'"), (r"\x", "without hexadecimal digits"), (r"\400", "more than a byte")],
)
def test_wrong_escapes_point_at_themselves(body: str, message: str) -> None:
    found = Diagnostics()
    decode_string(body, Span(Source("stdin", f'"{body}"'), 0, len(body) + 2), 1, found)
    assert message in found.errors[0].message
    assert found.errors[0].span.text == body[body.index("\\") :]
