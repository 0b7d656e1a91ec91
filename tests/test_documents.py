"""Documents: files that they name are there, and what they show is in the language."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pytrace.core.builtins import BUILTINS
from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.syntax import parser

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "tests/cases/README.md"]

LINK = re.compile(r"\]\((?!https?:|#)([\w./-]+\.[\w]+|[\w./-]+/)(?:#[^)]*)?\)")
NAMED = re.compile(r"`((?:docs|scripts)/[\w./-]+?)`")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_are_there(path: Path) -> None:
    text = path.read_text()
    missing = [name for name in LINK.findall(text) if not (path.parent / name).exists()]
    missing += [name for name in NAMED.findall(text) if not (ROOT / name).exists()]
    assert not missing


def test_the_readme_compares_with_the_current_bpftrace() -> None:
    """Figures beside older versions stand in docs/performance.md, with how they were measured."""
    assert "0.17" not in (ROOT / "README.md").read_text()


def test_builtins_that_bpftrace_lacks_are_differences() -> None:
    """A new builtin that gives way to the script's own names is one of pytrace's own."""
    text = (ROOT / "docs" / "differences.md").read_text()
    own = [row.name for row in BUILTINS if row.yields]
    assert not [name for name in own if not re.search(rf"`{name}(?:\(|`)", text)]


def test_nothing_tells_users_to_install_another_project() -> None:
    """``pytrace`` on PyPI is not ours: a checkout, a wheel or the packages themselves are named instead."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    stranger = re.compile(r"pip3?\s+install\s+[^`\n]*?(?<![\w./-])['\"]?pytrace(?:\[|['\"`\s]|$)", re.MULTILINE)
    texts = {name: (ROOT / name).read_text(errors="replace") for name in files if (ROOT / name).is_file()}
    assert not {name: match[0] for name, text in texts.items() if (match := stranger.search(text))}


ALL = [*DOCUMENTS, *sorted((ROOT / "docs").glob("tools/*.md")), ROOT / "CHANGELOG.md"]
PROGRAM = re.compile(r"(?<![\w-])-e\s+(?:'(?P<quoted>[^']+)'|\"(?P<double>[^\"]+)\")")
STATEMENT = re.compile(r"`(?P<text>(?:row|print|printf|hist|lhist|tseries)\([^`]*\))`")
SHORTENED = re.compile(r"…|\.\.\.|\[, |^PROGRAM$|const int ")
"""What a document leaves out, names, or marks as optional."""


def syntax_errors(text: str) -> str:
    """The messages about a program."""
    diagnostics = Diagnostics()
    parser.parse(Source("document", text), diagnostics)
    return render_all(diagnostics.errors)


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_programs_are_in_the_language(path: Path) -> None:
    text = path.read_text()
    programs = [match["quoted"] or match["double"] for match in PROGRAM.finditer(text)]
    programs += [f"begin {{ {match['text']}; }}" for match in STATEMENT.finditer(text)]
    whole = [program for program in programs if not SHORTENED.search(program)]
    wrong = {program: errors for program in whole if (errors := syntax_errors(program))}
    assert not wrong
