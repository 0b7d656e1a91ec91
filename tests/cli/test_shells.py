"""The completions that shells load, in real shells on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.patience import patience

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "share" / "completions"

SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        f"PS1='READY> '; bind 'set bell-style none'; source {FOLDER}/pytrace.bash\n",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        f"PS1='READY> '\nfpath=({FOLDER} $fpath); autoload -Uz compinit; compinit -D -u\n",
    ),
}
LINES = [
    ("pytrace loa", "pytrace loads"),
    ("pytrace runq", "runqslower"),
    ("pytrace loads --dur", "--duration"),
    ("pytrace -l rawtracepoint:sched_swi", "rawtracepoint:sched_switch"),
    ("pytrace -e 'rawtracepoint:sched_swi", "rawtracepoint:sched_switch"),
    ("pytrace -e 'begin { strft", "strftime("),
    ("pytrace -e 'rawtracepoint:sched_switch /strft", "/strftime("),
    ("pytrace -c slee", "sleep"),
    ("pytrace -c 'cat /etc/pass", "/etc/passwd"),
]


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of a shell whose home is *folder* and whose ``pytrace`` is this one."""
    folder.mkdir()
    launcher = folder / "pytrace"
    launcher.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m pytrace "$@"\n')
    launcher.chmod(0o755)
    return {
        "PATH": f"{folder}:/usr/bin:/bin:/usr/sbin:/sbin", "TERM": "dumb", "HOME": str(folder), "LANG": "C.UTF-8",
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", f"{folder}/cache"),
    }  # fmt: skip


@contextmanager
def shell(command: list[str], folder: Path) -> Iterator[int]:
    """An interactive shell; the terminal's other end."""
    environment = surroundings(folder)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=folder
    )
    os.close(theirs)
    try:
        yield ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def wait_for(terminal: int, text: str, seen: str = "") -> str:
    """Read until *text* was written."""
    end = time.monotonic() + patience(30)
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{text!r} was not written; there was {seen!r}"
        seen += os.read(terminal, 65536).decode(errors="replace")
    return seen


@pytest.mark.parametrize("name", ["bash", pytest.param("zsh", marks=pytest.mark.needs("zsh"))])
def test_a_tab_completes(name: str, tmp_path: Path) -> None:
    command, setup = SHELLS[name]
    with shell(command, tmp_path / "home") as terminal:
        os.write(terminal, setup.encode())
        for number, (typed, completed) in enumerate(LINES):
            # The echo of the command has the word too, so the prompt is made once more.
            os.write(terminal, f"echo SET''TLED{number}\n".encode())
            rest = wait_for(terminal, f"SETTLED{number}").rpartition(f"SETTLED{number}")[2]
            wait_for(terminal, "READY> ", rest)
            os.write(terminal, typed.encode() + b"\t\t")
            wait_for(terminal, completed)
            os.write(terminal, b"\x15")


def test_typing_goes_on_inside_quotes(tmp_path: Path) -> None:
    command, setup = SHELLS["bash"]
    with shell(command, tmp_path / "home") as terminal:
        os.write(terminal, setup.encode() + b"echo SET''TLED\n")
        wait_for(terminal, "SETTLED")
        os.write(terminal, b"pytrace -e 'begin { strft\t")
        wait_for(terminal, "strftime(")
        os.write(terminal, b"NSECS)")
        # The terminal may have moved the line's end anew; nothing stands between.
        assert "'" not in wait_for(terminal, "NSECS)")


@pytest.mark.needs("fish")
def test_fish_gets_candidates(tmp_path: Path) -> None:
    script = [f"source {FOLDER}/pytrace.fish"]
    for typed, _ in LINES:
        quoted = typed.replace("\\", "\\\\").replace('"', '\\"')
        script.append(f'complete -C "{quoted}"; echo NEXT')
    done = subprocess.run(
        ["fish", "--no-config", "-c", "\n".join(script)],
        env=surroundings(tmp_path / "home"), cwd=tmp_path, capture_output=True, text=True, timeout=patience(60),
        check=True,
    )  # fmt: skip
    for (typed, completed), candidates in zip(LINES, done.stdout.split("NEXT\n")[:-1], strict=True):
        assert completed.removeprefix("pytrace ") in candidates, (typed, done)
