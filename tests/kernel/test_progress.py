"""Lines of progress of whole runs at a terminal."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.programs import build
from tests.support.terminals import on_terminal

CLEAR = "\r\x1b[K"


def command(*words: str) -> str:
    return f"import sys; sys.argv = {['pytrace', *words]!r}\nfrom pytrace.cli.main import command\ncommand()\n"


def test_steps_of_a_run(tmp_path: Path) -> None:
    program, saved, report = build() / "calls", tmp_path / "x.pts", tmp_path / "x.folded"
    script = ["-e", f'uprobe:{program}:main {{ @[ustack] = count(); printf("hit\\n"); }}', "-c", str(program)]
    text, status = on_terminal(command("--no-cache", "--save", str(saved), *script))
    assert status == 0, text
    steps = {re.sub(r"( \(|:).*", "", line.rpartition("\r")[2]) for line in text.split("\x1b[K")}
    ending = "resolving symbols and writing what was traced"
    assert {"compiling", "loading programs into the kernel", "attaching probes", ending} <= steps
    lines = [line.rpartition("\x1b[K")[2].rstrip("\r") for line in text.split("\n")]
    assert {"hit", "Attached 1 probe"} <= set(lines)
    assert not any("(0 s)" in line for line in lines), "no line stays"
    quiet, _ = on_terminal(command("-q", "--no-cache", *script))
    assert "(0 s)" not in quiet
    shown, status = on_terminal(command("show", str(saved), "-o", str(report)))
    assert (status, "main" in report.read_text()) == (0, True)
    assert shown == "" or shown.endswith(CLEAR)
