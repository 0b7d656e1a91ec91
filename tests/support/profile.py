"""Where the time of the tests goes: ``-p tests.support.profile --profile FILE`` of pytest.

Each process of tests appends a JSON line a test to FILE: seconds on the clock and on processors in each phase, and
starts of pytrace by kind. ``python -m tests.support.profile FILE…`` makes tables of such files.
"""

from __future__ import annotations

import os
import resource
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic  # tests replace that of the module
from typing import Any

import msgspec
import pytest

from tests.support.waiting import descendants

_TICKS = os.sysconf("SC_CLK_TCK")
PHASES = ("setup", "call", "teardown")


class Line(msgspec.Struct):
    """One test."""

    name: str
    outcome: str
    wall: dict[str, float]
    """Seconds on the clock, by phase."""
    cpu: dict[str, float]
    """Seconds on processors of the process of the tests and of what it started, by phase. Threads of the kernel do not
    count; nor do processes that outlive the phase without a parent."""
    starts: dict[str, int]
    """Starts of pytrace by kind."""


def processor_time() -> float:
    """Seconds on processors of this process, of what it waited for, and of what it started that still runs."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    for pid in descendants(os.getpid())[1:]:
        with suppress(OSError):  # it ended meanwhile: its time is counted once its parent waited for it
            fields = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
            total += sum(map(int, fields[11:15])) / _TICKS
    return total


class Starts:
    """Counts starts of pytrace: the processes that tests start, and the runs of the server."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._caches: dict[Path, set[str]] = {}
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: Any) -> None:
        if event == "subprocess.Popen":
            _, words, _, environment = arguments
            text = words if isinstance(words, str) else " ".join(os.fsdecode(word) for word in words)
            if "-m pytrace" in text or "pytrace.cli" in text or "bin/pytrace" in text:
                self.counts["processes"] += 1
                self._look(os.environ if environment is None else environment)
        elif event == "pytrace.tests.run":
            self.counts["forked"] += 1
            self._look({**os.environ, **arguments[0]})

    def _look(self, environment: Any) -> None:
        named = environment.get("XDG_CACHE_HOME")
        folder = Path(os.fsdecode(named)) if named else Path.home() / ".cache"
        self._caches.setdefault(folder, _scripts(folder))

    def take(self) -> dict[str, int]:
        """The starts since the last call; ``compiled`` are the scripts that these added to caches."""
        compiled = sum(len(_scripts(folder) - before) for folder, before in self._caches.items())
        found = dict(self.counts) | ({"compiled": compiled} if compiled else {})
        self.counts.clear()
        self._caches.clear()
        return found


def _scripts(folder: Path) -> set[str]:
    """Names of compiled scripts: a cache that is full gives one up for each new one."""
    try:
        names = os.listdir(folder / "pytrace/scripts")
    except OSError:
        return set()
    return {name for name in names if not name.startswith("options-")}  # not what scripts declare


class Profile:
    """The plugin: a line for each test that ran in this process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._starts = Starts()
        self._lines: dict[str, Line] = {}

    def _measured(self, item: pytest.Item, phase: str) -> Iterator[None]:
        line = self._lines.setdefault(item.nodeid, Line(item.nodeid, "passed", {}, {}, {}))
        wall, cpu = monotonic(), processor_time()
        try:
            yield
        finally:
            line.wall[phase], line.cpu[phase] = monotonic() - wall, processor_time() - cpu

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Measure fixtures."""
        yield from self._measured(item, "setup")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Measure the test itself."""
        yield from self._measured(item, "call")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Measure the end of fixtures."""
        yield from self._measured(item, "teardown")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome; write the line after the last phase."""
        line = self._lines.get(report.nodeid)
        if line is None:
            return  # a worker of xdist measured it
        if report.outcome != "passed":
            line.outcome = report.outcome
        if report.when == "teardown":
            line.starts = self._starts.take()
            del self._lines[report.nodeid]
            with open(self._path, "ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--profile FILE``."""
    parser.addoption("--profile", metavar="FILE", help="append a JSON line a test: time by phase, starts of pytrace")


def pytest_configure(config: pytest.Config) -> None:
    """Measure in each process that runs tests."""
    path = config.getoption("--profile")
    if path:
        config.pluginmanager.register(Profile(os.path.abspath(path)))


# ------------------------------------------------------------------------------------------------ tables


def lines(paths: Iterable[str]) -> list[Line]:
    """All lines of files."""
    return [msgspec.json.decode(text, type=Line) for path in paths for text in Path(path).read_bytes().splitlines()]


def table(rows: Iterable[Line], most: int = 40) -> str:
    """Markdown: all tests, phases, the files and the tests that take most."""
    rows = list(rows)
    by_file: defaultdict[str, list[Line]] = defaultdict(list)
    for row in rows:
        by_file[row.name.partition("::")[0]].append(row)
    files = sorted(by_file.items(), key=lambda item: -_cpu(item[1]))
    columns = ("tests", "failed", "CPU s", "of it set-up", "wall s", "of it set-up", "processes", "forked", "compiled")
    text = [f"| what | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    text += [_row("all", rows), *(_row(name, group) for name, group in files[:most]), ""]
    text += ["| test | CPU s | wall s | starts |", "|---|---:|---:|---|"]
    for row in sorted(rows, key=lambda row: -sum(row.cpu.values()))[:most]:
        starts = ", ".join(f"{count} {kind}" for kind, count in row.starts.items())
        text.append(f"| {row.name} | {sum(row.cpu.values()):.1f} | {sum(row.wall.values()):.1f} | {starts} |")
    return "\n".join(text) + "\n"


def _row(name: str, rows: list[Line]) -> str:
    starts: Counter[str] = Counter()
    for row in rows:
        starts.update(row.starts)
    failed = sum(row.outcome == "failed" for row in rows)
    set_up = [sum(row.cpu.get("setup", 0.0) for row in rows), sum(row.wall.get("setup", 0.0) for row in rows)]
    return (
        f"| {name} | {len(rows)} | {failed} | {_cpu(rows):.1f} | {set_up[0]:.1f} | {_wall(rows):.1f} | {set_up[1]:.1f} "
        f"| {starts['processes']} | {starts['forked']} | {starts['compiled']} |"
    )


def _cpu(rows: list[Line]) -> float:
    return sum(sum(row.cpu.values()) for row in rows)


def _wall(rows: list[Line]) -> float:
    return sum(sum(row.wall.values()) for row in rows)


if __name__ == "__main__":
    sys.stdout.write(table(lines(sys.argv[1:])))
