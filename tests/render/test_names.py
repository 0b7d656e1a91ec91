"""Symbols, stacks in all modes, users, times, cgroups."""

from __future__ import annotations

import os
import struct
import time
from itertools import permutations
from pathlib import Path

import pytest

from pytrace.core.types import Stack, StackMode
from pytrace.render import names as render_names
from pytrace.render.forms import Decoders
from pytrace.render.names import Names
from pytrace.render.text import for_any
from pytrace.results.formats.portable_forms import PortableNames
from pytrace.results.snapshot import Frame as PortableFrame
from pytrace.results.snapshot import StackTrace
from pytrace.runtime.machine.clocks import Clock
from pytrace.runtime.machine.host_names import CgroupPaths, HostNames
from pytrace.runtime.session.snapshots import StackTraces
from tests.support.captured import Places
from tests.support.encode import Frame, Symbols

KNOWN = {
    0x1000: [Frame("do_work", 16, "[kernel]")],
    0x2000: [
        Frame("helper", 4, "/bin/prog", "src/a.c", 12, True),
        Frame("main", 8, "/bin/prog", "src/b.c", 30),
    ],
}


@pytest.fixture
def names() -> Names:
    return Names(Symbols(KNOWN), Clock(), ("%Y", "unif*"), HostNames())


def test_symbols(names: Names) -> None:
    assert names.kernel_symbol(0x1000) == b"do_work"
    assert names.kernel_symbol(0x2000) == b"main"
    assert names.kernel_symbol(0x3000) == b"0x3000"
    assert names.user_symbol((7, 0x2000)) == b"main"
    assert names.user_symbol((7, 0)) == b"0x0"


FRAMES = (0, (0x1000, 0x2000, 0x3000), 0)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (
            StackMode.BPFTRACE,
            b"""
        do_work+16
        [inlined] helper@src/a.c:12
        main+8@src/b.c:30
        0x3000
""",
        ),
        (
            StackMode.PERF,
            b"""
\t1000 do_work+16 ([kernel])
\t2000 helper (inlined)
\t2000 main+8 (/bin/prog)
\t3000 0x3000 ([unknown])
""",
        ),
        (StackMode.RAW, b"\n1000\n2000\n3000\n"),
    ],
)
@pytest.mark.parametrize("user", [False, True])
def test_stack_modes(names: Names, mode: StackMode, user: bool, expected: bytes) -> None:
    text = names.stack(Stack(user, 127, mode))
    assert text(FRAMES) == expected
    assert text(FRAMES) == expected  # from the cache


@pytest.mark.parametrize("user", [False, True])
def test_callers_are_at_the_line_of_their_call(user: bool) -> None:
    known = {
        0x2000: [Frame("main", 8, "/bin/prog", "b.c", 30)],
        0x4000: [Frame("start", 0, "/bin/prog", "b.c", 40)],
    }
    calls = {
        0x2000: [Frame("main", 8, "/bin/prog", "b.c", 29)],
        0x4000: [Frame("abort", 20, "/bin/prog", "b.c", 9)],
    }
    text = Names(Symbols(known, calls), Clock(), (), HostNames()).stack(Stack(user, 127, StackMode.BPFTRACE), b"")
    # In a process, where a call ends that never returns, another function may begin.
    last = b"abort+20@b.c:9" if user else b"start+0@b.c:40"
    assert text((0, (0x2000, 0x2000, 0x4000), 0)) == b"\nmain+8@b.c:30\nmain+8@b.c:29\n" + last + b"\n"


def test_what_a_signal_interrupted_is_where_it_was() -> None:
    known = {0x2000: [Frame("main", 8, "/bin/prog", "b.c", 30)], 0x7000: [Frame("__restore_rt", 0, "/lib/libc.so")]}
    calls = {0x2000: [Frame("main", 8, "/bin/prog", "b.c", 29)], 0x7000: [Frame("before", 16, "/lib/libc.so")]}
    symbols = Symbols(known, calls)
    symbols.trampolines = {0x7000}
    text = Names(symbols, Clock(), (), HostNames()).stack(Stack(True, 127, StackMode.BPFTRACE), b"")
    assert text((0, (0x2000, 0x7000, 0x2000, 0x2000), 0)).split() == [
        b"main+8@b.c:30", b"__restore_rt+0", b"main+8@b.c:30", b"main+8@b.c:29",
    ]  # fmt: skip


@pytest.mark.parametrize("mode", [StackMode.BPFTRACE, StackMode.PERF, StackMode.RAW])
@pytest.mark.parametrize("user", [False, True])
def test_remembered_frames_print_as_others(user: bool, mode: StackMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every order of places: innermost, called, interrupted; with source lines, without, inlined, unknown."""
    monkeypatch.setattr(render_names, "_REMEMBERED", 3)
    known = KNOWN | {
        0x4000: [Frame("start", 0, "/bin/prog", "b.c", 40)],
        0x5000: [Frame("loop", 8, "/bin/prog", "b.c", 50)],
        0x6000: [Frame("plain", 8, "/bin/prog")],
    }
    symbols = Symbols(known, {0x2000: [Frame("main", 8, "/bin/prog", "src/b.c", 29)],
                              0x5000: [Frame("loop", 8, "/bin/prog", "b.c", 49)]})  # fmt: skip
    symbols.trampolines = {0x7000}
    kind = Stack(user, 127, mode)
    names = Names(symbols, Clock(), (), HostNames())
    many, repeated = names.many_stacks(kind, b"  "), names.stack(kind, b"  ")
    places = (0x2000, 0x4000, 0x5000, 0x6000, 0x7000, 0x8000)
    for frames in [*permutations(places, 3), (0x5000,), (0x5000, 0x5000, 0x7000, 0x5000, 0x5000), ()]:
        for process in (1, 2):
            once = Names(symbols, Clock(), (), HostNames()).stack(kind, b"  ")
            assert many((process, frames, 0)) == repeated((process, frames, 0)) == once((process, frames, 0))


def test_build_ids_and_no_stack(names: Names) -> None:
    frames = ((1, bytes(range(20)), 0x5), (2, bytes(20), 0x7F00))
    expected = b"\n000102030405060708090a0b0c0d0e0f10111213 0x05\n7f00\n"
    assert names.stack(Stack(True, 127, StackMode.BUILD_ID))((3, frames, 0)) == expected
    text = names.stack(Stack(True))
    assert text((0, (), 0)) == b"\n"
    assert text((0, (), -14)) == b"\n"
    assert text((0, (), -22)) == b"\n        [no stack: Invalid argument]\n"


def test_users(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytrace.render.names._REMEMBERED", 10)
    assert names.user(0) == b"root"
    assert names.user(4_000_000_123) == b"4000000123"
    assert names.user(2**64 - 1) == b"18446744073709551615"
    for number in range(50):
        assert names.user(4_000_001_000 + number) == b"%d" % (4_000_001_000 + number)
    assert len(names._users) <= 10, "user namespaces may have any number of them"


def test_timestamp(names: Names) -> None:
    boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert names.timestamp((boot, 0, 0)) == time.strftime("%Y").encode()


def test_cgroups(tmp_path: Path) -> None:
    for path in ("v2/a/b", "v2/c", "cpu/x"):
        (tmp_path / path).mkdir(parents=True)
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "20 1 0:20 / /proc rw - proc proc rw\n"
        f"21 1 0:21 / {tmp_path}/cpu rw - cgroup cgroup rw,cpu\n22 1 0:22 / {tmp_path}/v2 rw - cgroup2 cgroup2 rw\n"
    )
    found = CgroupPaths(str(mounts))

    def inode(path: str) -> int:
        return os.stat(tmp_path / path).st_ino

    assert found.paths(inode("v2")) == "unified:/"
    assert found.paths(inode("v2/a/b")) == "unified:/a/b"
    assert found.paths(inode("v2/a/b"), "unif*") == "unified:/a/b"
    assert found.paths(inode("v2/a/b"), "cpu") == ""
    assert found.paths(inode("cpu/x")) == "cpu:/x"
    number = inode("v2/c")
    assert found.paths(number) == "unified:/c"
    (tmp_path / "v2/c").rmdir()
    assert found.paths(number) == ""
    (tmp_path / "v2/new").mkdir()
    assert found.paths(inode("v2/new")) == "unified:/new"


@pytest.mark.parametrize(
    ("frame", "plain", "perf"),
    [
        (Frame("", 0x3CC3, "/usr/bin/app"), b"app+0x3cc3", b"\t5000 app+0x3cc3 (/usr/bin/app)\n"),
        (Frame("", 0, "/usr/bin/app"), b"0x5000", b"\t5000 0x5000 ([unknown])\n"),
        (Frame("", 5, ""), b"0x5000", b"\t5000 0x5000 ([unknown])\n"),
    ],
)
def test_a_place_without_a_function(frame: Frame, plain: bytes, perf: bytes) -> None:
    names = Names(Symbols({0x5000: [frame]}), Clock(), (), HostNames())
    assert names.user_symbol((1, 0x5000)) == plain
    assert names.stack(Stack(True), b"")((1, (0x5000,), 0)) == b"\n" + plain + b"\n"
    assert names.stack(Stack(True, mode=StackMode.PERF))((1, (0x5000,), 0)) == b"\n" + perf


# ---------------------------------------------------------------------------------------------- stacks on one line

FUNCTIONS = {
    0x1000: [Frame("leaf;[odd]\n", 16, "[kernel]")],
    0x2000: [
        Frame("helper", 4, "/bin/prog", "src/a.c", 12, True),
        Frame("main", 8, "/bin/prog", "src/b.c", 30),
    ],
    0x4000: [Frame("", 0, "/usr/lib/libx.so.1")],
}
ADDRESSES = (0x1000, 0x2000, 0x3000, 0x4000)

LINES = {
    (StackMode.FOLDED, False): b"[libx.so.1];0x3000;main;helper;leaf:[odd]\\x0a",
    (StackMode.FOLDED, True): b"[libx.so.1];0x3000;main;helper;leaf:[odd]\\x0a",
    (StackMode.ANNOTATED, False): b"[libx.so.1]_[k];0x3000_[k];main_[k];helper_[i];leaf:[odd]\\x0a_[k]",
    (StackMode.ANNOTATED, True): b"[libx.so.1];0x3000;main;helper_[i];leaf:[odd]\\x0a",
    (StackMode.INVERTED, True): b"leaf:[odd]\\x0a;helper;main;0x3000;[libx.so.1]",
}


@pytest.mark.parametrize(("mode", "user"), list(LINES))
def test_lines_of_a_run(mode: StackMode, user: bool) -> None:
    text = Names(Symbols(FUNCTIONS), Clock(), (), HostNames()).stack(Stack(user, 127, mode))
    assert text((7, ADDRESSES, 0)) == LINES[mode, user]


@pytest.mark.parametrize(("mode", "user"), list(LINES))
def test_lines_of_a_snapshot(mode: StackMode, user: bool) -> None:
    frames = (
        PortableFrame("leaf;[odd]\n", 16, "[kernel]"),
        PortableFrame("helper", 4, "/bin/prog", inlined=True),
        PortableFrame("main", 8, "/bin/prog"),
        PortableFrame("", address=0x3000),
        PortableFrame("", module="/usr/lib/libx.so.1", address=0x4000),
    )
    text = PortableNames().stack(Stack(user, 127, mode))
    assert text(StackTrace(frames, user)) == LINES[mode, user]


MARKED = {
    StackMode.BPFTRACE: b"\nmain+8\n[truncated]\n",
    StackMode.PERF: b"\n\t2000 main+8 (/bin/prog)\n\t0 [truncated] ([unknown])\n",
    StackMode.RAW: b"\n2000\n[truncated]\n",
    StackMode.FOLDED: b"[truncated];main",
    StackMode.ANNOTATED: b"[truncated];main",
    StackMode.INVERTED: b"main;[truncated]",
    StackMode.BUILD_ID: b"\n2000\n[truncated]\n",
}


@pytest.mark.parametrize("mode", list(StackMode))
def test_a_truncated_stack_ends_with_a_mark(mode: StackMode) -> None:
    """In the run as in a snapshot; of a count that is one too high, and of zeros in place of outer frames."""
    kind, symbols = Stack(True, 3, mode), Places({0x2000: [Frame("main", 8, "/bin/prog")]}, {})
    frame = struct.pack("=i20sQ", 2, b"", 0x2000) if mode is StackMode.BUILD_ID else struct.pack("=Q", 0x2000)
    decode = Decoders().decoder(kind)
    value = decode(struct.pack("=iI", 4, 7) + frame + bytes(2 * len(frame)), 0)
    if mode is StackMode.BUILD_ID:
        value = for_any(lambda value: (value[0], (value[1][0], value[1][-1]), 0))(value)  # no frame of it is zero
    text = for_any(Names(symbols, Clock(), (), HostNames()).stack(kind, b""))
    assert text(value) == MARKED[mode]
    trace = for_any(StackTraces(symbols).form(kind))(value)
    assert trace.frames[-1].function == "[truncated]"
    assert PortableNames().stack(kind, b"")(trace).replace(b"\t0 main", b"\t2000 main") == MARKED[mode]


def test_lines_without_frames() -> None:
    text = Names(Symbols(FUNCTIONS), Clock(), (), HostNames()).stack(Stack(True, 127, StackMode.FOLDED))
    assert text((7, (), 0)) == b""
    assert text((7, (), -14)) == b""
    assert text((7, (), -22)) == b"[no stack: Invalid argument]"
    saved = PortableNames().stack(Stack(True, 127, StackMode.FOLDED))
    assert saved(StackTrace((), error="Invalid argument")) == b"[no stack: Invalid argument]"


def test_callers_in_lines_are_where_they_called() -> None:
    known = {0x2000: [Frame("main", 8, "/bin/prog", "b.c", 30)], 0x4000: [Frame("start", 1, "/bin/prog", "b.c", 40)]}
    calls = {0x4000: [Frame("abort", 20, "/bin/prog", "b.c", 9)]}
    text = Names(Symbols(known, calls), Clock(), (), HostNames()).stack(Stack(True, 127, StackMode.FOLDED))
    assert text((0, (0x2000, 0x4000), 0)) == b"abort;main"
