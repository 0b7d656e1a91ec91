"""Runs the commands of docs/reference/probes.md and calls.md; ``needs: FEATURE`` before one skips it without that."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.leaks import Watch
from tests.support.machine import need
from tests.support.server import Server

_FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
PAGES = (_FOLDER / "probes.md", _FOLDER / "calls.md")
_BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>\w+) -->\n)?^```sh\n(?P<command>.*?)^```\n"
    r"(?:```output contains\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Command:
    """One command of the page, and lines that its output must contain."""

    page: str
    line: int
    needs: str
    argv: tuple[str, ...]
    output: tuple[str, ...]


def commands() -> list[Command]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in _BLOCK.finditer(text):
            words = shlex.split(match["command"])
            assert words[0] == "pytrace"
            line = text[: match.start()].count("\n") + 1
            output = tuple((match["output"] or "").splitlines())
            found.append(Command(page.stem, line, match["needs"] or "", tuple(words[1:]), output))
    return found


@pytest.mark.kernel
@pytest.mark.parametrize("command", commands(), ids=lambda command: f"{command.page}-line-{command.line}")
def test_command(command: Command, server: Server, programs: Path, tmp_path: Path) -> None:
    if command.needs:
        need(command.needs)
    watch = Watch()
    result = server.run(
        command.argv, cwd=programs, timeout=200, environment={"XDG_CACHE_HOME": str(tmp_path / ".cache")}
    )
    assert result.status == 0, result
    assert "BUG" not in result.stderr
    for line in command.output:
        assert line in result.stdout, result
    assert not watch.leaked()


def test_every_kind_of_probe_is_described() -> None:
    from pytrace.core.probe_kinds import PROBE_KINDS

    text = PAGES[0].read_text()
    for kind in PROBE_KINDS:
        assert f"`{kind.name}`" in text
        assert all(f"`{alias}`" in text for alias in kind.aliases)
