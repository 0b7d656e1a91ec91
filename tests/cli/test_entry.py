"""pytrace.cli.entry: what signals do from the first statement on, and a start without memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

WATCH = """
import signal
from pytrace.cli import main
main.command = lambda *_: print(signal.getsignal(signal.SIGINT).name, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
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
    assert done.stdout == f"{action} set()\n", done.stderr


def test_an_interrupt_that_the_launcher_held_back_is_let_through() -> None:
    done = run(f"{WATCH}\nsignal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))")
    assert done.stdout == "SIG_DFL set()\n", done.stderr


def test_an_interrupt_that_came_before_ends_it_without_a_traceback() -> None:
    done = run(
        f"{WATCH}\nimport os\nsignal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))\n"
        "os.kill(os.getpid(), signal.SIGINT)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (-2, "", "")


def test_no_memory_at_all() -> None:
    done = run("from pytrace.cli import main\ndef command(*_):\n    raise MemoryError\nmain.command = command")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "ERROR: out of memory\n")
