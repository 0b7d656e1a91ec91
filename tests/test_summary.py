"""The end of scripts/test: counts, skips, and the table of tools by kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SUMMARY = Path(__file__).resolve().parent.parent / "scripts" / "test-summary"


def result(name: str, outcome: str, *tools: str, reason: str = "") -> str:
    return json.dumps({"name": name, "outcome": outcome, "reason": reason, "seconds": 1.0, "tools": list(tools)})


def summary(folder: Path, **parts: list[str]) -> tuple[int, list[str]]:
    """Exit status and lines for reports of parts."""
    for part, lines in parts.items():
        (folder / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
        (folder / f"{part}.status").write_text("0 12\n")
    done = subprocess.run([sys.executable, SUMMARY, folder, *parts], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def test_tools_by_kernel(tmp_path: Path) -> None:
    here = [
        result("a", "passed", "opensnoop"),
        result("b", "skipped", "vfsstat", reason="kprobe: not here"),
        result("c", "passed", "tcpdrop"),
        result("d", "skipped", "tcpdrop", reason="no netem"),
        result("e", "passed"),
    ]
    there = [
        result("a", "passed", "opensnoop", "statsnoop"),
        result("b", "started", "vfsstat"),
        result("b", "passed", "vfsstat"),
        result("c", "passed", "tcpdrop"),
        result("c", "failed", "tcpdrop"),
    ]
    status, lines = summary(tmp_path, kernel=here, vm=there)
    assert status == 1
    table = {words[0]: words for words in (line.split(maxsplit=1) for line in lines if line.startswith("  "))}
    rows = {name: " ".join(words[1].split()) for name, words in table.items()}
    assert rows["TOOL"] == "here 6.1"
    assert rows["opensnoop"] == "right right"
    assert rows["statsnoop"] == "no case right"
    assert rows["vfsstat"] == "cannot: kprobe: not here right"
    assert rows["tcpdrop"] == "right, in part: no netem wrong"
    assert lines[-1] == "5 passed, 1 failed, 2 skipped"


def test_a_case_that_did_not_end_is_wrong(tmp_path: Path) -> None:
    _, lines = summary(tmp_path, vm=[result("a", "started"), result("b", "failed", "opensnoop")])
    assert any(line.split() == ["opensnoop", "wrong"] for line in lines)


def test_without_cases_there_is_no_table(tmp_path: Path) -> None:
    status, lines = summary(tmp_path, unit=[result("a", "passed")], kernel=[result("b", "passed")])
    assert status == 0
    assert not any("tools by kernel" in line for line in lines)


def again(folder: Path, first: list[str], second: list[str], status: int = 1) -> tuple[int, list[str]]:
    """The same for a part whose failures ran once more."""
    (folder / "kernel.jsonl").write_text("\n".join(first) + "\n")
    (folder / "kernel.again.jsonl").write_text("\n".join(second) + "\n")
    (folder / "kernel.status").write_text(f"{status} 12\n")
    done = subprocess.run([sys.executable, SUMMARY, folder, "kernel"], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def test_what_passes_alone_is_named(tmp_path: Path) -> None:
    first = [result("t.py::a", "failed", "opensnoop"), result("t.py::b", "passed")]
    status, lines = again(tmp_path, first, [result("t.py::a", "passed", "opensnoop")])
    assert (status, lines[-1]) == (0, "2 passed, 0 failed, 0 skipped")
    assert "  unsteady: t.py::a (failed beside other tests, passed alone)" in lines
    assert any(line.split() == ["opensnoop", "right"] for line in lines)


def test_what_fails_twice_or_is_skipped_then_failed(tmp_path: Path) -> None:
    first = [result("t.py::a", "failed"), result("t.py::b", "failed"), result("t.py::c", "failed")]
    second = [result("t.py::a", "failed"), result("t.py::b", "skipped", reason="not now"), result("t.py::c", "started")]
    status, lines = again(tmp_path, first, second)
    assert (status, lines[-1]) == (1, "0 passed, 3 failed, 0 skipped")
    assert not any("unsteady" in line for line in lines)


def few(folder: Path, most: int, *lines: str) -> list[str]:
    (folder / "x.jsonl").write_text("\n".join(lines) + "\n")
    command = [sys.executable, SUMMARY, "--few", folder / "x.jsonl", str(most)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_only_a_few_failures_run_again(tmp_path: Path) -> None:
    failed = [result(f"t.py::a[{n} x]", "failed") for n in range(3)]
    assert few(tmp_path, 3, result("t.py::b", "passed"), *failed) == [f"t.py::a[{n} x]" for n in range(3)]
    assert few(tmp_path, 2, *failed) == []
    assert few(tmp_path, 3, result("t.py", "failed")) == [], "a file that could not be read is no test"
    hung = json.dumps({"name": "t.py::h", "outcome": "failed", "reason": "the machine hung", "seconds": 0.0})
    assert few(tmp_path, 3, hung) == []


def test_a_failure_shows_the_command_that_repeats_it(tmp_path: Path) -> None:
    _, lines = summary(tmp_path, vm=[result("tests/t.py::a[x y]", "failed")])
    assert "  repeat: scripts/test vm 'tests/t.py::a[x y]'" in lines


def test_a_run_that_broke_down_says_why(tmp_path: Path) -> None:
    (tmp_path / "unit.jsonl.broken").write_text("first\nKeyError: 'gw0'\n")
    (tmp_path / "unit.jsonl").write_text(result("a", "passed") + "\n")
    for status, said in ((3, "an error in pytest or a plugin: KeyError: 'gw0'"), (137, "by SIGKILL: KeyError: 'gw0'")):
        (tmp_path / "unit.status").write_text(f"{status} 12\n")
        done = subprocess.run([sys.executable, SUMMARY, tmp_path, "unit"], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"unit: the test run itself broke down with status {status}: {said}" in done.stdout
