"""Reports of real runs: what a browser shows is what the text output says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.test_profiles import SAMPLES, run
from tests.support.browser import frames, opened
from tests.support.patience import patience
from tests.support.saved import read, start
from tests.support.waiting import until

pytestmark = pytest.mark.kernel


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
        assert f": {hot}, " in page.inner_text(".matches")
        rows = page.locator("#part-1 tbody tr:not(.space)")
        shown = {tuple(rows.nth(at).locator("td").all_text_contents()) for at in range(rows.count())}
        assert shown == {(key, str(value)) for key, value in found.maps["@calls"].entries.items()}
        header = page.inner_text("header")
        assert f"Linux {os.uname().release}" in header
        page.click("details.script summary")
        assert page.inner_text("details.script pre") == script


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
    child.communicate(timeout=patience(30))
    files = sorted(folder.iterdir())
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
        assert [sum(step) for step in steps] == lines["series"][0]
