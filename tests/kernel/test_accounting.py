"""Nothing is lost silently: what was printed and what was reported as lost are together what was produced, exactly."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.pace import unit
from tests.support.patience import patience
from tests.support.waiting import until

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


def test_printed_and_lost_in_json(tmp_path: Path, programs: Path) -> None:
    run = Run(tmp_path, THREE_FIELDS, "-c", f"{programs}/flood {CALLS} 2", as_json=True)
    objects = run.objects()
    kinds = Counter(item["type"] for item in objects)
    lost = losses(objects)["lost"]
    assert kinds["printf"] + lost == 2 * CALLS
    assert lost > 0
    assert sum(item["count"] for item in objects if item["type"] == "lost_events") == lost


def test_losses_are_told_for_each_probe(tmp_path: Path, programs: Path) -> None:
    script = (
        f'{PROBE} /pid == cpid/ {{ printf("in\\n"); }} '
        'tracepoint:syscalls:sys_exit_getppid /pid == cpid/ { printf("out\\n"); }'
    )
    run = Run(tmp_path, script, "-c", f"{programs}/flood {CALLS}", as_json=True)
    objects = run.objects()
    printed = Counter(item["data"] for item in objects if item["type"] == "printf")
    lost = next(item["data"]["lost"] for item in objects if item["type"] == "losses")
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


def test_dropped_updates_are_counted_for_each_map(tmp_path: Path) -> None:
    script = (
        "config = { max_map_keys = 10 } "
        "begin { for ($i : 0..1000) { @a[$i] = 1; @b[$i] = count(); @c[$i % 5]++; } exit(); }"
    )
    run = Run(tmp_path, script, as_json=True)
    found = next(item for item in run.objects() if item["type"] == "losses")
    assert found["data"]["map_full"] == {"@a": 990, "@b": 990}
    assert found["sizes"] == {"@a": 10, "@b": 10}
    text = Run(tmp_path, script).done.stderr
    assert "1980 map updates dropped (@a 990, @b 990); @a holds 10 keys, @b holds 10 keys: increase" in text


def test_failed_helpers_are_counted_by_place(tmp_path: Path) -> None:
    script = "begin { for ($i : 0..500) { print(*(uint64*)16); delete(@m, $i); } @m[-1] = 1; exit(); }"
    objects = Run(tmp_path, script, "-k", as_json=True).objects()
    found = next(item["data"]["helper"] for item in objects if item["type"] == "losses")
    assert sorted(found.values()) == [500, 500]
    assert {name.split(" at ")[0] for name in found} == {"bpf_probe_read", "bpf_map_delete_elem"}
    assert all(re.search(r" at stdin:1:\d+$", name) for name in found)


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
    read = "$s = str(args.argv[1]); printf(\"%s %s\\n\", $s, $s); print($s); print((1, $s)); @m = $s; @k[1] = @m;"
    made = '$t = str_concat($s, "x"); printf("%s\\n", $t); print(@m);'
    script = (
        f"config = {{ max_strlen = {longest} }} tracepoint:syscalls:sys_enter_execve /pid == cpid/ "
        f'{{ {read} {made} printf("%s\\n", str(args.argv[1])); }}'
    )
    objects = Run(tmp_path, script, "-c", f"/bin/true {'x' * 1000}", as_json=True).objects()
    assert losses(objects) == {"cut": 3}


def test_cut_buffers_are_counted(tmp_path: Path) -> None:
    script = "config = { max_strlen = 6 } begin { for ($n : 5..10) { print(buf((int8 *)(uint64)curtask, $n)); } }"
    objects = Run(tmp_path, script, as_json=True).objects()
    assert [len(item["data"]) for item in objects if item["type"] == "value"] == [5, 6, 6, 6, 6]
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


def test_colour_only_for_terminals() -> None:
    """Messages and the report of tests are coloured on a terminal, and not in a file."""
    command = [sys.executable, "-m", "pytrace", "--test", "-e", 'test:a { } test:b { warnf("w"); return 1; }']
    main, other = os.openpty()
    with subprocess.Popen(command, stdout=other, stderr=other) as tracer:
        os.close(other)
        text = written(main)
        assert tracer.wait(timeout=patience(20)) == 1
    assert b"\x1b[32m" in text
    assert b"\x1b[31m" in text
    plain = subprocess.run(command, capture_output=True, timeout=patience(20), check=False)
    assert b"\x1b" not in plain.stdout + plain.stderr
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
