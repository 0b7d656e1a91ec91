"""Progress on a terminal: a line that appears late, goes away, and is never anywhere else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from pytrace.base import progress
from pytrace.base.progress import Step
from tests.support.terminals import FAST, on_terminal

CLEAR = "\r\x1b[K"

def test_texts() -> None:
    step = Step("attaching probes", 5000, "")
    step.done = 1234
    assert step.shown(79) == "attaching probes: 1,234 of 5,000 (0 s)"
    assert Step("compiling", 0, "").shown(79) == "compiling (0 s)"
    download = Step("downloading", 0, "MB")
    download.done = 5 << 20
    assert download.shown(79) == "downloading: 5 MB (0 s)"
    reading = Step("reading debug information of /usr/lib/\x1b[31m/a/long/path/libc.so", 100, "")
    assert reading.shown(50) == "reading debug ...long/path/libc.so: 0 of 100 (0 s)"
    assert {len(reading.shown(columns)) for columns in (50, 30)} == {50, 30}
    assert reading.shown(30).endswith(": 0 of 100 (0 s)")
    assert len(reading.shown(12)) == 12


def test_a_line_that_goes_away() -> None:
    text, status = on_terminal(
        "import time\nprogress.show_on(2)\n"
        "with progress.step('counting', 3) as step:\n"
        "    step.done = 2; time.sleep(0.1)\n"
        "    with progress.detail('a\\n\\x1b[2Jpart of it ' + 'x' * 200): time.sleep(0.1)\n"
        "    time.sleep(0.05)\n"
    )  # fmt: skip
    assert status == 0
    lines = text.split("\x1b[K")
    assert "\rcounting: 2 of 3 (0 s)" in lines
    part = next(line for line in lines if "part of it" in line)
    assert part.startswith("\ra \\x1b[2Jpart"), "what it names is data"
    assert len(part) == 80, "it never wraps"
    assert text.endswith(CLEAR)


def test_messages_stand_on_lines_of_their_own() -> None:
    text, _ = on_terminal(
        "import sys, time\nfrom pytrace.base.terminal import prepare_streams\n"
        "prepare_streams(); progress.show_on(2)\n"
        "with progress.step('counting'):\n"
        "    time.sleep(0.1); sys.stderr.write('a message\\n'); time.sleep(0.1)\n"
        "    sys.stderr.write('half '); time.sleep(0.1); sys.stderr.write('a line\\n')\n"
    )  # fmt: skip
    assert f"{CLEAR}a message\r\n" in text
    assert "half a line\r\n" in text, "no line in the middle of another"


def test_steps_that_are_fast_show_nothing() -> None:
    text, _ = on_terminal("progress.DELAY = 60.0\nprogress.show_on(2)\nwith progress.step('counting'): pass\n")
    assert text == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(number: int) -> None:
    """The signal kills the process as it would without the line, also while it is in C."""
    sent: list[int] = []

    def interrupt(child: int, terminal: int, text: str) -> None:
        if "counting" in text and not sent:
            sent.append(number)
            if number == signal.SIGINT:
                os.write(terminal, b"\x03")
            else:
                os.kill(child, number)

    text, status = on_terminal(
        "import ctypes, signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\nprogress.show_on(2)\n"
        "with progress.step('counting'): ctypes.PyDLL(None).usleep(1); ctypes.CDLL(None).sleep(600)\n",
        interrupt,
    )
    assert os.WTERMSIG(status) == number
    assert text.endswith(CLEAR)


def test_signals_that_are_handled_stay_so() -> None:
    def interrupt(_child: int, terminal: int, text: str) -> None:
        if text.endswith("(0 s)\x1b[K"):
            os.write(terminal, b"\x03")

    text, status = on_terminal(
        "import time\nprogress.show_on(2)\n"
        "try:\n    with progress.step('counting'): time.sleep(600)\n"
        "except KeyboardInterrupt: print('handled')\n",
        interrupt,
    )
    assert status == 0
    assert text.endswith(f"{CLEAR}handled\r\n")


def test_blocked_signals_are_as_before() -> None:
    text, _ = on_terminal(
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\nprogress.show_on(2)\n"
        "with progress.step('counting'): pass\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.sigpending())\n"
    )
    # On a busy machine the step takes long enough to be shown, and is taken back.
    assert text.rpartition("\x1b[K")[2] == "set() set()\r\n"


def test_nothing_in_pipes_and_on_dumb_terminals() -> None:
    program = FAST + (
        "import os, time\nprogress.show_on(2)\nwith progress.step('counting'): time.sleep(0.05)\n"
        "os.environ['TERM'] = 'dumb'; progress.show_on(os.openpty()[1])\n"
        "with progress.step('counting'): time.sleep(0.05)\n"
        "print(progress._LINE.terminal)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("-1\n", "")


def test_a_part_of_nothing_is_nothing() -> None:
    with progress.detail("reading"):
        assert not progress._LINE.busy


def test_a_step_ends_with_those_that_it_began() -> None:
    text, status = on_terminal(
        "import time\nprogress.show_on(2)\n"
        "with progress.step('outer'):\n    left = progress.step('inner'); left.__enter__(); time.sleep(0.05)\n"
        "print(progress._LINE.busy)\nleft.__exit__(None, None, None)\n"
    )
    assert status == 0
    assert text.endswith(f"{CLEAR}False\r\n")


def test_without_threads() -> None:
    text, status = on_terminal(
        "import threading\nprogress.show_on(2)\n"
        "def start(self): raise RuntimeError('no more')\nthreading.Thread.start = start\n"
        "with progress.step('counting'): print('done')\n"
    )
    assert (text, status) == ("done\r\n", 0)
