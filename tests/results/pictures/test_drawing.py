from __future__ import annotations

import pytest

from pytrace.results.pictures.drawing import MOST_TITLE, Drawing, fitted
from tests.support.pictures import boxes, texts

HOSTILE = "</text><script>alert(1)</script>&\"'\x1b[31m\x00\udcff\uffff]]>"


def test_a_picture_needs_no_script_and_names_stay_text() -> None:
    drawing = Drawing()
    drawing.line(HOSTILE)
    drawing.box(1, 2, 3, 4, "#fff", HOSTILE)
    picture = drawing.element().encode()
    escaped = "</text><script>alert(1)</script>&\"'\\x1b[31m\\x00\\xff\ufffd]]>"
    assert texts(picture) == [escaped]
    assert [box.title for box in boxes(picture)] == [escaped]
    assert b"<script" not in picture


def test_long_titles_are_truncated() -> None:
    drawing = Drawing()
    drawing.box(0, 0, 1, 1, "#fff", "x" * 10_000)
    assert [len(box.title) for box in boxes(drawing.element().encode())] == [MOST_TITLE]


@pytest.mark.parametrize(("width", "expected"), [(100.0, "function"), (45.0, "funct…"), (15.0, "")])
def test_text_is_fitted(width: float, expected: str) -> None:
    assert fitted("function", width) == expected
