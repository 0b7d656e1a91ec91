"""Commands and processes that do not behave: they ignore signals, change their rights or program, or end too early."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kernel.test_missing_mounts import USER
from tests.kernel.test_surroundings import shell
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.running import ROOT, Tracer
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")


def alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_a_command_that_ignores_signals(tmp_path: Path) -> None:
    """It gets SIGTERM, and two seconds later SIGKILL."""
    stubborn = "import os, signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; "
    stubborn += "print(os.getpid(), flush=True); time.sleep(999)"
    script = "interval:ms:900 { @ = 1; exit(); }"
    done = shell(f'$P -q -e "$S" -c "{sys.executable} -c \'{stubborn}\'"', tmp_path, S=script)
    pid, *printed = done.stdout.split()
    assert (done.returncode, printed, done.stderr) == (0, ["@:", "1"], "")
    assert not alive(int(pid))


def test_a_command_that_forks_twice(tmp_path: Path) -> None:
    """The run ends with the command itself; what it left running is not ours to end, and is no longer traced."""
    need("syscalls")
    script = "tracepoint:syscalls:sys_enter_exit_group /pid == cpid/ { @ = count(); }"
    mark = tmp_path / "mark"
    command = f"sh -c 'setsid sh -c \"sleep 1; echo > {mark}\" & exit 0'"
    done = shell('$P -q -e "$S" -c "$C"', tmp_path, S=script, C=command)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["@:", "1"], "")
    until(mark.exists)


def test_a_command_that_executes_other_programs(tmp_path: Path) -> None:
    need("syscalls")
    script = "tracepoint:syscalls:sys_enter_exit_group /pid == cpid/ { @[comm] = count(); }"
    done = shell('$P -q -e "$S" -c "$C"', tmp_path, S=script, C="sh -c 'exec env sh -c \"exec env true\"'")
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["@[true]:", "1"], "")


@pytest.fixture
def privileged() -> Iterator[Path]:
    """A program that runs as root, whoever starts it, in a folder that all may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = Path(folder) / "privileged"
        shutil.copy("/bin/sleep", made)
        made.chmod(0o4755)
        yield made


def test_a_command_with_the_rights_of_another_user(tmp_path: Path, privileged: Path) -> None:
    """It may be ended by whom it was started: the real user is the same."""
    script = "interval:ms:300 { @ = 1; exit(); }"
    done = shell(f'{USER} $P -q -e "$S" -c "{privileged} 86403"', tmp_path, S=script)
    assert (done.returncode, done.stdout.split()) == (0, ["@:", "1"]), done
    found = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"86403" in read(path)]
    assert not found


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# ------------------------------------------------------------------------------------------------ processes of -p

EVERYTHING = (
    "uprobe:PROGRAM:add { @u = count(); } software:faults:1 { @f = count(); } "
    "profile:hz:99 { @p[ustack] = count(); } tracepoint:syscalls:sys_enter_getppid { @t = count(); }"
)


@pytest.mark.parametrize("lifetime", [0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5])
def test_a_process_that_ends_before_it_is_traced(programs: Path, tmp_path: Path, lifetime: float) -> None:
    """Whichever step finds out, it is an error of one line, or a run that ends at once."""
    need("uprobe", "perf_events", "syscalls")
    script = EVERYTHING.replace("PROGRAM", str(programs / "calls"))
    if lifetime == 0.0:
        ended = subprocess.Popen(["true"])
        ended.wait()
        done = shell(f'$P -q -e "$S" -p {ended.pid}', tmp_path, S=script)
    else:
        done = shell(f'sleep {lifetime} & $P -q -e "$S" -p $!', tmp_path, S=script)
    assert done.returncode in (0, 1)
    if done.returncode:
        assert "no process" in done.stderr.lower() or "No such process" in done.stderr
    assert "BUG" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_number_that_is_given_to_another_process() -> None:
    """The run ends with the process that had the number: a pidfd stands for it."""
    need("perf_events")
    last = Path("/proc/sys/kernel/ns_last_pid")
    if not last.exists():
        pytest.skip("this kernel has no ns_last_pid")
    first = subprocess.Popen(["sleep", "999"])
    with Tracer("-q", "-e", "software:faults:1 { @ = count(); }", "-p", str(first.pid)) as tracer:
        first.kill()
        first.wait()
        others = []
        while len(others) < 50 and (not others or others[-1].pid != first.pid):
            last.write_text(str(first.pid - 1))
            others.append(subprocess.Popen(["sleep", "999"]))
        assert tracer.process.wait(patience(10)) == 0
        for other in others:
            other.kill()
            other.wait()


# ------------------------------------------------------------------------------------------------ the terminal


@pytest.mark.parametrize("options", [(), ("-c", "sleep 86404")])
def test_a_terminal_that_disappears(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A hang-up ends the run in order: what was traced is saved though nobody reads the output."""
    mine, other = pty.openpty()
    script = "begin { @ = count(); } interval:ms:20 { printf(\"x\\n\"); }"
    tracer = subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-m", "pytrace", "-e", script, "--save", "saved", *options],
        stdin=other, stdout=other, stderr=other, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(other)
    seen = b""
    while b"x\r\n" not in seen:
        seen += os.read(mine, 4096)
    os.close(mine)
    assert tracer.wait(patience(10)) == 0
    assert (tmp_path / "saved").stat().st_size > 100


@pytest.mark.parametrize("terminal", ["dumb", "", None])
def test_terminals_that_know_little(tmp_path: Path, terminal: str | None) -> None:
    mine, other = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "TERM"}
    environment |= {} if terminal is None else {"TERM": terminal}
    with subprocess.Popen(
        [sys.executable, "-m", "pytrace", "-q", "-e", 'begin { print("ä"); @x[1] = 2; exit(); }'],
        stdin=other, stdout=other, stderr=other, env={**environment, "PYTHONPATH": str(ROOT)}, cwd=tmp_path,
    ) as tracer:  # fmt: skip
        os.close(other)
        assert tracer.wait(patience(10)) == 0
    seen = b""
    with suppress(OSError):  # EIO: nobody has the other end
        while piece := os.read(mine, 4096):
            seen += piece
    os.close(mine)
    assert seen.decode().split() == ["ä", "@x[1]:", "2"]
