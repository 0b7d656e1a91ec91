"""Reports of real runs: what a browser shows is what the text output says."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.test_profiles import SAMPLES, run
from tests.support.browser import frames, opened
from tests.support.patience import patience
from tests.support.pictures import boxes
from tests.support.saved import read, start
from tests.support.waiting import until

pytestmark = [pytest.mark.kernel, pytest.mark.needs("chromium")]


def test_a_run_as_a_report(programs: Path, tmp_path: Path) -> None:
    saved, report = tmp_path / "x.pts", tmp_path / "x.html"
    calls = "tracepoint:syscalls:sys_enter_* /pid == cpid/ { @calls[probe] = count(); row((probe=probe, pid=pid)); }"
    script = f"{SAMPLES} {calls}"
    out, _ = run("--save", saved, "-o", report, "-e", script, "-c", f"{programs}/busy 200")
    assert "@calls" not in out
    found = read(saved)
    samples: dict[Any, Any] = dict(found.maps["@"].entries)
    total = sum(samples.values())
    with opened(report) as page:
        assert frames(page)[0]["value"] == total
        hot = sum(value for key, value in samples.items() if "hot" in [frame.function for frame in key[2].frames])
        page.fill("div.flame input[type=search]", "/^hot$/")
        assert re.search(rf"\b{hot} (samples|events)\b", page.inner_text(".matches"))
        counted = page.locator("section", has=page.locator("h2", has_text="@calls"))
        rows = counted.locator("tbody tr:not(.space)")
        shown = {tuple(rows.nth(at).locator("td").all_text_contents()) for at in range(rows.count())}
        assert shown == {(key, str(value)) for key, value in found.maps["@calls"].entries.items()}
        assert f"{programs}/busy 200" in page.inner_text("h1")
        page.click("details.about summary")
        assert f"Linux {os.uname().release}" in page.inner_text("details.about")
        page.click("details.script summary")
        assert page.inner_text("details.script pre") == script


EVERY = """
    interval:ms:5 { @h = hist(nsecs % 1000); @n = count(); @inner[1] = 1; }
    interval:ms:100 { print_clear(@h); print(@n); if (++@times == 4) { exit(); } }
    end { clear(@times); clear(@inner); }
"""


def test_what_a_script_prints_at_an_interval(tmp_path: Path) -> None:
    saved, report, shown, picture = (tmp_path / f"x{suffix}" for suffix in (".pts", ".html", ".2.html", ".svg"))
    out, err = run("--save", saved, "-o", report, "-e", EVERY)
    assert out == ""
    for path in (shown, picture):
        assert run("show", saved, "-o", path)[0] == ""
    # The text of each print, and what the text output of the run would have ended with.
    prints = [sum(map(int, re.findall(r"[\])] +(\d+) \|", part))) for part in err.split("@h:\n")[1:]]
    numbers = [int(number) for number in re.findall(r"@n: (\d+)", err)]
    last: dict[str, dict[Any, Any]] = {name: dict(data.entries) for name, data in read(saved).maps.items()}
    assert len(prints) == len(numbers) == 4
    counted = [*prints, *(sum(counts.values()) for counts in last["@h"].values())]
    totals = numbers if numbers[-1] == last["@n"][None] else [*numbers, last["@n"][None]]
    for path in (report, shown):
        with opened(path) as page:
            assert page.locator("section h2").all_text_contents() == ["@h", "@n"], "@inner and @times print nowhere"
            steps = page.evaluate("document.querySelector('div.heat').cells()")
            assert [sum(step) for step in steps] == counted
            (series,) = page.evaluate("document.querySelector('div.lines').values()")["series"]
            assert list(itertools.accumulate(series)) == totals
    cells = [box.title for box in boxes(picture.read_bytes()) if " of " in box.title]
    assert sum(int(cell.split(": ")[1].split(" of ")[0]) for cell in cells) == sum(counted)


def test_what_the_end_prints_and_clears_is_shown(tmp_path: Path) -> None:
    report = tmp_path / "x.html"
    script = "config = { print_maps_on_exit = 0 } begin { @h = hist(5); @inner = 1; exit(); } end { print_clear(@h); }"
    run("-o", report, "-e", script)
    with opened(report) as page:
        assert page.locator("section h2").all_text_contents() == ["@h"]
        assert page.locator("table.histogram tbody").inner_text().split()[:3] == ["[4,", "8)", "1"]


def test_a_heat_map_shows_what_the_tool_prints(tmp_path: Path) -> None:
    report = tmp_path / "x.html"
    command = "sh -c 'for i in 1 2 3 4 5 6; do cat /etc/passwd > /dev/null; sleep 0.1; done'"
    run("heatmap", "--every", "0.2", "-o", report, "fsdist", "-c", command)
    saved = sorted((tmp_path / "x.snapshots").iterdir())
    assert "@outputs" in read(saved[0]).maps
    with opened(report) as page:
        assert page.locator("section").get_attribute("aria-label") == "@usecs"
        entries: dict[Any, Any] = dict(read(saved[-1]).maps["@usecs"].entries)
        totals = sorted((sum(counts.values()) for counts in entries.values()), reverse=True)
        shown = page.locator(".rows tbody td.number").all_text_contents()
        assert [int(text) for text in shown] == totals
        assert sum(map(sum, page.evaluate("document.querySelector('div.heat').cells()"))) == totals[0]


def test_saved_snapshots_as_a_series(tmp_path: Path) -> None:
    folder, report = tmp_path / "saved", tmp_path / "x.html"
    script = f"t:syscalls:sys_enter_getppid /pid == {os.getpid()}/ {{ @n = count(); @h = lhist(pid, 0, 10, 1); }}"
    child = start("--save-every", "0.2", folder, "-o", report, "-e", script)
    assert child.stderr is not None
    assert child.stderr.readline() == "Attached 1 probe\n"
    calls = 0

    def more() -> bool:
        nonlocal calls
        calls += os.getppid() != 0
        return len(os.listdir(folder)) >= 4

    until(more, patience(30))
    child.terminate()
    _, said = child.communicate(timeout=patience(30))
    files = sorted(folder.iterdir())
    assert re.search(rf"wrote \d+ snapshots in {re.escape(str(folder))}\n", said)
    assert "no heat map" not in said
    shown = tmp_path / "shown.html"
    assert run("show", *files, "-o", shown) == ("", "")
    for path in (report, shown):
        assert_shows(path, len(files), calls)


def assert_shows(path: Path, files: int, calls: int) -> None:
    """The report of a run that saved snapshots, and that of the files."""
    with opened(path) as page:
        lines = page.evaluate("document.querySelector('div.lines').values()")
        assert len(lines["times"]) == files
        assert sum(lines["series"][0]) == calls
        steps = page.evaluate("document.querySelector('div.heat').cells()")
        assert sum(map(sum, steps)) == calls
        # Maps are read one after another: a call between the two is in the next step of one.
        assert len(steps) == len(lines["series"][0])
