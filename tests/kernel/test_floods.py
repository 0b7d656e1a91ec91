"""Floods of several kinds of events: nothing keeps a run from ending, and each event is printed or accounted for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.patience import patience
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")

PROBE = "tracepoint:syscalls:sys_enter_getppid"
TWO = 'printf("e%d\\n", pid); printf("e%s\\n", comm); @produced = sum(2);'
PICK = (
    '$k = rand % 4; if ($k == 0) { printf("e%d\\n", pid); } else if ($k == 1) { printf("e%s\\n", comm); } '
    'else if ($k == 2) { printf("e\\n"); } else { printf("e%s\\n", str(curtask->comm, 1 + rand % 9)); } '
    "@produced = sum(1);"
)
STACKS = TWO + ' if (@n++ % 50 == 0) { printf("e %s\\n", kstack(3)); @produced = sum(1); }'
MAPS = TWO + " if (@n++ % 1000 == 0) { print(@cleared); clear(@cleared); } @cleared = count();"
BACKLOG = 64 << 20
"""Bytes of events that may wait, with their index."""

BODIES = {"two in turn": TWO, "at random": PICK, "stacks among them": STACKS, "maps among them": MAPS}


@contextmanager
def flooding(programs: Path, threads: int = 1) -> Iterator[int]:
    """A process that makes system calls until the end of the block."""
    with subprocess.Popen([programs / "flood", "2000000000", str(threads)], stdout=subprocess.DEVNULL) as flood:
        try:
            yield flood.pid
        finally:
            flood.kill()


class Tracer:
    """pytrace with its messages in a file."""

    def __init__(self, folder: Path, *arguments: str, out: int | None = None, pages: int = 256) -> None:
        self.path = folder / "out"
        self._errors = folder / "errors"
        options = ["-o", str(self.path)] if out is None else []
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytrace", *options, *arguments], stdout=out, stderr=errors,
                env={**os.environ, "PYTRACE_PERF_RB_PAGES": str(pages)},
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._errors.read_text()

    def attached(self) -> None:
        until(lambda: "Attached" in self.said)

    def end(self) -> int:
        """Wait for the end, also of what does not end by itself."""
        try:
            return self.process.wait(timeout=patience(30))
        finally:
            self.process.kill()
            self.process.wait()

    def check(self, text: str) -> None:
        """What was printed, lost and left is what was produced."""
        said = self.said
        (produced,) = re.findall(r"^@produced: (\d+)", text, re.MULTILINE)
        printed = len(re.findall(r"^e", text, re.MULTILINE))
        lost = sum(map(int, re.findall(r"^Lost (\d+) events?$", said, re.MULTILINE)))
        left = sum(map(int, re.findall(r"^WARNING: (\d+) events? (?:not printed|after exit)", said, re.MULTILINE)))
        assert printed > 0
        assert printed + lost + left == int(produced), said


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("body", BODIES)
def test_a_signal_ends_a_flood_of_several_kinds(tmp_path: Path, programs: Path, body: str, threads: int) -> None:
    number = signal.SIGINT if threads == 1 else signal.SIGTERM
    with flooding(programs, threads) as pid:
        tracer = Tracer(tmp_path, "-e", f"{PROBE} /pid == {pid}/ {{ {BODIES[body]} }}")
        until(lambda: tracer.path.exists() and tracer.path.stat().st_size > 100_000)
        tracer.process.send_signal(number)
        assert tracer.end() == 0
    text = tracer.path.read_text()
    if body == "maps among them":
        # How many events print a map is not counted by the script.
        assert re.search(r"^@cleared: \d+$", text, re.MULTILINE)
    else:
        tracer.check(text)


def test_exit_among_printf(tmp_path: Path, programs: Path) -> None:
    script = f"{PROBE} /pid == {{pid}}/ {{{{ @n++; {TWO} if (@n == 20000) {{{{ exit(7); }}}} }}}}"
    with flooding(programs) as pid:
        tracer = Tracer(tmp_path, "-e", script.format(pid=pid), pages=4096)
        assert tracer.end() == 7
    text = tracer.path.read_text()
    before = text.split("\n\n")[0]
    assert "events lost" in tracer.said or len(re.findall(r"^e", before, re.MULTILINE)) == 40_000
    tracer.check(text)


def test_exit_after_each_printf(tmp_path: Path, programs: Path) -> None:
    """Each call prints and asks for the end: all but the first event of each kind come after it."""
    with flooding(programs) as pid:
        tracer = Tracer(tmp_path, "-e", f'{PROBE} /pid == {pid}/ {{ printf("e%d\\n", pid); exit(); }}')
        assert tracer.end() == 0
    assert len(re.findall(r"^e", tracer.path.read_text(), re.MULTILINE)) == 1


def test_the_end_of_the_command_is_seen_in_a_flood_of_others(tmp_path: Path, programs: Path) -> None:
    with flooding(programs) as pid:
        tracer = Tracer(tmp_path, "-e", f"{PROBE} /pid == {pid}/ {{ {TWO} }}", "-c", "sleep 1")
        assert tracer.end() == 0
    tracer.check(tracer.path.read_text())


def test_signals_to_the_script_are_seen_in_a_flood(tmp_path: Path, programs: Path) -> None:
    script = f'{PROBE} /pid == {{pid}}/ {{{{ {TWO} }}}} self:signal:SIGUSR1 {{{{ printf("signalled\\n"); exit(); }}}}'
    with flooding(programs) as pid:
        tracer = Tracer(tmp_path, "-e", script.format(pid=pid))
        until(lambda: tracer.path.exists() and tracer.path.stat().st_size > 100_000)
        tracer.process.send_signal(signal.SIGUSR1)
        assert tracer.end() == 0
    assert tracer.path.read_text().count("signalled\n") == 1


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_a_signal_ends_a_flood_that_nobody_reads(tmp_path: Path, programs: Path, kind: str) -> None:
    """The output takes nothing any more, as of a terminal that was stopped."""
    read, write = os.openpty() if kind == "terminal" else os.pipe()
    try:
        with flooding(programs) as pid:
            tracer = Tracer(tmp_path, "-e", f"{PROBE} /pid == {pid}/ {{ {TWO} }}", out=write)
            tracer.attached()
            until(lambda: "Lost" in tracer.said or _room(tracer.process.pid) == 0)
            tracer.process.send_signal(signal.SIGINT)
            assert tracer.end() == 0
        os.set_blocking(read, False)
        left = "".join(_texts(read))
    finally:
        os.close(read)
        os.close(write)
    assert re.search(r"^WARNING: \d+ events not printed because of the interrupt", tracer.said, re.MULTILINE)
    # A map may fit into the room that is left.
    assert ("@produced" in left) != ("not all maps were printed" in tracer.said)


def _texts(descriptor: int) -> Iterator[str]:
    """What a pipe or terminal still has."""
    with suppress(BlockingIOError):
        while data := os.read(descriptor, 1 << 16):
            yield data.decode()


def _room(pid: int) -> int:
    """How much more the tracer writes in a moment."""

    def written() -> int:
        found = re.search(r"^wchar: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    before = written()
    signal.sigtimedwait([], 0.3)
    return written() - before if before > 4000 else 1


def test_maps_come_after_a_slow_reader(programs: Path, tmp_path: Path) -> None:
    """What waits may be left out after Ctrl-C; a reader that goes on reading gets the maps."""
    read, write = os.pipe()
    text = b""
    with flooding(programs) as pid:
        tracer = Tracer(tmp_path, "-e", f"{PROBE} /pid == {pid}/ {{ {TWO} }}", out=write)
        os.close(write)
        while chunk := os.read(read, 1 << 15):
            text += chunk
            signal.sigtimedwait([], 0.02)
            if len(text) - len(chunk) < 1 << 18 <= len(text):
                tracer.process.send_signal(signal.SIGINT)
        assert tracer.end() == 0
    os.close(read)
    tracer.check(text.decode())


def test_memory_stays_within_its_bound(tmp_path: Path, programs: Path) -> None:
    """Nobody reads; what waits fills the backlog, and nothing more."""
    read, write = os.pipe()
    sizes: list[int] = []
    try:
        with flooding(programs, 2) as pid:
            tracer = Tracer(tmp_path, "-q", "-e", f"{PROBE} /pid == {pid}/ {{ {PICK} }}", out=write, pages=1024)
            until(lambda: _resident(tracer.process.pid) > BACKLOG, 60)

            def grows() -> bool:
                """Look twenty times in two seconds."""
                before = max(sizes, default=0)
                for _ in range(20):
                    signal.sigtimedwait([], 0.1)
                    sizes.append(_resident(tracer.process.pid))
                return max(sizes) > before + (4 << 20)

            until(lambda: not grows(), 60)
            tracer.process.send_signal(signal.SIGTERM)
            assert tracer.end() == 0
    finally:
        os.close(read)
        os.close(write)
    # Beside the backlog: the tracer itself, the ring (mapped twice), what is formatted and waits for the pipe.
    assert max(sizes) < 4 * BACKLOG


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
