"""Nothing is lost silently: what was printed and what was reported as lost add up to what was produced."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pytrace.core.diagnostics import InternalError
from pytrace.core.probe_kinds import TracepointTarget
from pytrace.render.events import each
from pytrace.runtime.load import attachments
from pytrace.runtime.load.attachments import AttachOptions
from pytrace.runtime.output.ring import Handlers, RingReader
from pytrace.runtime.session import child
from pytrace.runtime.session.services import CounterReader
from pytrace.runtime.session.session import EventLoop
from tests.support.loading import Loaded, program, target
from tests.support.pace import unit
from tests.support.patience import patience
from tests.support.waiting import taken, until

pytestmark = pytest.mark.usefixtures("no_leaks")

CALLS = 60_000 if unit() < 0.05 else 10_000
PROBE = "tracepoint:syscalls:sys_enter_getppid"
THREE_FIELDS = f'{PROBE} /pid == cpid/ {{ printf("%d %s %d\\n", tid, comm, nsecs); }}'


class Run:
    """One run with a small ring: lines printed, and what was lost by kind."""

    def __init__(self, tmp_path: Path, script: str, *arguments: str, pages: int = 1, as_json: bool = False) -> None:
        self.path = tmp_path / "out"
        options = ["-f", "json"] if as_json else []
        self.done = subprocess.run(
            [sys.executable, "-m", "pytrace", *options, "-o", str(self.path), "-e", script, *arguments],
            capture_output=True, text=True, timeout=patience(60), check=False,
            env={**os.environ, "PYTRACE_PERF_RB_PAGES": str(pages)},
        )  # fmt: skip
        self.text = self.path.read_text()

    def sums(self) -> dict[str, int]:
        """The sums at the end of text output: the first number of each warning, by what it counts."""
        found = {}
        for line in self.done.stderr.splitlines():
            match = re.match(r"WARNING: (?:in total, )?(\d+) (?:map )?\w+ (lost|after exit|dropped|truncated)\b", line)
            if match:
                found[match[2]] = int(match[1])
        return found

    def lines(self, word: str) -> int:
        return sum(word in line for line in self.text.splitlines())

    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


def losses(objects: list[dict[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for item in objects:
        if item["type"] == "losses":
            found.update({kind: sum(names.values()) for kind, names in item["data"].items()})
    return found


@pytest.mark.parametrize("threads", [1, 2])
def test_printed_and_lost_are_what_was_produced(tmp_path: Path, programs: Path, threads: int) -> None:
    run = Run(tmp_path, THREE_FIELDS, "-c", f"{programs}/flood {CALLS} {threads}")
    printed, lost = run.lines(" flood "), run.sums().get("lost", 0)
    assert printed + lost == CALLS * threads
    assert lost > 0
    assert printed > 0
    assert sum(map(int, re.findall(r"^Lost (\d+) events$", run.done.stderr, re.MULTILINE))) == lost


def test_losses_are_told_for_each_probe(tmp_path: Path, programs: Path) -> None:
    script = (
        f'{PROBE} /pid == cpid/ {{ printf("in\\n"); }} '
        'tracepoint:syscalls:sys_exit_getppid /pid == cpid/ { printf("out\\n"); }'
    )
    run = Run(tmp_path, script, "-c", f"{programs}/flood {CALLS}", as_json=True)
    objects = run.objects()
    printed = Counter(item["data"] for item in objects if item["type"] == "printf")
    lost = next(item["data"]["lost"] for item in objects if item["type"] == "losses")
    assert sum(item["count"] for item in objects if item["type"] == "lost_events") == sum(lost.values()) > 0
    assert printed["in\n"] + lost[PROBE] == CALLS
    assert printed["out\n"] + lost["tracepoint:syscalls:sys_exit_getppid"] == CALLS


def test_end_probes_flood_too(tmp_path: Path) -> None:
    run = Run(tmp_path, 'begin { } end { for ($i : 0..100000) { printf("line %d\\n", $i); } }')
    assert run.lines("line") + run.sums().get("lost", 0) == 100_000
    assert run.sums()["lost"] > 0


def test_events_after_exit_are_part_of_the_sum(tmp_path: Path, programs: Path) -> None:
    script = f'{PROBE} /pid == cpid/ {{ @n++; printf("%d line\\n", @n); if (@n == 20000) {{ exit(); }} }}'
    for as_json in (False, True):
        run = Run(tmp_path, script, "-c", f"{programs}/flood {CALLS}", as_json=as_json)
        if as_json:
            objects = run.objects()
            printed = sum(item["type"] == "printf" for item in objects)
            missing = losses(objects)
            total = next(item["data"]["@n"] for item in objects if item["type"] == "map")
            out = missing["ignored"]
        else:
            printed, sums = run.lines(" line"), run.sums()
            missing = Counter(lost=sums.get("lost", 0))
            out = sums.get("after exit", 0)
            total = int(re.findall(r"^@n: (\d+)$", run.text, re.MULTILINE)[0])
        # The event of exit() itself is handled or lost.
        assert printed + missing["lost"] + out in (total, total + 1)


@pytest.mark.parametrize("end", ["interval:ms:300 { exit(); }", f"{PROBE} /@n > 3000/ {{ exit(); }}"])
def test_maps_have_what_was_printed_until_exit(tmp_path: Path, programs: Path, end: str) -> None:
    """Programs stop at exit() themselves. One that runs on the other CPU at that moment goes on to its end."""
    script = f'{PROBE} {{ @n++; if (@n < 40000) {{ @ = count(); printf("line\\n"); }} }} {end}'
    run = Run(tmp_path, script, "-c", f"{programs}/flood 2000000000 2", pages=4096)
    (counted,) = re.findall(r"^@: (\d+)$", run.text, re.MULTILINE)
    assert 0 <= int(counted) - run.lines("line") <= (os.cpu_count() or 1), run.done.stderr
    assert run.sums().get("after exit", 0) <= (os.cpu_count() or 1)


@pytest.mark.parametrize("end", ["interval", "duration", "signal"])
def test_maps_keep_no_calls_of_the_tracer(tmp_path: Path, end: str) -> None:
    """Detaching closes hundreds of files: the beginning of a call is not kept when its end is not seen any more.

    Neither is one of its other threads: of the watchdog, which waits all the time, and of those that serve metrics.
    """
    script = (
        "config = { syscall_tracepoints = plain } begin { @tracer = (uint64)curtask.tgid; } "
        "t:syscalls:sys_enter_close, t:syscalls:sys_enter_ioctl { @since[pid, tid] = 1; } "
        "t:syscalls:sys_exit_close, t:syscalls:sys_exit_ioctl { delete(@since, (pid, tid)); } "
        "t:raw_syscalls:sys_exit { delete(@any, (pid, tid)); } t:raw_syscalls:sys_enter { @any[pid, tid] = args.id; } "
    )
    words = ("--duration", "0.5", "--metrics", "127.0.0.1:0") if end == "duration" else ()
    script += "interval:ms:500 { exit(); }" if end == "interval" else ""
    tracer = subprocess.Popen(
        [sys.executable, "-m", "pytrace", "--no-warnings", "-f", "json", *words, "-e", script],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert tracer.stdout is not None
    with tracer:
        first = tracer.stdout.readline()
        if end == "signal":
            time.sleep(0.3)
            tracer.send_signal(signal.SIGINT)
        lines = [first, *tracer.stdout]
    maps: dict[str, Any] = {}
    for item in map(json.loads, lines):
        maps |= item["data"] if item["type"] == "map" else {}
    assert maps["@tracer"] == tracer.pid
    both = {**maps.get("@since", {}), **maps.get("@any", {})}
    assert not {key: value for key, value in both.items() if key.startswith(f"{tracer.pid},")}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_flood_that_goes_on(tmp_path: Path, programs: Path, number: int) -> None:
    flood = subprocess.Popen([str(programs / "flood"), "2000000000", "1"])
    path = tmp_path / "out"
    script = f'{PROBE} /pid == {flood.pid}/ {{ @ = count(); printf("%d line\\n", nsecs); }}'
    try:
        tracer = subprocess.Popen(
            [sys.executable, "-m", "pytrace", "-f", "json", "-o", str(path), "-e", script],
            env={**os.environ, "PYTRACE_PERF_RB_PAGES": "4"},
        )  # fmt: skip
        until(lambda: path.exists() and path.stat().st_size > 100_000)
        tracer.send_signal(number)
        assert tracer.wait(timeout=patience(30)) == 0
    finally:
        flood.kill()
        flood.wait()
    objects = [json.loads(line) for line in path.read_text().splitlines()]
    printed = sum(item["type"] == "printf" for item in objects)
    produced = next(item["data"]["@"] for item in objects if item["type"] == "map")
    assert printed + losses(objects)["lost"] == produced


def test_slow_reader(programs: Path) -> None:
    """A reader that takes its time holds the output up; what does not fit anywhere is counted."""
    tracer = subprocess.Popen(
        [sys.executable, "-m", "pytrace", "-q", "-e", THREE_FIELDS, "-c", f"{programs}/flood {CALLS} 2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTRACE_PERF_RB_PAGES": "16"},
    )  # fmt: skip
    assert tracer.stdout is not None
    assert tracer.stderr is not None
    time.sleep(1.5)
    printed = b""
    while chunk := os.read(tracer.stdout.fileno(), 1 << 16):
        printed += chunk
    # The program's own line goes to the same pipe, perhaps into the middle of one of the tracer's.
    lines = re.sub(rb"%d \d+\n" % (2 * CALLS), b"", printed).count(b" flood ")
    said = tracer.stderr.read().decode()
    assert tracer.wait(timeout=patience(20)) == 0
    lost = sum(map(int, re.findall(r"^Lost (\d+) events$", said, re.MULTILINE)))
    assert lines + lost == 2 * CALLS
    tracer.stdout.close()
    tracer.stderr.close()


def test_stacks_that_cannot_be_walked_are_counted(tmp_path: Path) -> None:
    """The idle task has no user stack: each try is told (there are few) and counted, with its place."""
    # What fails behind exit() is counted and told no more, so nothing is tried any more by then.
    script = (
        "t:sched:sched_switch /pid == 0 && @n < 40 && !@over/ { @n++; @[ustack(1)] = count(); } "
        "i:ms:300 { if (@over) { exit(); } @over = 1; }"
    )
    objects = Run(tmp_path, script, as_json=True).objects()
    told = [item for item in objects if item["type"] == "runtime_error"]
    if not told:
        pytest.skip("this kernel walks something in the idle task, or it never ran")
    assert {(item["filename"], item["line"], script[item["col"] - 1 :][:9]) for item in told} == {
        ("stdin", 1, "ustack(1)")
    }
    (lost,) = (item["data"] for item in objects if item["type"] == "losses")
    assert sum(lost["user_stack"].values()) == len(told)
    assert all(re.fullmatch(r"bpf_get_stack at stdin:1:\d+", place) for place in lost["user_stack"])
    (counted,) = (item["data"]["@"] for item in objects if item["type"] == "map" and "@" in item["data"])
    assert sum(counted.values()) >= len(told)


def test_cut_strings_are_counted(tmp_path: Path) -> None:
    probe = "tracepoint:syscalls:sys_enter_openat"
    script = (
        f"config = {{ max_strlen = 8 }} {probe} /pid == cpid/ "
        '{ @[1] = str(args.filename); printf("%s %s %s\\n", str(args.filename), comm, str(args.filename, 4)); }'
    )
    objects = Run(tmp_path, script, "-c", "cat /proc/self/status /etc/hostname", as_json=True).objects()
    # A path that is not in memory yet reads as nothing.
    cut = sum(".. " in item["data"] for item in objects if item["type"] == "printf")
    assert cut >= 2
    assert losses(objects) == {"cut": 2 * cut}


@pytest.mark.parametrize("longest", [40, 100, 500])
def test_a_cut_string_counts_once(tmp_path: Path, longest: int) -> None:
    """Where it is read or made, however often and in whatever form it is printed and kept."""
    read = '$s = str(args.argv[1]); printf("%s %s\\n", $s, $s); print($s); print((1, $s)); @m = $s; @k[1] = @m;'
    made = '$t = str_concat($s, "x"); printf("%s\\n", $t); print(@m);'
    script = (
        f"config = {{ max_strlen = {longest} }} tracepoint:syscalls:sys_enter_execve /pid == cpid/ "
        f'{{ {read} {made} printf("%s\\n", str(args.argv[1])); }}'
    )
    objects = Run(tmp_path, script, "-c", f"/bin/true {'x' * 1000}", as_json=True).objects()
    assert losses(objects) == {"cut": 3}


def test_nothing_lost_nothing_said(tmp_path: Path, programs: Path) -> None:
    run = Run(tmp_path, THREE_FIELDS, "-c", f"{programs}/flood 1000 2", pages=0)
    assert run.lines(" flood ") == 2000
    assert run.done.stderr == "Attached 1 probe\n"


def test_exit_in_a_flood(tmp_path: Path, programs: Path) -> None:
    """Its event finds no room; the run ends all the same, with its status."""
    script = (
        f'{PROBE} /pid == cpid/ {{ @n++; if (@n > 3000) {{ exit(9); }} printf("%d line\\n", nsecs); }} '
        'begin { for ($i : 0..1000) { printf("%d\\n", $i); } }'
    )
    run = Run(tmp_path, script, "-c", f"{programs}/flood 3000000")
    assert run.done.returncode == 9


def written(terminal: int) -> bytes:
    """All that is written to a terminal until nobody has it open; closes it."""
    text = b""
    while True:
        try:
            text += os.read(terminal, 1 << 16)
        except OSError:
            break
    os.close(terminal)
    return text


def on_a_terminal(command: list[str], stream: str) -> tuple[bytes, bytes]:
    """What *command* writes to *stream*, which is a terminal, and to the other one, which is none."""
    main, other = os.openpty()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: other}
    with subprocess.Popen(command, **streams) as tracer:  # type: ignore[call-overload]
        os.close(other)
        shown = written(main)
        out, err = tracer.communicate(timeout=patience(20))
    return shown, out or err


def test_each_stream_is_coloured_where_a_terminal_shows_it() -> None:
    """The report of tests goes to standard output, messages to standard error: one of them may be a file."""
    command = [sys.executable, "-m", "pytrace", "--test", "-e", 'test:a { } test:b { warnf("w"); return 1; }']
    report, messages = on_a_terminal(command, "stdout")
    assert b"\x1b[32m" in report
    assert b"WARNING: w" in messages
    assert b"\x1b" not in messages
    messages, report = on_a_terminal(command, "stderr")
    assert b"\x1b[33m" in messages
    assert b"FAILED" in report
    assert b"\x1b" not in report


def test_colour_where_it_is_asked_for() -> None:
    command = [sys.executable, "-m", "pytrace", "--test", "-e", 'test:a { } test:b { warnf("w"); return 1; }']
    forced = subprocess.run(
        command, capture_output=True, timeout=patience(20), check=False, env={**os.environ, "PYTRACE_COLOR": "always"}
    )
    assert b"\x1b[" in forced.stdout + forced.stderr


def fill(pipe: int) -> None:
    """Wait until a pipe that nobody reads has no more room."""
    end = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY)
    try:
        until(lambda: not select.select([], [end], [], 0)[1], 30)
    finally:
        os.close(end)


def interrupted(*arguments: str, again: bool) -> tuple[int, str, str]:
    """A run whose output nobody reads until it was interrupted (twice with *again*): status, output and messages."""
    tracer = subprocess.Popen(
        [sys.executable, "-m", "pytrace", "-q", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert tracer.stdout is not None
    assert tracer.stderr is not None
    try:
        fill(tracer.stdout.fileno())
        tracer.send_signal(signal.SIGINT)
        if again:
            # Two within a tenth of a second are one.
            until(lambda: taken(tracer.pid))
            time.sleep(0.3)
            tracer.send_signal(signal.SIGTERM)
        # It ends although the pipe stays full.
        tracer.wait(timeout=patience(30))
        printed, said = tracer.stdout.read(), tracer.stderr.read()
    finally:
        tracer.kill()
        tracer.wait()
        tracer.stdout.close()
        tracer.stderr.close()
    return tracer.returncode, printed.decode(), said.decode()


LINES = 200_000
MANY = f'for ($i : 0..{LINES}) {{ printf("%d\\n", $i); }}'


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("-e", f"begin {{ {MANY} }} interval:s:60 {{ }}"), id="begin"),
        pytest.param(("-B", "none", "-e", f"begin {{ {MANY} }} interval:s:60 {{ }}"), id="each_at_once"),
        pytest.param(("-B", "full", "-e", f"begin {{ {MANY} }} interval:s:60 {{ }}"), id="blocks"),
        pytest.param(("-f", "json", "-e", f"begin {{ {MANY} }} interval:s:60 {{ }}"), id="json"),
        pytest.param(("-e", f"begin {{ exit(); }} end {{ {MANY} }}"), id="end"),
        pytest.param(("-e", MANY.join(("begin { ", " }")).replace('printf("%d\\n", $i)', "print($i)")), id="print"),
    ],
)
def test_what_an_interrupted_write_left_is_counted(arguments: tuple[str, ...], again: bool) -> None:
    status, printed, said = interrupted(*arguments, again=again)
    # The second signal may come when all is over.
    assert status in ((0, 143) if again else (0,))
    whole = [line for line in printed.splitlines(keepends=True) if line.endswith("\n") and line != "\n"]
    (left,) = re.findall(r"^WARNING: (\d+) events not printed because of the interrupt", said, re.MULTILINE)
    lost = re.findall(r"^WARNING: (\d+) events lost", said, re.MULTILINE)
    assert 0 < len(whole) < LINES
    assert len(whole) + int(left) + sum(map(int, lost)) == LINES, said


def test_interrupted_maps_are_told() -> None:
    script = 'begin { for ($i : 0..4000) { @[$i, "a key that fills the pipe"] = $i; } exit(); }'
    status, _, said = interrupted("-e", script, again=True)
    assert status == 143
    assert "not all maps were printed" in said
    assert "events" not in said


# ---------------------------------------------------------------------------------------------- floods
# Floods of several kinds of events: nothing keeps a run from ending, and each event is printed or accounted for.


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


@pytest.mark.parametrize(("body", "threads"), [*((body, 2) for body in BODIES), ("two in turn", 1)])
def test_a_signal_ends_a_flood_of_several_kinds(tmp_path: Path, programs: Path, body: str, threads: int) -> None:
    number = signal.SIGINT if threads == 1 else signal.SIGTERM
    with flooding(programs, threads) as pid:
        tracer = Tracer(tmp_path, "-e", f"{PROBE} /pid == {pid}/ {{ {BODIES[body]} }}")
        # Of each kind some have been printed; with stacks among them a busy machine takes long for more.
        until(lambda: tracer.path.exists() and tracer.path.stat().st_size > 10_000)
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


@pytest.mark.parametrize("option", ["", "-q"])
def test_events_before_an_exit_that_finds_no_room_are_printed(tmp_path: Path, option: str) -> None:
    """The tracer is stopped while the ring fills up: that exit() was called is told by the programs' memory alone."""
    calls = "import os\nfor _ in range(40000): os.getppid()"
    script = f'{PROBE} /comm == "calls"/ {{ @n++; printf("%d\\n", @n); if (@n == 30000) {{ exit(3); }} }}'
    (tmp_path / "calls.py").write_text(calls)
    (tmp_path / "calls").symlink_to(os.path.realpath(sys.executable))
    command = f"kill -STOP $PPID; {tmp_path}/calls {tmp_path}/calls.py; kill -CONT $PPID; exec sleep 5"
    run = Run(tmp_path, script, *([option] if option else []), "-c", f"sh -c '{command}'")
    printed = [int(line) for line in run.text.splitlines() if line.isdigit()]
    assert printed == [*range(1, len(printed) + 1)]
    assert len(printed) > 100
    assert run.sums() == {"lost": 30_000 - len(printed)}
    assert run.done.returncode == 3
    assert "@n: 30000" in run.text


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


# ---------------------------------------------------------------------------------------------- ringbuffer
# The event ring on this kernel: nothing lost that was not counted, order, limits, failing handlers.


def flood(stack: ExitStack, programs: Path, times: int, **config: int) -> tuple[Loaded, child.Child]:
    process = child.start(f"{programs / 'flood'} {times}", stack)
    spec = program("event_tracepoint", "tracepoint", target(TracepointTarget("syscalls", "sys_enter_getppid"), 77))
    loaded = Loaded(stack, spec, pid=process.pid, **config)
    attachments.attach_all(loaded.loaded, [spec], AttachOptions(), stack)
    return loaded, process


def test_received_and_lost_make_all(programs: Path) -> None:
    with ExitStack() as stack:
        loaded, process = flood(stack, programs, 300_000)
        reader = RingReader(loaded.loaded.map_fd("events"), stack)
        loop = EventLoop(reader, stack)
        numbers: list[int] = []

        def take(data: bytes, offset: int, length: int, stride: int, count: int) -> None:
            assert length == 32
            for place in range(offset, offset + count * stride, stride):
                number, pid, cookie = struct.unpack_from("=8xQQQ", data, place)
                assert (pid, cookie) == (process.pid, 77)
                numbers.append(number)

        process.release()
        drained = 0
        while process.poll() is None or reader.pending:
            loop.wait(0.05, drained)
            drained = reader.drain(Handlers([take]), 10_000)
        lost = CounterReader(loaded.loaded).totals().get(("lost", 0), 0)
        assert len(numbers) + lost == loaded.hits == 300_000
        assert lost < 3_000


def test_small_ring_loses_and_counts(programs: Path) -> None:
    with ExitStack() as stack:
        loaded, process = flood(stack, programs, 50_000, perf_rb_pages=1)
        reader = RingReader(loaded.loaded.map_fd("events"), stack)
        counters = CounterReader(loaded.loaded)
        process.release()
        os.waitid(os.P_PIDFD, process.descriptors[0], os.WEXITED | os.WNOWAIT)
        got = reader.drain(Handlers([lambda data, offset, length, stride, count: None]))
        assert 0 < got < 200
        assert counters.totals() == {("lost", 0): 50_000 - got}


def test_limit_and_failing_handler(programs: Path) -> None:
    with ExitStack() as stack:
        loaded, process = flood(stack, programs, 1000)
        reader = RingReader(loaded.loaded.map_fd("events"), stack)
        process.release()
        os.waitid(os.P_PIDFD, process.descriptors[0], os.WEXITED | os.WNOWAIT)
        seen: list[int] = []
        handler = each(lambda _data, offset: seen.append(offset))
        assert reader.drain(Handlers([handler]), 100) == 100
        assert [later - first for first, later in pairwise(seen)] == [40] * 99

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            reader.drain(Handlers([fail]), 100)
        assert reader.drain(Handlers([handler])) == 800
        assert not reader.pending


def test_unknown_event_id(programs: Path) -> None:
    with ExitStack() as stack:
        loaded, process = flood(stack, programs, 3)
        reader = RingReader(loaded.loaded.map_fd("events"), stack)
        process.release()
        os.waitid(os.P_PIDFD, process.descriptors[0], os.WEXITED | os.WNOWAIT)
        with pytest.raises(InternalError, match="unknown id 0"):
            reader.drain(Handlers([]))
