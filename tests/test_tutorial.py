"""Runs the commands of pages in order and compares what they print with what the pages show.

These are docs/start/first-hour.md, docs/start/recipes.md and the guides. Numbers, widths of columns, stack frames and
buckets of histograms differ from machine to machine: a line of the page must occur in the output with other numbers,
where the page shows a frame or a bucket there must be one. ``file NAME`` blocks are files in the folder in which the
commands run; commands of a compiler prepare those after them. A comment ``needs: FEATURE`` skips a command where the
kernel, or this machine, lacks that.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.expect import INTERRUPTED
from tests.support.leaks import Watch
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.server import Server

DOCS = Path(__file__).resolve().parent.parent / "docs"
FIRST_HOUR = "start/first-hour.md"
PAGES = (FIRST_HOUR, "start/recipes.md", *(f"guides/{path.name}" for path in sorted((DOCS / "guides").glob("*.md"))))
_BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>\w+) -->\n)?^```(?P<kind>sh|output|file \S+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_TOOLS = {"c++", "cc", "rustc"}
"""Commands that prepare others, and names of ``needs`` that mean a command."""


@dataclass
class Step:
    """One command of a page, the lines that the page shows after it, and the files it may use.

    Attributes:
        prepare: commands of compilers that stand above it.
    """

    page: str
    line: int
    needs: str
    command: str
    files: dict[str, str]
    prepare: tuple[str, ...] = ()
    output: list[str] = field(default_factory=list)

    @property
    def argv(self) -> tuple[str, ...]:
        words = shlex.split(self.command)
        assert words[0] == "pytrace"
        return tuple(words[1:])


def steps(page: str = FIRST_HOUR) -> list[Step]:
    text = (DOCS / page).read_text()
    found: list[Step] = []
    files: dict[str, str] = {}
    prepare: dict[str, str] = {}
    for match in _BLOCK.finditer(text):
        kind = match["kind"]
        if kind == "sh" and match["text"].split()[0] in _TOOLS:
            prepare[match["text"]] = match["needs"] or ""
        elif kind == "sh":
            line = text[: match.start()].count("\n") + 1
            needs = match["needs"] or ""
            before = tuple(command for command, tool in prepare.items() if tool in ("", needs))
            found.append(Step(page, line, needs, match["text"], dict(files), before))
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
    # Folders, processes and error texts of this machine stand for those of the page.
    line = re.sub(r"@/\S+/(\w+\.\w+:)", r"@/\1", line)
    return re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?", "0", line)).strip()


@pytest.mark.kernel
@pytest.mark.parametrize(
    "step", [step for page in PAGES for step in steps(page)], ids=lambda step: f"{Path(step.page).stem}-{step.line}"
)
def test_step(step: Step, server: Server, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    if step.needs in _TOOLS:
        if shutil.which(step.needs) is None:
            pytest.skip(f"there is no {step.needs}")
    elif step.needs:
        need(step.needs)
    for name, text in step.files.items():
        (tmp_path / name).write_text(text)
    for command in step.prepare:
        subprocess.run(shlex.split(command), cwd=tmp_path, check=True, timeout=patience(120))
    watch = Watch()
    environment = {"XDG_CACHE_HOME": str(tmp_path_factory.getbasetemp() / "cache"), "LC_ALL": "C"}
    result = server.run(step.argv, cwd=tmp_path, timeout=120, environment=environment)
    assert result.status == 0, result
    said = INTERRUPTED.sub("", result.stderr)
    assert not re.search(r"^(?:ERROR|WARNING|BUG|NOTE|Lost)\b", said, re.MULTILINE), result
    printed = {shape(line) for line in result.stdout.splitlines()}
    missing = [line for line in step.output if line != "…" and shape(line) not in printed]
    assert not missing, result
    assert not watch.leaked()


def test_the_flame_graph_is_written(server: Server, tmp_path: Path) -> None:
    (step,) = (step for step in steps() if "busy.svg" in step.command)
    assert server.run(step.argv, cwd=tmp_path, timeout=120).status == 0
    text = (tmp_path / "busy.svg").read_text()
    assert text.startswith("<svg") or "<svg" in text[:200]
    assert "bash" in text


def test_there_are_twelve_steps_and_twenty_recipes() -> None:
    for page, heading, number in ((FIRST_HOUR, "##", 12), ("start/recipes.md", "###", 20)):
        titles = re.findall(rf"^{heading} (\d+)\. ", (DOCS / page).read_text(), re.MULTILINE)
        assert [int(title) for title in titles] == list(range(1, number + 1))
