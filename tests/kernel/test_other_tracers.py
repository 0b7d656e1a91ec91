"""Several tracers on the same probes: each counts all hits, and the end of one does not disturb the others."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pytrace.runtime.binaries.user_binary import UserBinaries
from pytrace.runtime.machine import fingerprints
from tests.support.compile import compiled
from tests.support.crowd import ROUNDS as IN_A_CROWD
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.running import ROOT, Tracer
from tests.support.waiting import descendants, until

pytestmark = pytest.mark.usefixtures("no_leaks")

TRACER = (sys.executable, "-m", "pytrace")
EVENTFUL = """
__attribute__((noinline)) int doubled(int n, const char *text) { __asm__ volatile(""); return n + n; }
int main(void) { int sum = 0; for (int i = 0; i < 10; i++) sum += doubled(i, "word"); return sum == 0; }
"""
ROUNDS = 7
NAME = f"usdt{os.getpid()}"
"""A program of this name is run by this test alone."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytrace"


@pytest.fixture
def traced(programs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(programs / "usdt", tmp_path / NAME))


def script(program: Path) -> str:
    return (
        f"uprobe:{program}:pass {{ @u = count(); }} usdt:{program}:sample:guarded {{ @g = count(); }} "
        f'tracepoint:syscalls:sys_enter_exit_group /comm == "{NAME}"/ {{ @t = count(); }} '
        'begin { printf("begun\\n"); }'
    )


@contextmanager
def started(*command: str, mark: str = "") -> Iterator[subprocess.Popen[str]]:
    """Another tracer, from its line *mark* on."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tracer:
        assert tracer.stdout is not None
        try:
            while mark and mark not in (line := tracer.stdout.readline()):
                assert line, "it ended"
            yield tracer
        finally:
            with suppress(ProcessLookupError):
                for pid in descendants(tracer.pid):
                    os.kill(pid, signal.SIGKILL)


def run(program: Path) -> str:
    """Pass the probes; what the program says of the semaphore."""
    command = [program, str(ROUNDS)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=patience(30)).stdout.strip()


def counts(out: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"@(\w+): (\d+)", out)}


def test_bpftrace(traced: Path) -> None:
    if not (CACHE / "peer" / "sid" / ".ready").exists():
        pytest.skip("scripts/peer has not installed bpftrace")
    need("uprobe", "usdt", "syscalls")
    text = script(traced)
    with started(str(ROOT / "scripts" / "peer"), "-q", "-B", "line", "-e", text, mark="begun") as other:
        with Tracer("-q", "-e", text) as tracer:
            assert run(traced) == f"guarded {ROUNDS}"
            status, out, said = tracer.end()
        assert (status, said) == (0, "")
        assert counts(out) == {"u": ROUNDS, "g": ROUNDS, "t": 1}
        # pytrace is gone, the semaphore is still raised.
        assert run(traced) == f"guarded {ROUNDS}"
        os.kill(descendants(other.pid)[-1], signal.SIGINT)
        assert counts(other.communicate(timeout=patience(20))[0]) == {"u": 2 * ROUNDS, "g": 2 * ROUNDS, "t": 2}
    assert run(traced) == "guarded 0"


def test_another_pytrace_that_is_killed(traced: Path) -> None:
    need("uprobe", "usdt", "syscalls")
    with Tracer("-q", "-e", script(traced)) as tracer:
        with Tracer("-q", "-e", script(traced)) as other:
            assert run(traced) == f"guarded {ROUNDS}"
            other.process.kill()
            other.process.wait()
        assert run(traced) == f"guarded {ROUNDS}"
        status, out, said = tracer.end()
    assert (status, said, counts(out)) == (0, "", {"u": 2 * ROUNDS, "g": 2 * ROUNDS, "t": 2})
    until(lambda: run(traced) == "guarded 0")


@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
def test_perf(traced: Path, tmp_path: Path) -> None:
    """Its uprobe is one of tracefs, its tracepoint the same perf event as ours."""
    need("uprobe", "usdt", "syscalls")
    # perf looks for the name of an event in all groups, so one that a killed test left would be in the way.
    group = f"faults_{os.getpid()}"
    event = f"pass_{os.getpid()}"
    perf = ("perf", "--buildid-dir", str(tmp_path))
    subprocess.run([*perf, "probe", "-q", "-x", traced, f"{group}:{event}=pass"], check=True)
    try:
        events = f"{group}:{event},syscalls:sys_enter_exit_group"
        with Tracer("-q", "-e", script(traced)) as tracer:
            command = [*perf, "stat", "-x,", "-e", events, traced, str(ROUNDS)]
            stat = subprocess.run(command, capture_output=True, text=True, check=True, timeout=patience(20))
            assert f"guarded {ROUNDS}" in stat.stdout
            assert [line.split(",")[0] for line in stat.stderr.splitlines() if "," in line] == [str(ROUNDS), "1"]
            status, out, said = tracer.end()
        assert (status, said, counts(out)) == (0, "", {"u": ROUNDS, "g": ROUNDS, "t": 1})
    finally:
        subprocess.run([*perf, "probe", "-q", "-d", f"{group}:*"], check=True)


def define(events: Path, line: str) -> None:
    """Write to ``uprobe_events``, which cannot be sought in, as ``open()`` does to append."""
    file = os.open(events, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def test_an_event_that_another_tracer_has_defined(tmp_path: Path) -> None:
    """``perf probe`` defines such events; the kernel refuses programs of tracepoints there."""
    need("uprobe")
    program = compiled(tmp_path, "defines", EVENTFUL, "-O1")
    offset = next(item.offset for item in UserBinaries().symbols(str(program), "doubled"))
    group = f"others{os.getpid()}"
    place = f"{program}:{offset:#x}"
    lines = {"in": f"p:{group}/in {place} n=%di:s32 text=+0(%si):string", "out": f"r:{group}/out {place} got=$retval"}
    events = Path(fingerprints.tracefs_root(), "uprobe_events")
    if not os.access(events, os.W_OK):
        pytest.skip("this kernel has no uprobe_events (CONFIG_UPROBE_EVENTS)")
    try:
        for line in lines.values():
            define(events, line)
        text = (
            f"tracepoint:{group}:in {{ @n = sum(args.n); @texts[str(args.text)] = count(); }}"
            f"tracepoint:{group}:out {{ @got = sum(args.got); }}"
        )
        result = subprocess.run(
            [*TRACER, "-e", text, "-c", str(program)], capture_output=True, text=True, timeout=patience(30), check=False
        )
        assert set(result.stdout.split("\n")) >= {"@n: 45", "@texts[word]: 10", "@got: 90"}, result
    finally:
        for name in lines:
            with suppress(OSError):
                define(events, f"-:{group}/{name}")


# ---------------------------------------------------------------------------------------------- many tracers
# Many tracers on the same probes, started and killed at any moment: right counts, and nothing stays behind.


def crowd(tmp_path: Path, limit: float | None, *words: str) -> Any:
    """The result of ``python -m tests.support.crowd``, with a cache and temporary files of its own."""
    places = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "tests.support.crowd", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=limit, check=False, cwd=ROOT,
        env={**os.environ, **places},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SOAK = pytest.mark.soak
"""Takes minutes, on a busy machine more: those cases have no deadline."""


@pytest.mark.parametrize(("number", "limit"), [(20, patience(60)), pytest.param(100, None, marks=SOAK)])
def test_tracers_at_once(tmp_path: Path, number: int, limit: float | None) -> None:
    need("uprobe", "usdt", "syscalls")
    result = crowd(tmp_path, limit, "at-once", str(number))
    # The semaphore was raised for all of them, and lowered by the last one only.
    assert result["outputs"] == {f"@guarded:{IN_A_CROWD}@user:{IN_A_CROWD}": number}
    assert result["statuses"] == {"0": number}


@pytest.mark.parametrize(
    ("number", "every", "limit"), [(50, 0.1, patience(60)), pytest.param(600, 1, None, marks=SOAK)]
)
def test_tracers_killed_at_any_moment(tmp_path: Path, number: int, every: float, limit: float | None) -> None:
    """One is started in each period while another is killed: as it compiles, loads, attaches, traces, or prints."""
    need("uprobe", "usdt", "syscalls")
    result = crowd(tmp_path, limit, "churn", str(number), str(every), "1")
    assert sum(result["statuses"].values()) == number
    # Some end by the request before the kill: at once until they have something to end in order.
    unexpected = {status: text for status, text in result["last outputs"].items() if status not in {"-9", "-2", "0"}}
    assert not unexpected
    until(lambda: not _commands())
    events = Path(fingerprints.tracefs_root()) / "uprobe_events"
    assert "pytrace_" not in (events.read_text() if events.exists() else "")
    assert not list((tmp_path / "tmp").iterdir())
    # A half-written entry of the cache is one that is not read: the next run works, and clears it away.
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.stat().st_size == 0]


def _commands() -> list[str]:
    """Commands of killed tracers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if text == b"sleep\x00600\x00":
            found.append(str(path))
    return found
