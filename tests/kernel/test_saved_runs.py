"""Snapshots of real runs: they have what the same run printed, and say where it comes from."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import pytrace
from pytrace import pipeline
from pytrace.core import types
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions, RunOptions
from pytrace.core.source import Source
from pytrace.results.formats import table
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.merge import merge
from pytrace.results.snapshot import Frame, StackTrace
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.load.live_kernel import LiveKernel
from pytrace.runtime.session.opening import open_run
from pytrace.runtime.session.session import Session
from pytrace.runtime.session.signals import TOGETHER
from tests.support import portable_json
from tests.support.compile import SOURCES, compiled
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.saved import ROOT, Saved, read, save, start
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")

GETPPID = "tracepoint:syscalls:sys_enter_getppid /pid == cpid/"


def printed(run: Saved) -> dict[str, Any]:
    """The maps of JSON output."""
    found: dict[str, Any] = {}
    for line in run.stdout.splitlines():
        # Others are of the traced program.
        item = json.loads(line) if line.startswith("{") else {"type": ""}
        if item["type"] in ("map", "stats", "hist", "tseries"):
            found.update(item["data"])
    return found


def assert_equal_to_output(run: Saved) -> None:
    """Map by map; of keys only those that are written as :mod:`tests.support.portable_json` can."""
    there = printed(run)
    maps = {name: data for name, data in run.snapshot.maps.items() if data.entries}
    assert set(maps) == set(there)
    for name, data in maps.items():
        assert portable_json.data(data) == there[name], name


AGGREGATIONS = """
config = { unstable_tseries = enable }
uprobe:PROGRAMS/calls:add {
  @calls = count(); @by[arg0 % 3] = count(); @name[comm, arg0 % 2] = count();
  @sum = sum(arg1); @sums[arg0 % 3] = sum(-(int64)arg0);
  @avg = avg(arg1); @avgs[arg0 % 3] = avg(-(int64)arg0); @stats[comm] = stats(arg1); @all = stats(arg0);
  @min = min(arg1); @mins[arg0 % 3] = min(-(int64)arg0); @max = max(arg1); @maxs[comm] = max(arg0);
  @h = hist((int64)arg0 - 5); @hs[arg0 % 3] = hist(arg1); @l = lhist(arg0, 2, 30, 4); @ls[comm] = lhist(arg0, 0, 8, 2);
  @last = tseries(arg0, 1s, 10); @sumt[arg0 % 2] = tseries(arg0, 10s, 5, "sum");
  @avgt[arg0 % 2] = tseries(arg0, 10s, 5, "avg"); @mint = tseries(arg0, 10s, 5, "min");
  @maxt = tseries(arg0, 10s, 5, "max");
}
"""

DEFINITIONS = """
struct pair { int first; unsigned char second; char text[3]; struct { short row; short column; }; };
enum colour { RED = 1, BLUE = 5 };
"""

VALUES = """
uprobe:PROGRAMS/calls:greet {
  @int[arg1] = (int8)-5; @big = (uint64)0xffffffffffffffff; @text[str(arg0)] = 1; @str = str(arg0);
  @buf = buf(arg0, 4); @bool[arg0 > 0] = arg0 == 0; @tuple = (1, "two", (3, "four"));
  @record = (pid = (uint64)7, name = "seven"); @array = (uint8[4])(uint32)0x01020304; @pointer = (int8 *)0x1234;
  @enum[(enum colour)5] = (enum colour)1; @struct = *(struct pair *)arg0;
}
begin {
  @inet = ntop(2130706433); @mac = macaddr(0); @user[username] = count();
  @time = strftime("%Y", nsecs); @address = ntop(0x0100007f);
}
"""


def program(text: str, programs: Path) -> str:
    return text.replace("PROGRAMS", str(programs))


def test_aggregations(tmp_path: Path, programs: Path) -> None:
    need("uprobe")
    run = save(tmp_path, "-q", "-f", "json", "-e", program(AGGREGATIONS, programs), "-c", f"{programs}/calls 40")
    assert len(run.snapshot.maps) == 22
    assert_equal_to_output(run)
    assert run.entries("@by") == {0: 14, 1: 13, 2: 13}
    assert run.entries("@avgs") == {n: (-sum(range(n, 40, 3)), len(range(n, 40, 3))) for n in range(3)}
    assert run.entries("@mins") == {0: -39, 1: -37, 2: -38}
    assert run.entries("@l") == {None: {0: 2, **dict.fromkeys(range(1, 8), 4), 8: 10}}


CLEARING = """
uprobe:PROGRAMS/calls:add {
  @a = count(); @b[arg0 % 2] = sum(arg0); @c = stats(arg0); @d++; @e[arg0 % 2]++; @f = hist(arg0); @g[1] = count();
  @h[arg0] = count(); @i = max(arg0);
}
uretprobe:PROGRAMS/calls:main /@rounds == 0/ {
  @rounds = 1; print_clear(@a); clear(@b); print_clear(@c); zero(@d); print_clear(@e); clear(@f); delete(@g, 1);
  clear(@i); printf("cleared");
}
"""


def test_what_was_cleared_is_over(tmp_path: Path, programs: Path) -> None:
    need("uprobe")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = f"sh -c '{programs}/calls 10; read line < {gate}; {programs}/calls 6'"
    path = tmp_path / "snapshot"
    child = start("--save", path, "-q", "-f", "json", "--follow", "-e", program(CLEARING, programs), "-c", command)
    try:
        assert child.stdout is not None
        before = []
        while not before or "cleared" not in before[-1]:
            before.append(child.stdout.readline())
            assert before[-1]
        gate.write_text("on\n")
        rest, errors = child.communicate(timeout=patience(60))
    finally:
        child.kill()
    run = Saved(rest, errors, child.returncode, path)
    assert_equal_to_output(run)
    assert [run.entries(name) for name in ("@a", "@d", "@e")] == [{None: 6}, {None: 6}, {0: 3, 1: 3}]
    assert run.entries("@c") == {None: (15, 6)}
    assert run.entries("@h") == {n: 1 + (n < 6) for n in range(10)}


def test_values_and_keys(tmp_path: Path, programs: Path) -> None:
    need("uprobe")
    run = save(tmp_path, "-q", "-f", "json", "-e", program(DEFINITIONS + VALUES, programs), "-c", f"{programs}/calls 3")
    there, maps = printed(run), run.snapshot.maps
    for name in ("@big", "@text", "@str", "@buf", "@tuple", "@record", "@array", "@pointer", "@inet", "@user", "@time"):
        assert portable_json.data(maps[name]) == there[name], name
    assert run.entries("@big") == {None: (1 << 64) - 1}
    assert run.entries("@buf") == {None: b"roun"}
    assert run.entries("@record") == {None: (7, "seven")}
    assert maps["@record"].value == types.Record(("pid", "name"), maps["@record"].value.members)  # type: ignore[attr-defined]
    assert run.entries("@inet") == {None: socket.inet_ntoa(b"\x01\0\0\x7f")}
    # "round 2" as its bytes lie.
    assert run.entries("@struct") == {None: (0x6E756F72, 0x64, " 2", 0, 0)}
    assert list(run.entries("@bool").items()) == [(True, False)]
    assert list(run.entries("@enum").items()) == [(5, 1)]
    assert there["@enum"] == {"BLUE": 1}


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    # Four bytes after its start a function has the frame that its caller is found by.
    options = ("-g", "-O0", "-pie", "-fPIE", "-Wl,--build-id", "-fcf-protection=none")
    return compiled(tmp_path, "stacks", SOURCES / "source_lines.c", *options)


def test_stacks_say_function_file_line_and_build_id(tmp_path: Path, stacks: Path) -> None:
    need("uprobe")
    script = f"uprobe:{stacks}:leaf+4 {{ @[ustack(4), comm] = count(); @perf[ustack(perf, 1)] = count(); "
    script += "@raw[ustack(raw, 1)] = count(); @id[ustack(build_id, 1)] = count(); }"
    run = save(tmp_path, "-q", "-f", "json", "-e", script, "-c", f"{stacks} 5")
    build_id = ElfFile.open(str(stacks)).build_id
    binary = Binary.open(str(stacks))
    (((trace, comm), count),) = run.entries("@").items()
    assert (comm, count, trace.user, trace.error) == ("stacks", 5, True, "")
    frames = trace.frames
    assert [(frame.function, frame.line, frame.inlined) for frame in frames[:4]] == [
        ("leaf", 3, False), ("within", 5, True), ("outer", 8, False), ("main", 13, False),
    ]  # fmt: skip
    assert {(frame.module, frame.build_id) for frame in frames[:4]} == {(str(stacks), build_id)}
    assert all(frame.file.endswith("stacks.c") for frame in frames[:4])
    for frame in (frames[0], *frames[2:4]):
        assert frame.address - frame.offset == binary.address_of(frame.function)
    assert frames[1].address == frames[2].address
    assert run.entries("@perf") == {StackTrace((frames[0],)): 5}
    ((raw, _),) = run.entries("@raw").items()
    assert raw.frames == (Frame("", address=raw.frames[0].address),)
    assert raw.frames[0].address % 4096 == frames[0].address % 4096
    ((by_id, _),) = run.entries("@id").items()
    assert (by_id.frames[0].build_id, by_id.frames[0].function) == (build_id, "")
    assert printed(run)["@"] == {portable_json.key(run.snapshot.maps["@"].key, (trace, comm)): 5}  # type: ignore[arg-type]


def test_kernel_stacks_have_the_kernels_build_id(tmp_path: Path, programs: Path) -> None:
    run = save(tmp_path, "-q", "-f", "json", "-e", f"{GETPPID} {{ @[kstack(3)] = count(); }}",
               "-c", f"{programs}/flood 10")  # fmt: skip
    ((trace, count),) = run.entries("@").items()
    assert count == 10
    assert not trace.user
    with open("/sys/kernel/notes", "rb") as file:
        assert bytes.fromhex(trace.frames[0].build_id) in file.read()
    assert trace.frames[0].module == "[kernel]"
    assert trace.frames[0].address > trace.frames[0].offset
    assert_equal_to_output(run)


def test_equal_stacks_of_several_processes_are_one(tmp_path: Path, stacks: Path) -> None:
    need("uprobe")
    script = f"uprobe:{stacks}:leaf+4 {{ @[ustack(3)] = count(); @h[ustack(3)] = hist(1); "
    script += "@by[ustack(3), pid] = count(); }"
    command = f"sh -c '{stacks} 3; {stacks} 4; {stacks} 5'"
    run = save(tmp_path, "-q", "-f", "json", "--follow", "-e", script, "-c", command)
    assert len(printed(run)["@"]) == 3
    assert list(run.entries("@").values()) == [12], run.entries("@")
    (trace,) = run.entries("@")
    assert run.entries("@h") == {trace: {2: 12}}
    assert sorted(run.entries("@by").values()) == [3, 4, 5]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_saved_run_shows_as_it_was_printed(tmp_path: Path, programs: Path, stacks: Path, form: str) -> None:
    """All types of keys and values, by the module that writes saved runs."""
    need("uprobe")
    script = program(DEFINITIONS + AGGREGATIONS + VALUES, programs)
    script += f"uprobe:{stacks}:leaf+4 {{ @stack[ustack, kstack(2), comm] = count(); @kept = ustack(2); "
    script += "@raw[ustack(raw, 2)] = 1; @sym[usym(reg(\"ip\")), ksym(0)] = count(); }"
    command = f"sh -c '{programs}/calls 9; {stacks} 2'"
    run = save(tmp_path, "-q", "-f", form, "--follow", "-e", script, "-c", command)
    assert len(run.snapshot.maps) == 43
    file = io.BytesIO()
    table.named(form).writer()(run.snapshot, WriteOptions(), file)
    assert file.getvalue().decode().split("\n") == run.stdout.lstrip("\n").split("\n")


ROWS = """
GETPPID {
  @n++;
  row((n=@n, comm=comm, lat_us=@n * 1007, id=(uid=username, parts=(@n % 2 == 0, "a\\tb"))));
  row((path=probe));
}
end { clear(@n); }
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_rows_show_as_they_were_printed(tmp_path: Path, programs: Path, form: str) -> None:
    script = ROWS.replace("GETPPID", GETPPID)
    run = save(tmp_path, "-q", "-f", form, "-e", script, "-c", f"{programs}/syscalls 20")
    shown = subprocess.run(
        [sys.executable, "-m", "pytrace", "show", "-f", form, str(run.path)], cwd=ROOT,
        capture_output=True, check=True, text=True, timeout=patience(60),
    ).stdout  # fmt: skip
    if form == "json":
        # The run prints rows of both tables as they come, a snapshot has them by table.
        assert shown.splitlines() == sorted(run.stdout.splitlines(), key=lambda line: json.loads(line)["table"])
        assert len(shown.splitlines()) == 40
        return
    first, second = shown.split("\n\n")
    printed = [block.split("\n") for block in run.stdout.strip("\n").split("\n\n")]
    assert first.split("\n")[1:] == [block[1] for block in printed if block[0].split()[0] == "N"]
    assert second.rstrip("\n").split("\n")[1:] == [block[1] for block in printed if block[0] == "PATH"]
    assert first.split("\n")[0].split() == ["N", "COMM", "LAT(us)", "ID.UID", "ID.PARTS.0", "ID.PARTS.1"]


SIDE_BY_SIDE = """
uprobe:STACKS:leaf+4 FILTER {
  @[ustack(4), comm] = count(); @n = count(); @sum = sum(reg("di")); @stats[comm] = stats(reg("di"));
  @avg = avg(reg("di")); @min[comm] = min(reg("di")); @max = max(reg("di")); @hist[ustack(2)] = hist(reg("di"));
  @lhist = lhist(reg("di"), 0, 10, 2); @series = tseries(reg("di"), 60s, 10, "sum");
}
"""


def test_two_runs_side_by_side_merge_to_what_one_that_saw_both_has(tmp_path: Path, stacks: Path) -> None:
    need("uprobe")
    script = f"config = {{ unstable_tseries = enable }} {SIDE_BY_SIDE}".replace("STACKS", str(stacks))
    of_both = start("--save", tmp_path / "both", "-e", script.replace("FILTER", ""))
    try:
        assert of_both.stderr is not None
        assert of_both.stderr.readline() == "Attached 1 probe\n"
        parts = []
        for number, calls in enumerate((9, 4)):
            folder = tmp_path / str(number)
            folder.mkdir()
            text = script.replace("FILTER", "/pid == cpid/")
            parts.append(save(folder, "-q", "-e", text, "-c", f"{stacks} {calls}").snapshot)
        of_both.send_signal(signal.SIGINT)
        of_both.communicate(timeout=patience(60))
    finally:
        of_both.kill()
    both, merged = read(tmp_path / "both"), merge(parts)
    assert {name: data.entries for name, data in merged.maps.items()} == {
        name: data.entries for name, data in both.maps.items()
    }
    assert both.maps["@n"].entries == {None: 13}
    assert len(both.maps["@"].entries) == 1
    assert len(merged.runs) == 2


# ---------------------------------------------------------------------------------------------- the run


def test_a_run_says_what_it_was(tmp_path: Path, programs: Path) -> None:
    path = tmp_path / "counts.bt"
    text = f"/* Calls,\n   by name. */\n{GETPPID} {{ @[comm] = count();\n"
    text += '  // Number $1\n  @n = $1 + getopt("add", 0); }\n'
    path.write_text(text)
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    identities = set()
    for _ in range(2):
        run = save(tmp_path, "-q", "-c", f"{programs}/flood 10", path, "5", "--", "--add=3", env=cache)
        (found,) = run.snapshot.runs
        assert found.script == str(path)
        assert found.script_hash == hashlib.sha256(text.encode()).hexdigest()
        assert found.parameters == ("5", "--add=3")
        system = os.uname()
        assert (found.host, found.kernel, found.machine) == (system.nodename, system.release, system.machine)
        assert found.version == pytrace.__version__
        assert 0 < found.end - found.start == pytest.approx(found.end_monotonic - found.start_monotonic, abs=10**8)
        assert run.entries("@n") == {None: 8}
        assert {name: data.help for name, data in run.snapshot.maps.items()} == {
            "@": "Calls,\nby name.", "@n": "Number $1",
        }  # fmt: skip
        identities.add(found.identity)
    assert len(identities) == 2


def test_an_ahead_of_time_file_knows_its_script(tmp_path: Path, programs: Path) -> None:
    script = f"{GETPPID} {{\n  // all\n  @n = count(); }}"
    made = tmp_path / "made"
    aot = start("--aot", made, "-e", script)
    assert aot.communicate(timeout=patience(60)) == ("", "")
    run = save(tmp_path, "-q", "-c", f"{programs}/flood 10", made)
    (found,) = run.snapshot.runs
    assert found.script_hash == hashlib.sha256(script.encode()).hexdigest()
    assert (found.script, run.snapshot.maps["@n"].help, run.entries("@n")) == (str(made), "all", {None: 10})


def test_losses_are_those_that_output_tells(tmp_path: Path, programs: Path) -> None:
    script = (
        "config = { max_map_keys = 3 }\n"
        f'{GETPPID} {{ @[nsecs] = 1; @n = count(); printf("%d %s\\n", nsecs, comm); }}'
    )
    environment = {"PYTRACE_PERF_RB_PAGES": "1"}
    run = save(tmp_path, "-f", "json", "-e", script, "-c", f"{programs}/flood 60000", env=environment)
    told = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"type": "losses"')]
    assert run.snapshot.losses == told[0]["data"]
    assert run.snapshot.losses["map_full"] == {"@": 59_997}
    assert len(run.entries("@")) == 3


def test_output_is_the_same_with_and_without(tmp_path: Path, programs: Path) -> None:
    script = f'{GETPPID} {{ @[cpu < 0] = count(); @n++; printf("%d\\n", @n); }} end {{ @end = 1; }}'
    for form in ("text", "json"):
        command = ("-f", form, "-e", script, "-c", f"{programs}/flood 20")
        plain = start(*command)
        outputs = plain.communicate(timeout=patience(60))
        run = save(tmp_path, *command)
        # The program prints how long it took.
        lines = [
            [line for line in text.splitlines() if not re.fullmatch(r"20 \d+", line)]
            for text in (outputs[0], run.stdout)
        ]
        assert lines[0] == lines[1]
        assert run.stderr == outputs[1]
        assert run.entries("@end") == {None: 1}


# ---------------------------------------------------------------------------------------------- when and where


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "out"
    script = f"t:syscalls:sys_enter_getppid /pid == {os.getpid()}/ {{ @n = count(); }}"
    child = start("--save", path, "-e", script)
    assert child.stderr is not None
    assert child.stderr.readline() == "Attached 1 probe\n"
    for _ in range(3):
        os.getppid()
    child.send_signal(number)
    stdout, _ = child.communicate(timeout=patience(30))
    assert (child.returncode, stdout) == (0, "\n\n@n: 3\n")
    assert read(path).maps["@n"].entries == {None: 3}
    assert os.listdir(tmp_path) == ["out"]


def test_a_reader_that_went_away_does_not_keep_it_from_being_saved(tmp_path: Path) -> None:
    path = tmp_path / "out"
    child = start("--save", path, "-q", "-e", 'interval:ms:10 { @n = count(); printf("tick\\n"); }')
    assert child.stdout is not None
    assert child.stdout.readline() == "tick\n"
    child.stdout.close()
    child.wait(timeout=patience(30))
    assert read(path).maps["@n"].entries[None] >= 1


def test_a_file_every_so_often(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    script = f"t:syscalls:sys_enter_getppid /pid == {os.getpid()}/ {{ @n = count(); }}"
    child = start("--save-every", "0.2", folder, "--save", tmp_path / "out", "-e", script)
    assert child.stderr is not None
    assert child.stderr.readline() == "Attached 1 probe\n"

    def more(count: int) -> bool:
        os.getppid()
        return len(os.listdir(folder)) >= count

    until(lambda: more(4), patience(30))
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=patience(30))
    snapshots = [read(folder / name) for name in sorted(os.listdir(folder))]
    assert len({snapshot.runs[0].identity for snapshot in snapshots}) == 1
    times = [snapshot.end for snapshot in snapshots]
    assert times == sorted(set(times))
    counts = [snapshot.maps["@n"].entries.get(None, 0) for snapshot in snapshots]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    assert read(tmp_path / "out") == snapshots[-1]


@pytest.mark.parametrize(
    ("script", "status", "output"),
    [
        ("begin { @n = 1; exit(7); }", 7, "\n\n@n: 1\n"),
        ('begin { @n = 1; assert(@n == 2, "no"); }', 1, ""),
        ("config = { print_maps_on_exit = false } begin { @n = 1; exit(); }", 0, "\n\n"),
    ],
)
def test_however_a_run_ends(tmp_path: Path, script: str, status: int, output: str) -> None:
    run = save(tmp_path, "-q", "-e", script, status=status)
    assert run.entries("@n") == {None: 1}
    assert run.stdout.strip() == output.strip()


SLOW = """
import time
from pytrace.base.whole_files import replacing
from pytrace.cli import main
from pytrace.results import file_form

def write(snapshot, path):
    with replacing(path) as file:
        file.write(b"half")
        file.flush()
        print("writing", flush=True)
        while True:  # a long sleep that a signal comes just before would not end
            time.sleep(0.01)

file_form.write = write
main.command()
"""
"""pytrace, but for writing that stops in the middle of a file."""


def test_a_second_signal_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    script = 'interval:s:60 { @n = count(); } begin { printf("on\\n"); }'
    child = subprocess.Popen([sys.executable, "-c", SLOW, "--save", path, "-q", "-e", script],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "on\n"
    child.send_signal(signal.SIGINT)
    while child.stdout.readline() != "writing\n":
        assert child.poll() is None
    time.sleep(2 * TOGETHER)  # signals in a shorter time are one
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=patience(30))
    assert child.returncode == 130
    assert "WARNING: no snapshot was saved at the end because of the interrupt\n" in errors
    assert (os.listdir(tmp_path), path.read_text()) == (["out"], "old")


# ---------------------------------------------------------------------------------------------- from Python


def test_a_session_gives_snapshots_after_its_end(tmp_path: Path) -> None:
    text = (
        'begin { @n = 5; @s[1, comm] = count(); row((n=1, text="x")); row((n=2, text="x")) } '
        "interval:ms:1 { @ticks++; if (@ticks == 3) { exit(); } }"
    )
    source = Source("stdin", text)
    compiled_script = pipeline.compile_script(source, CompileOptions(), LiveKernel(), Diagnostics())
    saved = str(tmp_path / "saved")
    out = str(tmp_path / "out")
    options = RunOptions(output=out, quiet=True, script="-e", text=text, save=saved, keep_privileges=True)
    with ExitStack() as stack:
        session = Session(open_run(compiled_script, options, stack))
        before = session.snapshot()
        assert session.run() == 0
        first, second = session.snapshot(), session.snapshot()
    assert before.maps["@n"].entries == {}
    assert before.runs[0].identity == first.runs[0].identity
    assert replace(first, read={}) == replace(second, read={})
    assert first.runs[0].end <= time.time_ns()
    assert first.maps["@n"].entries == {None: 5}
    assert list(first.maps["@s"].entries.values()) == [1]
    assert first.maps["@ticks"].entries[None] >= 3
    (table,) = first.tables
    assert (before.tables, list(table.rows.values())) == ((), [[(1, "x"), (2, "x")]])
