"""``--heat``: changes of histograms as lines, whoever empties the map."""

from __future__ import annotations

import re

from pytrace.core.config import Config
from pytrace.core.manifest import Manifest, ProgramSpec, Target
from pytrace.core.probes.targets import NoTarget
from pytrace.core.types import INT64, Count, Hist, LHist
from pytrace.render.text import Bars
from pytrace.runtime.output.heat_output import histograms, unprinted
from pytrace.runtime.output.run_state import RenderOptions
from tests.support.encode import PLACE, Run, encode


def heated(bars: Bars = Bars.SIGNS) -> Run:
    return Run(options=RenderOptions(heat=bars))


def buckets(**counts: int) -> tuple[int, ...]:
    """The buckets of a ``hist``: ``b3=5`` for five values in the third."""
    return tuple(counts.get(f"b{number}", 0) for number in range(Hist().buckets))


def update(run: Run, name: str, counts: tuple[int, ...]) -> None:
    run.reader.slots[name] = (True, encode(Hist(), counts))


def lines(run: Run) -> list[str]:
    """The printed lines without the time."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in run.printed_text().splitlines()]


def test_each_line_is_the_change_since_the_last() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets(b3=1))
    run.renderer.print_heat(["@h"])
    assert lines(run) == ["@h: .1 :4 -16 =64 +256 *1K #4K %16K @64K", "TIME     |2        TOTAL", "....          1"]
    update(run, "@h", buckets(b3=6))
    run.renderer.print_heat(["@h"])
    run.renderer.print_heat(["@h"])
    run.renderer.print_heat(["@h"], rest=True)
    assert lines(run) == ["::::          5", "              0"], "the rest is nothing, and is not printed"


def test_a_wider_range_has_a_new_heading() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets(b3=1))
    run.renderer.print_heat(["@h"])
    update(run, "@h", buckets(b3=1, b5=4))
    run.renderer.print_heat(["@h"])
    assert lines(run)[3:] == [
        "@h: .1 :4 -16 =64 +256 *1K #4K %16K @64K", "TIME     |2  |4  |8  |16 |32       TOTAL",
        "        ::::                  4",
    ]  # fmt: skip
    update(run, "@h", buckets(b3=1, b4=1, b5=4))
    run.renderer.print_heat(["@h"])
    assert lines(run) == ["    ....                      1"]


def test_a_map_that_counts_nothing_has_no_line() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets())
    run.renderer.print_heat(["@h"])
    assert lines(run) == []


def test_keys_are_one_histogram() -> None:
    run = heated()
    run.bucketed("@h", INT64, LHist(0, 40, 10), {1: {1: 3, 2: 1}, 2: {2: 9}})
    run.renderer.print_heat(["@h"])
    assert lines(run)[1:] == ["TIME     |0  |10       TOTAL", "....::::         13"]


def test_prints_of_the_script_are_lines_until_the_run_ends() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets(b3=2))
    run.scalar("@n", Count(), 5)
    show, other = run.event("print_map", map="@h"), run.event("print_map", map="@n")
    empty, divided = run.event("clear", map="@h"), run.event("print_map", map="@h", div=2)
    run.send(show)
    run.send(other)
    assert lines(run)[2:] == ["....          2", "@n: 5"]
    run.send(empty)
    update(run, "@h", buckets(b3=3))
    # The baseline of what was emptied is subtracted, so one value is left.
    run.send(show)
    assert lines(run) == ["....          1"]
    update(run, "@h", buckets(b3=11))
    run.send(divided)
    assert lines(run) == ["::::          4"]
    run.renderer.resume()
    run.send(show)
    assert lines(run)[:2] == ["@h:", "[2, 4)                 9 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|"]


def test_print_and_clear_in_one_step() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets(b3=2))
    show = run.event("print_map", map="@h", clear=True)
    run.send(show)
    update(run, "@h", buckets(b3=7))
    run.send(show)
    assert lines(run)[2:] == ["....          2", "::::          5"]


def test_a_map_that_a_program_emptied_begins_anew() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets(b3=9))
    run.renderer.print_heat(["@h"])
    update(run, "@h", buckets(b3=4))
    run.renderer.print_heat(["@h"])
    assert lines(run)[2:] == ["::::          9", "::::          4"]


def test_zeroed_maps_begin_anew() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets(b3=4))
    zero = run.event("zero", map="@h")
    run.renderer.print_heat(["@h"])
    run.send(zero)
    update(run, "@h", buckets(b3=9))
    run.renderer.print_heat(["@h"])
    assert lines(run)[2:] == ["::::          4", "::::          5"]


def test_two_maps_have_headings_in_turn() -> None:
    run = heated(Bars.COLOUR)
    run.scalar("@a", Hist(), buckets(b3=1))
    run.scalar("@b", Hist(), buckets(b3=1))
    run.renderer.print_heat(["@a", "@b"])
    text = run.printed_text()
    assert [line[:3] for line in text.splitlines()[::3]] == ["@a:", "@b:"]
    assert "\x1b[48;5;53m    \x1b[0m" in text


def test_which_maps_are_printed_at_an_interval_of_their_own() -> None:
    run = heated()
    run.scalar("@a", Hist(), buckets())
    run.scalar("@b", LHist(0, 10, 1), (0,) * 12)
    run.scalar("@n", Count(), 1)
    run.event("print_map", map="@b")
    program = ProgramSpec("p", "interval", 0, (Target("interval:s:1", 0, NoTarget()),), PLACE)

    def manifest(*programs: ProgramSpec) -> Manifest:
        return Manifest(programs, tuple(run.maps), tuple(run.specs), (), Config())

    assert histograms(manifest()) == ["@a", "@b"]
    assert unprinted(manifest()) == ["@a", "@b"], "its print() is at the end"
    assert unprinted(manifest(program)) == ["@a"]
