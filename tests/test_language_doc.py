"""Runs every example of docs/reference/language.md and docs/start/from-bpftrace.md as the command would.

An example is a fenced block whose first word is ``pytrace``; further words are the script's parameters.  A following
``output`` block is what it prints (``output ordered``: lines that occur in this order), an ``error`` block has lines
that its messages contain; an example with neither is only compiled.  ``file NAME`` blocks are files of the next
example.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support import expect
from tests.support.cases import Case, Check
from tests.support.leaks import Watch
from tests.support.server import Server

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("reference/language.md", "start/from-bpftrace.md")
_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FORMS = {"output": ("stdout", "exact"), "output ordered": ("stdout", "ordered"), "error": ("stderr", "contains")}


@dataclass
class Example:
    """One script of the page and what it must do."""

    page: str
    line: int
    script: str
    parameters: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)
    check: Check | None = None

    @property
    def case(self) -> Case:
        """The example as a case of the bench."""
        argv = ("-q", "-e", self.script, *self.parameters)
        failing = self.check is not None and self.check.stream == "stderr"
        checks = (self.check,) if self.check is not None else ()
        return Case(f"line {self.line}", self.page, command=argv, exit=1 if failing else 0, checks=checks)


def examples(page: str) -> list[Example]:
    """The examples of one page, in order."""
    text = (ROOT / "docs" / page).read_text()
    found: list[Example] = []
    files: dict[str, str] = {}
    for match in _FENCE.finditer(text):
        words = match["info"].split()
        line = text[: match.start()].count("\n") + 1
        if words[:1] == ["file"]:
            files[words[1]] = match["text"]
        elif words[:1] == ["pytrace"]:
            found.append(Example(page, line, match["text"], tuple(shlex.split(match["info"])[1:]), files))
            files = {}
        elif match["info"] in _FORMS:
            stream, form = _FORMS[match["info"]]
            assert found, f"{page}:{line}: output without a script"
            found[-1].check = Check(stream, form, match["text"])
        elif words:
            raise AssertionError(f"{page}:{line}: unknown kind of block {match['info']!r}")
    return found


EXAMPLES = [example for page in PAGES for example in examples(page)]


@pytest.mark.kernel
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.page}-{example.line}")
def test_example(example: Example, server: Server, tmp_path: Path) -> None:
    for name, text in example.files.items():
        (tmp_path / name).write_text(text)
    case = example.case
    assert case.command is not None
    argv = case.command if example.check is not None else ("--dry-run", *case.command)
    watch = Watch()
    result = server.run(argv, cwd=tmp_path, environment={"XDG_CACHE_HOME": str(tmp_path / ".cache")})
    found = [*expect.problems(case, result), *(f"left in the kernel: {item}" for item in watch.leaked())]
    if found:
        pytest.fail("\n".join([*found, f"docs/{example.page}:{example.line}", str(result)]), pytrace=False)


def test_pages_have_examples() -> None:
    for page in PAGES:
        assert len(examples(page)) > (20 if page == "reference/language.md" else 0)
