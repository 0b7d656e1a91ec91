"""First screens of reports of real programs: what they say in the upper part of the window, in both sizes."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytrace.results import file_form
from tests.support.browser import frames, opened
from tests.support.report_gallery import REPORTS, SIZES, Report, report, snapshots
from tests.support.waiting import until

pytestmark = pytest.mark.needs("chromium")

UPPER = 0.6
"""The part of the window in which the answer is read."""

READ = (Path(__file__).parent / "first_screen.js").read_text()


@pytest.mark.parametrize("name", REPORTS)
def test_first_screen_answers(name: str, tmp_path: Path) -> None:
    missing: list[str] = []
    wanted, number = REPORTS[name], [*REPORTS].index(name)
    file = tmp_path / "report.html"
    file.write_bytes(report(name))
    size = {"width": SIZES[0][0], "height": SIZES[0][1]}
    with opened(file, viewport=size, color_scheme=_scheme(number)) as page:
        for place, (width, height) in enumerate(SIZES):
            scheme = _scheme(number + place)
            if place:
                page.emulate_media(color_scheme=scheme)
                page.set_viewport_size({"width": width, "height": height})
            missing += _missing(page, f"{name} {width}×{height} {scheme}", wanted, height)
    assert not missing, "\n\n".join(missing)


def _scheme(number: int) -> Any:
    return ("light", "dark")[number % 2]


def _missing(page: Any, title: str, wanted: Report, height: int) -> list[str]:
    """What a first screen lacks; asked again, as a page of a new size draws a moment later."""
    found: list[str] = []

    def complete() -> bool:
        said = page.evaluate(READ, UPPER)
        found[:] = [f"{title}: {text!r} in\n{said}" for text in wanted.says if not re.search(text, said)]
        if wanted.own:
            found.extend(_widest(page, title, wanted.own, height))
        return not found

    with suppress(AssertionError):
        until(complete, 5)
    return found


def _widest(page: Any, name: str, function: str, height: int) -> list[str]:
    """The widest frame of the function that took most is wide enough to be read, and in the window."""
    found = max((one for one in frames(page) if one["name"] == function), key=lambda one: one["width"], default=None)
    if found is None or found["width"] < 40:
        return [f"{name}: no wide frame of {function}"]
    box = page.locator("div.flame .canvas").first.bounding_box()
    place = page.locator("div.flame canvas:not(.strip canvas)").first.bounding_box()
    end = place["y"] + found["y"] + 18
    return [] if end <= min(height, box["y"] + box["height"]) else [f"{name}: {function} ends at {end} of {height}"]


def test_reports_are_small() -> None:
    """5 s of a busy program take less than 300 kB; these are 1.5 s each."""
    assert {name: len(report(name)) for name in ("python", "python-alloc") if len(report(name)) > 200_000} == {}


def test_the_gallery_is_of_these_reports() -> None:
    assert all(path.is_file() for name in REPORTS for path in snapshots(name))
    known = {path for name in REPORTS for path in snapshots(name)}
    assert set(snapshots("c")[0].parent.rglob("*.pts")) == known
    assert all(file_form.read(str(path)).runs for path in known)
