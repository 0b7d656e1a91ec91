"""Runs the commands of docs/start/first-hour.md in order and compares what they print with what the page shows.

Numbers, widths of columns, stack frames and buckets of histograms differ from machine to machine: a line of the page
must occur in the output with other numbers, where the page shows a frame or a bucket there must be one.  ``file NAME``
blocks are files in the folder in which the commands run, and a comment ``needs: FEATURE`` skips a command where the
kernel lacks that.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.leaks import Watch
from tests.support.machine import need
from tests.support.server import Server

PAGE = Path(__file__).resolve().parent.parent / "docs" / "start" / "first-hour.md"
_BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>\w+) -->\n)?^```(?P<kind>sh|output|file \S+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Step:
    """One command of the page, the lines that the page shows after it, and the files it may use."""

    line: int
    needs: str
    command: str
    files: dict[str, str]
    output: list[str] = field(default_factory=list)

    @property
    def argv(self) -> tuple[str, ...]:
        words = shlex.split(self.command)
        assert words[0] == "pytrace"
        return tuple(words[1:])


def steps() -> list[Step]:
    text = PAGE.read_text()
    found: list[Step] = []
    files: dict[str, str] = {}
    for match in _BLOCK.finditer(text):
        kind = match["kind"]
        if kind == "sh":
            line = text[: match.start()].count("\n") + 1
            found.append(Step(line, match["needs"] or "", match["text"], dict(files)))
        elif kind == "output":
            found[-1].output = match["text"].splitlines()
        else:
            files[kind.split()[1]] = match["text"]
    return found


def shape(line: str) -> str:
    """What of a line is the same on every machine."""
    if re.match(r" {8}\S", line):
        return "frame"
    if re.match(r"\[\S+(, \S+)?\s+\d+ \|[@ ]{52}\|$", line):
        return "bucket"
    return re.sub(r"\s+", " ", re.sub(r"\d+", "0", line)).strip()


@pytest.mark.kernel
@pytest.mark.parametrize("step", steps(), ids=lambda step: f"line-{step.line}")
def test_step(step: Step, server: Server, tmp_path: Path) -> None:
    if step.needs:
        need(step.needs)
    for name, text in step.files.items():
        (tmp_path / name).write_text(text)
    watch = Watch()
    environment = {"XDG_CACHE_HOME": str(tmp_path / ".cache"), "LC_ALL": "C"}
    result = server.run(step.argv, cwd=tmp_path, timeout=120, environment=environment)
    assert (result.status, result.stderr.replace("Attached 1 probe\n", "")) == (0, ""), result
    printed = {shape(line) for line in result.stdout.splitlines()}
    missing = [line for line in step.output if line != "…" and shape(line) not in printed]
    assert not missing, result
    assert not watch.leaked()


def test_the_flame_graph_is_written(server: Server, tmp_path: Path) -> None:
    (step,) = (step for step in steps() if "busy.folded" in step.command)
    assert server.run(step.argv, cwd=tmp_path, timeout=120).status == 0
    lines = (tmp_path / "busy.folded").read_text().splitlines()
    assert all(re.fullmatch(r"[^;]+(;[^;]+)+ \d+", line) for line in lines)
    assert any(line.startswith("bash;") for line in lines)


def test_there_are_twelve() -> None:
    titles = re.findall(r"^## (\d+)\. ", PAGE.read_text(), re.MULTILINE)
    assert [int(number) for number in titles] == list(range(1, 13))
