"""Lines of heat maps: levels, scales, cells."""

from __future__ import annotations

import pytest

from pytrace.core.types import Hist, LHist
from pytrace.render import histogram
from pytrace.render.maps import heat_lines


@pytest.mark.parametrize(
    ("count", "level"), [(0, 0), (1, 1), (3, 1), (4, 2), (15, 2), (16, 3), (4**8, 9), (2**64, 9)]
)
def test_levels(count: int, level: int) -> None:
    assert heat_lines.level(count) == level


def test_a_scale_fits_the_terminal() -> None:
    few = heat_lines.scale(3, 6, 80)
    assert (few.first, few.group, few.cells, few.width) == (3, 1, 4, 4)
    many = heat_lines.scale(0, 999, 80)
    assert many.cells * many.width <= 60
    assert many.covers(0, 999)
    assert not many.covers(0, many.end)
    assert sum(many.sums([1] * 1000)) == 1000
    assert heat_lines.scale(0, 70, 10).cells <= 8, "what is narrower than the least is wrapped by the terminal"


def test_heading_and_line_of_signs() -> None:
    shape, scale = histogram.shape(Hist()), heat_lines.scale(3, 6, 80)
    heading = heat_lines.heading(b"@us", shape, scale, colour=False).decode()
    assert heading == (
        "@us: .1 :4 -16 =64 +256 *1K #4K %16K @64K\n"
        "TIME     |2  |4  |8  |16       TOTAL\n"
    )  # fmt: skip
    counts = [0, 0, 0, 1, 4, 0, 70_000]
    line = heat_lines.line(b"12:00:00", scale, counts, colour=False).decode()
    assert line == "12:00:00 ....::::    @@@@      70005\n"


def test_open_ends_and_bounds_that_do_not_fit() -> None:
    shape = histogram.shape(LHist(0, 100_000, 1000))
    scale = heat_lines.scale(0, 101, 80)
    ruler = heat_lines.heading(b"@", shape, scale, colour=False).decode().split("\n")[1]
    assert "TIME     |<0 |7000 |19000 " in ruler
    assert scale.group == 2


def test_colours() -> None:
    line = heat_lines.line(b"12:00:00", heat_lines.scale(0, 1, 80), [0, 5], colour=True)
    assert line == b"12:00:00     \x1b[48;5;54m    \x1b[0m          5\n"
