"""Parsing printf formats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core.text import CONVERSION_NAMES, UNSUPPORTED_CONVERSIONS, Conversion, Format, parse_format
from pytrace.frontend.check.calls import CONVERSIONS
from pytrace.render.events import ROWS


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b"", []),
        (b"100%%", []),
        (b"%d %s", ["d", "s"]),
        (b"%-5d|%+d|% d|%#x|%05d", ["d", "d", "d", "x", "d"]),
        (b"%lld %hhu %zu %lx", ["d", "u", "u", "x"]),
        (b"%.3d %10.2s %*d %.*s", ["d", "s", "d", "s"]),
        (b"%r %rx %rh %gr", ["r", "rx", "rh", "gr"]),
        (b"%rxyz", ["rx"]),
        (b"%c%p%i%o%X", ["c", "p", "i", "o", "X"]),
        (b"\xff%d", ["d"]),
    ],
)
def test_parse(text: bytes, names: list[str]) -> None:
    found = parse_format(text)
    assert [item.name for item in found.conversions] == names
    assert found.text == text
    assert found.stray == ()


@pytest.mark.parametrize(
    ("text", "runtime", "names", "stray"),
    [
        (b"%", b"%%", [], ("%",)),
        (b"100%\n", b"100%%\n", [], ("%",)),
        (b"abc %", b"abc %%", [], ("%",)),
        (b"%5", b"%%5", [], ("%5",)),
        (b"%y", b"%%y", [], ("%y",)),
        (b"%ll", b"%%ll", [], ("%ll",)),
        (b"%-", b"%%-", [], ("%-",)),
        (b"%+-", b"%%+-", [], ("%+-",)),
        (b"%y%d%", b"%%y%d%%", ["d"], ("%y", "%")),
        (b"50%%%d%y", b"50%%%d%%y", ["d"], ("%y",)),
        (b"%\xff%s", b"%%\xff%s", ["s"], ("%",)),
    ],
)
def test_percent_signs_of_no_conversion(text: bytes, runtime: bytes, names: list[str], stray: tuple[str, ...]) -> None:
    found = parse_format(text)
    assert found.text == runtime
    assert [item.name for item in found.conversions] == names
    assert found.stray == stray


def test_parts_of_conversions_and_literal_texts() -> None:
    assert parse_format(b"a%%b%-8.3lld%s%y%rx").parts == (
        b"a%b", Conversion("d", "-", "8", ".3", "ll"), Conversion("s"), b"%y", Conversion("rx"),
    )  # fmt: skip
    assert parse_format(b"%*d%.*s").parts == (Conversion("d", width="*"), Conversion("s", precision=".*"))
    assert parse_format(b"").parts == ()


def test_columns() -> None:
    assert [item.columns for item in parse_format(b"%d %-12d %*d %05d %.7d").conversions] == [0, 12, 0, 5, 0]


@pytest.mark.parametrize("text", [b"%a", b"%n", b"%5.2A"])
def test_what_c_has_and_pytrace_has_not_is_recognised(text: bytes) -> None:
    (found,) = parse_format(text).conversions
    assert found.name in UNSUPPORTED_CONVERSIONS
    assert found.text.encode() == text


_PIECES = ("%", "-", "+", " ", "#", "0", "5", ".", "*", "ll", "h", "d", "s", "rx", "r", "x", "y")


@given(st.lists(st.sampled_from(_PIECES)))
def test_the_format_in_the_manifest_is_parsed_as_the_same(pieces: list[str]) -> None:
    found = parse_format("".join(pieces).encode())
    assert parse_format(found.text) == Format(found.parts)


def test_checker_and_runtime_have_a_row_for_each() -> None:
    assert set(CONVERSION_NAMES) == set(CONVERSIONS) == set(ROWS)
