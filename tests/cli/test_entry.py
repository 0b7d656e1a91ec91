"""pytrace.cli.entry: Ctrl-C from the first statement on, and a start without memory."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

WATCH = """
import signal
from pytrace.cli import main
main.command = lambda *_: print(signal.getsignal(signal.SIGINT).name)
"""


def run(text: str) -> subprocess.CompletedProcess[str]:
    """Run Python code, and then the command line."""
    code = f"{text}\nfrom pytrace.cli.entry import command\ncommand()\n"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("before", "action"),
    [("", "SIG_DFL"), ("signal.signal(signal.SIGINT, signal.SIG_IGN)", "SIG_IGN")],
    ids=["default", "ignored"],
)
def test_an_interrupt_ends_the_process_unless_it_was_ignored(before: str, action: str) -> None:
    done = run(f"{WATCH}\n{before}")
    assert done.stdout == f"{action}\n", done.stderr


def test_no_memory_at_all() -> None:
    done = run("from pytrace.cli import main\ndef command(*_):\n    raise MemoryError\nmain.command = command")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "ERROR: out of memory\n")


@pytest.mark.parametrize("words", [("-m", "pytrace"), ("-c", "from pytrace.cli.entry import command; command()")])
def test_ways_to_start_it(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, *words, "--version"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("pytrace ")


def test_the_package_installs_the_command() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"] == {
        "pytrace": "pytrace.cli.entry:command"
    }
