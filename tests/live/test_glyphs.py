from __future__ import annotations

import pytest

from pytrace.live.glyphs import LEVELS, Glyphs, columns, quantity

UNICODE, PLAIN = Glyphs(), Glyphs(unicode=False, colour=False)


@pytest.mark.parametrize("glyphs", [UNICODE, PLAIN])
def test_bars_have_their_width_and_anything_shows(glyphs: Glyphs) -> None:
    for share in (0, 0.001, 0.3, 0.999, 1, 7):
        assert columns(glyphs.bar(share, 10)) == 10
    assert glyphs.bar(0, 4) == "    "
    assert glyphs.bar(1e-9, 4).strip()
    assert " " not in glyphs.bar(1, 4)


def test_sparklines_end_with_the_last_value() -> None:
    assert UNICODE.sparkline([0, 1, 8, 4], 6) == "   ▂█▅"
    assert PLAIN.sparkline([0, 1, 8, 4], 4) == " .#="
    assert UNICODE.sparkline([1, 2, 3], 2) == "▆█"
    assert UNICODE.sparkline([], 3) == "   "


def test_cells_say_how_much_by_colour_or_by_a_character() -> None:
    assert UNICODE.cell(0) == (" ", "heat0")
    assert UNICODE.cell(1) == (" ", f"heat{LEVELS - 1}")
    shades = [PLAIN.cell(share / 8)[0] for share in range(9)]
    assert shades[0] == " "
    assert " " not in shades[1:]
    assert all(cell.isascii() for cell in shades)
    assert Glyphs(colour=False).cell(1) == ("█", "")


def test_text_fits_in_columns_not_in_characters() -> None:
    assert UNICODE.fit("ab", 4) == "ab  "
    assert UNICODE.fit("ab", 4, right=True) == "  ab"
    assert UNICODE.fit("abcdef", 4) == "abc…"
    assert PLAIN.fit("abcdef", 4) == "abc~"
    assert UNICODE.fit("日本語", 4) == "日… "
    assert UNICODE.fit("abc", 0) == ""
    assert columns("e\u0301") == 1


def test_text_of_others_is_printable() -> None:
    assert UNICODE.text("a\x1b[31m\nb\u202e") == "a\\x1b[31m\\x0ab\\xe2\\x80\\xae"
    assert UNICODE.text("é") == "é"
    assert PLAIN.text("é") == "\\xe9"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.5, "0.5"), (12.3, "12"), (999, "999"), (1200, "1.2k"), (35e6, "35M"), (-4000, "-4.0k")],
)
def test_quantities_are_short(value: float, text: str) -> None:
    assert quantity(value) == text
