"""Rows of real events: what programs did is in the rows, in every format, however many there are."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from itertools import pairwise
from pathlib import Path

import pytest

from pytrace.interface.snapshots import Snapshot
from tests.support.patience import patience
from tests.support.programs import build

OPENS = (
    "tracepoint:syscalls:sys_enter_openat /pid == cpid/ { @path[tid] = args.filename; @start[tid] = nsecs; } "
    "tracepoint:syscalls:sys_exit_openat /pid == cpid && @path[tid]/ { "
    "row((pid=pid, comm=comm, fd=args.ret, lat_ns=nsecs - @start[tid], path=str(@path[tid]))); "
    "delete(@path, tid); delete(@start, tid); } end { clear(@path); clear(@start); }"
)
CALLS = 20_000
NUMBERED = (
    "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @n++; row((n=@n, comm=comm)); } end { clear(@n); }"
)


def tracer(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytrace", *arguments]


def trace(*arguments: str) -> str:
    done = subprocess.run(tracer("-q", *arguments), capture_output=True, timeout=patience(60), check=True)
    return done.stdout.decode()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files whose names a reader of lines or of CSV could stumble over; the last does not exist."""
    folder = tmp_path_factory.mktemp("rows")
    names = ["plain", "with blank", 'a,"b"', "two\nlines", "missing"]
    for name in names[:-1]:
        (folder / name).write_text("x\n")
    return [folder / name for name in names]


def command(files: list[Path]) -> str:
    quoted = " ".join("'" + str(path) + "'" for path in files)
    return f"sh -c 'exec cat \"$@\" >/dev/null 2>&1' sh {quoted}"


def check(rows: list[dict[str, object]], files: list[Path]) -> None:
    known = {str(path): path.exists() for path in files}
    opened = [row for row in rows if row["path"] in known]
    assert [row["path"] for row in opened] == list(known)
    for row in opened:
        assert row["comm"] == "cat"
        assert (int(str(row["fd"])) >= 0) == known[str(row["path"])]
        assert int(str(row["lat_ns"])) > 0
    assert len({row["pid"] for row in opened}) == 1


def test_json_lines(files: list[Path]) -> None:
    rows = [json.loads(line) for line in trace("-f", "json", "-e", OPENS, "-c", command(files)).splitlines()]
    assert {(row["type"], row["table"]) for row in rows} == {("row", 1)}
    check([row["data"] for row in rows], files)


def test_csv(files: list[Path]) -> None:
    text = trace("-f", "csv", "-e", OPENS, "-c", command(files))
    check(list(csv.DictReader(io.StringIO(text, newline=""), strict=True)), files)


def test_csv_in_a_file(files: list[Path], tmp_path: Path) -> None:
    assert trace("-f", "csv", "-o", str(tmp_path / "rows.csv"), "-e", OPENS, "-c", command(files)) == ""
    with open(tmp_path / "rows.csv", newline="") as opened:
        check(list(csv.DictReader(opened, strict=True)), files)


def test_text(files: list[Path]) -> None:
    heading, *lines = trace("-e", OPENS, "-c", command(files)).rstrip("\n").split("\n")
    assert heading.split() == ["PID", "COMM", "FD", "LAT(ns)", "PATH"]
    rows = []
    for line in lines:
        pid, comm, descriptor, latency, path = line.split(maxsplit=4) if line.split()[4:] else [*line.split(), ""]
        rows.append({"pid": pid, "comm": comm, "fd": descriptor, "lat_ns": latency, "path": path.replace("\\n", "\n")})
    check(rows, files)
    start = heading.index("PATH")
    assert all(line[start - 1] == " " != line[start - 2] for line in lines)


@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_a_flood_is_printed_in_order_or_counted_as_lost(form: str) -> None:
    done = subprocess.run(
        tracer("-q", "-f", form, "-e", NUMBERED, "-c", f"{build() / 'syscalls'} {CALLS}"),
        capture_output=True, timeout=patience(60), check=True,
    )  # fmt: skip
    text = done.stdout.decode()
    lost = 0
    if form == "json":
        lines = [json.loads(line) for line in text.splitlines()]
        numbers = [line["data"]["n"] for line in lines if line["type"] == "row"]
        lost = sum(line["count"] for line in lines if line["type"] == "lost_events")
    elif form == "csv":
        numbers = [int(row["n"]) for row in csv.DictReader(io.StringIO(text, newline=""))]
    else:
        heading, *rows = text.split("\n")
        assert heading.split() == ["N", "COMM"]
        assert {len(row) for row in rows if row} == {len(rows[0])}
        numbers = [int(row.split()[0]) for row in rows if row]
    if form != "json":
        words = done.stderr.decode().split()
        lost = sum(int(count) for word, count in pairwise(words) if word == "Lost")
    assert numbers == sorted(set(numbers))
    assert len(numbers) + lost == CALLS


def test_each_map_print_can_be_told_from_the_next() -> None:
    script = (
        "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @[comm, cpu] = count(); } "
        "interval:ms:5 { print_clear(@); }"
    )
    text = trace("-f", "csv", "-e", script, "-c", f"{build() / 'syscalls'} {CALLS}")
    tables: list[list[list[str]]] = [[]]
    for row in csv.reader(io.StringIO(text, newline=""), strict=True):
        if row:
            tables[-1].append(row)
        else:
            tables.append([])
    assert {tuple(table[0]) for table in tables} == {("comm", "cpu", "@")}
    assert all(row[0] == "syscalls" for table in tables for row in table[1:])
    assert sum(int(row[2]) for table in tables for row in table[1:]) == CALLS


def test_an_ahead_of_time_file_knows_its_tables(tmp_path: Path) -> None:
    script = "begin { row((a=1, b=(c=\"x\", d=pid))); row((e=2)); exit(); }"
    subprocess.run(tracer("--aot", str(tmp_path / "rows"), "-e", script), check=True, timeout=patience(60))
    first, second = (json.loads(line) for line in trace("-f", "json", str(tmp_path / "rows")).splitlines())
    assert (first["table"], list(first["data"]), first["data"]["b"]["c"]) == (1, ["a", "b"], "x")
    assert second == {"type": "row", "table": 2, "data": {"e": 2}}


def test_followed_processes_are_in_the_rows() -> None:
    script = "tracepoint:sched:sched_process_exec { row((pid=pid, comm=comm)); }"
    text = trace("--follow", "-f", "csv", "-e", script, "-c", "sh -c 'true; env true; env true'")
    names = [row["comm"] for row in csv.DictReader(io.StringIO(text, newline=""))]
    assert names.count("true") >= 2


def test_a_terminal_shows_the_heading_after_each_screenful() -> None:
    height = 10
    child, descriptor = pty.fork()
    if not child:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", height, 80, 0, 0))
        script = "begin { for ($i : 0..30) { row((i=$i)); } exit(); }"
        os.execv(sys.executable, tracer("-q", "-e", script))
    printed, deadline = b"", time.monotonic() + patience(30)
    while time.monotonic() < deadline:
        try:
            data = os.read(descriptor, 1 << 16)
        except OSError:
            break
        printed += data
    os.close(descriptor)
    assert os.waitpid(child, 0)[1] == 0
    lines = printed.decode().split()
    assert lines[0] == "I"
    assert [at for at, line in enumerate(lines) if line == "I"] == [0, 10, 20, 30]
    assert [line for line in lines if line != "I"] == [str(number) for number in range(30)]


SORTED = (
    "config = { max_map_keys = 200000 } "
    "begin { for ($i : 0..100000) { @[$i] = ($i * 7919) % 100003; } } "
    'end { for ($kv : @) { row((key=$kv.0, value=$kv.1, name="a text of some length"), "-value"); } clear(@); }'
)


def test_a_hundred_thousand_rows_are_sorted() -> None:
    lines = trace("-f", "csv", "-e", SORTED).splitlines()
    assert lines[0] == "key,value,name"
    expected = sorted(((number * 7919) % 100003, -number) for number in range(100000))
    assert [tuple(map(int, line.split(",")[:2])) for line in lines[1:]] == [
        (-key, value) for value, key in reversed(expected)
    ]


def test_saved_rows_have_texts_where_statements_join_different_values(tmp_path: Path) -> None:
    path = tmp_path / "rows.pts"
    script = 'begin { row((n=1, call=joined("", "open(", 3, ")"))); row((n=2, call=joined("-", 1, 2))); exit(); }'
    shown = trace("--save", str(path), "-e", script)
    assert shown.split() == ["N", "CALL", "1", "open(3)", "2", "1-2"]
    done = subprocess.run(tracer("show", str(path)), capture_output=True, timeout=60, check=True, text=True)
    assert done.stdout.rstrip() == shown.rstrip()
    assert trace("-f", "csv", "-e", script).splitlines() == ["n,call", "1,open(3)", "2,1-2"]


def test_saved_rows_keep_titles_and_decimal_numbers(tmp_path: Path) -> None:
    path = tmp_path / "rows.pts"
    script = 'begin { row((pid=1, "LAT(ms)"=fixed(2500, 1000, 2), "a.b"=joined(":", 1, "x"))); exit(); }'
    shown = trace("--save", str(path), "-e", script)
    assert shown == " PID  LAT(ms) a.b\n   1     2.50 1:x\n"

    def again(form: str) -> str:
        done = subprocess.run(tracer("show", str(path), "-f", form), capture_output=True, timeout=60, check=True)
        return done.stdout.decode()

    assert again("text").rstrip() == shown.rstrip()
    assert again("json") == trace("-f", "json", "-e", script)
    assert again("csv") == trace("-f", "csv", "-e", script)
    pyarrow = pytest.importorskip("pyarrow")
    table = Snapshot.load(path).to_arrow("rows")
    assert table.schema.field("LAT(ms)").type == pyarrow.float64()
    assert table.to_pydict() == {"pid": [1], "LAT(ms)": [2.5], "a.b": ["1:x"]}


def test_the_terminal_is_cleared_in_order_and_nothing_else() -> None:
    script = "begin { row((a=1)); clear_terminal(); row((a=2)); exit(); }"
    controller, terminal = pty.openpty()
    with subprocess.Popen(tracer("-q", "-e", script), stdout=terminal, stderr=terminal) as run:
        os.close(terminal)
        found = b""
        try:
            while part := os.read(controller, 4096):
                found += part
        except OSError:  # the terminal's other end is closed
            pass
    os.close(controller)
    assert run.returncode == 0
    before, after = found.split(b"\x1b[H\x1b[2J")
    assert (before.split(), after.split()) == ([b"A", b"1"], [b"A", b"2"])
    assert after.startswith(b" ")
    for form in ("text", "csv", "json"):
        assert "\x1b" not in trace("-f", form, "-e", script)


FLOOD = (
    "config = { max_map_keys = 20000 } interval:ms:100 /!@flooded/ { @flooded = 1; for ($i : 0..10000) { @[$i] = $i; } "
    'for ($kv : @) { row((key=$kv.0, value=$kv.1, text="' + 100 * "x" + '"), "-value"); } '
    "print_rows(); exit(); } end { clear(@); clear(@flooded); }"
)
"""Once: where exit() does not fit the ring, the interval may come again before the run ends."""


def test_ten_thousand_rows_of_one_program_are_not_lost() -> None:
    done = subprocess.run(
        tracer("-q", "-f", "csv", "-e", FLOOD), capture_output=True, timeout=patience(60), check=True, text=True
    )
    assert [int(line.split(",")[0]) for line in done.stdout.splitlines()[1:]] == [*range(9999, -1, -1)]
    assert done.stderr == ""


def test_rows_that_did_not_fit_the_ring_are_reported() -> None:
    script = FLOOD.replace("20000 }", "20000; perf_rb_pages = 16 }")
    done = subprocess.run(
        tracer("-q", "-f", "json", "-e", script), capture_output=True, timeout=patience(60), check=True, text=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    rows = [line["data"]["key"] for line in lines if line["type"] == "row"]
    (losses,) = [line["data"] for line in lines if line["type"] == "losses"]
    # A lost print_rows() is among them; what had come is printed at the end. An exit() that is lost takes effect at
    # once, and events that still waited then are ignored.
    assert losses["lost"]
    assert rows == sorted(rows, reverse=True)
    lost = sum(losses["lost"].values()) + sum(losses.get("ignored", {}).values())
    assert 10_000 <= len(rows) + lost <= 10_002


NEVER = "tracepoint:syscalls:sys_enter_getppid /pid == 0/ { row((pid=pid)); } interval:ms:200 { exit(); }"


def silent(*arguments: str, terminal: bool) -> tuple[bytes, str]:
    """What a run without any event prints on standard output, a terminal or a pipe, and on standard error."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    try:
        done = subprocess.run(
            tracer(*arguments, "-e", NEVER), stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=patience(60),
            check=True,
        )  # fmt: skip
        os.write(theirs, b".")
        return os.read(ours, 65536)[:-1], done.stderr
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_run_without_events_says_so_at_a_terminal_only() -> None:
    printed, said = silent(terminal=True)
    assert printed == b""
    assert "\nNo event in 0." in said
    for arguments, terminal in (((), False), (("-q",), True), (("-f", "json"), True), (("-f", "csv"), True)):
        printed, said = silent(*arguments, terminal=terminal)
        assert "No event" not in said + printed.decode()


def test_rows_alone_are_followed_by_no_empty_line() -> None:
    assert trace("-e", "begin { row((a=1)); exit(); }").split("\n") == ["   A", "   1", ""]
    assert trace("-e", "begin { @m = 2; row((a=1)); exit(); }").endswith("   1\n\n\n@m: 2\n")
