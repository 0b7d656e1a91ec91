"""Signals at any moment of a run: from Python's first statement of ours to the last, and twice."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from pytrace.runtime.session.signals import TOGETHER
from tests.support.patience import patience
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).resolve().parent.parent.parent
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

AT_CALL = """
import os, signal, sys
from pytrace.cli.entry import command

number, report, orderly = int(sys.argv[1]), sys.argv[3], sys.argv[4] == "orderly"
wanted = {int(word) for word in sys.argv[2].split(",")}
if orderly:
    from pytrace.runtime.session import signals

    signals.TOGETHER = 0.0
del sys.argv[1:5]
calls = 0
told = open(report, "w")  # a run opens no other file once it is attached

def look(_frame, event, _argument):
    global calls
    if event not in ("call", "c_return"):
        return  # Python handles signals where a function begins, and after calls of C
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler or (orderly and not callable(handler)):
        return  # Python's own, until the command has begun
    calls += 1
    if calls in wanted:
        os.kill(os.getpid(), number)

leave = os._exit

def tell(status):
    sys.setprofile(None)
    told.write(str(calls))
    told.flush()
    leave(status)

os._exit = tell
# It is ignored where tests run in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.setprofile(look)
command()
"""
"""Runs pytrace and sends a signal to it at the calls of these numbers, and tells how many calls there are; *orderly*:
only calls of the part in which the first signal asks for the end, and another is the second one at once."""

SCRIPT = 'begin { printf("b\\n"); @ = 1; } interval:ms:20 { exit(); } end { printf("e\\n"); }'
WHOLE = "b\ne\n\n\n@: 1\n"
POINTS = 4


class Run:
    """A run of SCRIPT with a child that would sleep for a day."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._child = f"86400.{os.getpid()}"
        self._report = folder / "calls"
        self._words = [*options, "-e", SCRIPT, "-c", f"sleep {self._child}"]
        self._environment = {**os.environ, "XDG_CACHE_HOME": str(folder), "PYTHONPATH": str(ROOT)}

    def __call__(self, number: int, *calls: int, part: str = "all") -> subprocess.CompletedProcess[str]:
        at = ",".join(map(str, calls))
        words = [sys.executable, "-c", AT_CALL, str(number), at, str(self._report), part, *self._words]
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=patience(30), check=False, env=self._environment
        )
        until(lambda: not self._children())
        return done

    def _children(self) -> list[str]:
        wanted = f"sleep\0{self._child}\0"
        return [path for path in os.listdir("/proc") if path.isdigit() and wanted in _command_line(path)]

    @property
    def calls(self) -> int:
        return int(self._report.read_text())


def _command_line(process: str) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def without_a_signal(folder: Path, *options: str, part: str = "all") -> tuple[Run, int]:
    """A run with a cache that is full, and the calls that it makes."""
    run = Run(folder, *options)
    for _ in range(2):
        assert run(ENDING[0], 0, part=part).stdout == WHOLE
    return run, run.calls


@pytest.fixture(scope="module", params=[(), ("--no-cache",)], ids=["cached", "compiled"])
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, int]:
    """All calls of a run."""
    return without_a_signal(tmp_path_factory.mktemp("signals"), *request.param)


@pytest.fixture(scope="module")
def counted_orderly(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, int]:
    """Calls of the part in which a first signal asks for the end."""
    return without_a_signal(tmp_path_factory.mktemp("signals"), part="orderly")


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("points", [POINTS, pytest.param(16 * POINTS, marks=pytest.mark.soak)])
def test_a_signal_at_any_call_ends_the_run(number: signal.Signals, points: int, counted: tuple[Run, int]) -> None:
    run, calls = counted
    # Other calls for each signal.
    for index in range(points):
        done = run(number, 1 + (calls * (3 * index + ENDING.index(number))) // (3 * points))
        assert not re.search("Traceback|ignored|BUG", done.stderr), done.stderr
        assert done.returncode in (0, -number), done
        assert done.stdout == (WHOLE if done.returncode == 0 else ""), done


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("points", [POINTS, pytest.param(16 * POINTS, marks=pytest.mark.soak)])
def test_a_second_signal_at_any_call_breaks_off(
    number: signal.Signals, points: int, counted_orderly: tuple[Run, int]
) -> None:
    """The first one comes when the run begins, attaches, waits or ends."""
    run, calls = counted_orderly
    for index in range(points):
        second = 2 + (calls * (3 * index + ENDING.index(number))) // (3 * points)
        done = run(number, 1 + second * (index % POINTS) // POINTS, second, part="orderly")
        assert not re.search("Traceback|ignored|BUG", done.stderr), done.stderr
        assert done.returncode in (0, -number, 128 + number), done


@pytest.mark.parametrize("number", ENDING)
def test_files_that_cannot_be_opened_yet(number: signal.Signals, tmp_path: Path) -> None:
    """Nobody has the other end of the FIFO."""
    os.mkfifo(tmp_path / "fifo")
    script = "begin { exit(); }"
    for words in (["-o", "fifo", "-e", script], ["fifo"], ["--emit-elf", "fifo", "-e", script], ["--fmt", "fifo"]):
        tracer = _start(tmp_path, *words)
        until(partial(_waits_for_a_fifo, tracer.pid))
        assert _end(tracer, number) == (-number, "", "")


def _waits_for_a_fifo(pid: int) -> bool:
    """By the kernel function in which it sleeps."""
    return Path(f"/proc/{pid}/wchan").read_text() == "wait_for_partner"


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("step", ["interval:ms:1", "end"])
@pytest.mark.parametrize("action", ['cat("fifo");', 'system("sleep 86401");'])
def test_what_a_probe_waits_for_ends_with_the_run(
    number: signal.Signals, step: str, action: str, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    script = f'begin {{ @ = 1; if (strncmp("{step}", "end", 4) == 0) {{ exit(); }} }} {step} {{ {action} }}'
    script += ' end { printf("end\\n"); }'
    tracer = _start(tmp_path, "--unsafe", "-e", script)
    until(lambda: _waits_in_poll(tracer.pid))
    status, out, err = _end(tracer, number)
    assert status == 0, err
    assert out.endswith("end\n\n\n@: 1\n")
    assert "because of the interrupt" in err


def _waits_in_poll(pid: int) -> bool:
    """Where the tracer polls (7, on x86-64) with a limit of 50 ms."""
    words = Path(f"/proc/{pid}/syscall").read_text().split()
    return len(words) > 3 and words[0] == "7" and int(words[3], 16) == 50


def test_two_signals_at_once_are_one_and_a_later_one_breaks_off(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    tracer = _start(tmp_path, "-e", 'begin { @ = 1; } interval:s:86400 { } end { printf("end\\n"); }')
    assert tracer.stderr.readline() == b"Attached 3 probes\n"
    # While it stands still both come, however long the sender is kept from its second one.
    tracer.send_signal(signal.SIGSTOP)
    tracer.send_signal(signal.SIGINT)
    tracer.send_signal(signal.SIGTERM)
    assert _end(tracer, signal.SIGCONT) == (0, "end\n\n\n@: 1\n", "")
    tracer = _start(tmp_path, "-e", 'begin { @ = 1; } interval:s:86400 { } end { printf("end\\n"); cat("fifo"); }')
    assert tracer.stderr.readline() == b"Attached 3 probes\n"
    tracer.send_signal(signal.SIGTERM)
    assert tracer.stdout.readline() == b"end\n"
    time.sleep(2 * TOGETHER)
    status, out, _ = _end(tracer, signal.SIGTERM)
    assert (status, out) == (128 + signal.SIGTERM, "")


class _Tracer(subprocess.Popen[bytes]):
    """Both streams are pipes."""

    stdout: io.BufferedReader  # type: ignore[assignment]
    stderr: io.BufferedReader  # type: ignore[assignment]


def _start(folder: Path, *words: str) -> _Tracer:
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from pytrace.cli.entry import command; command()"
    )
    return _Tracer(
        [sys.executable, "-c", code, *words], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def _end(tracer: _Tracer, number: signal.Signals) -> tuple[int, str, str]:
    tracer.send_signal(number)
    try:
        out, err = tracer.communicate(timeout=patience(20))
    finally:
        tracer.kill()
    return tracer.returncode, out.decode(), err.decode()
