"""Code that runtimes compile: perf maps, jit dumps, its history."""

from __future__ import annotations

import gc
import os
import random
import signal
import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from pytrace.runtime.machine.procfs import Mapping
from pytrace.runtime.stacks import compiled_code
from pytrace.runtime.stacks.address_space import JIT_DUMP_NAME, AddressSpace
from pytrace.runtime.stacks.compiled_code import Code, CodeHistory, CompiledCode, JitDump, PerfMap
from tests.support.compiled_names import last

# ---------------------------------------------------------------------------------------------- compiled code
# pytrace.runtime.stacks.compiled_code: names of compiled code by the time at which an address was seen.


PID = 1 << 22
CODE = Mapping(0x1000, 0x9000, 0, 0, 0, "")


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddressSpace:
    """A process with code and a jitdump file."""
    path = tmp_path / "jit-7.dump"
    path.write_bytes(header())
    monkeypatch.setattr(compiled_code, "_candidates", lambda _pid: ([str(tmp_path / "perf.map")], {path.stat().st_uid}))
    space = AddressSpace(PID)
    space.root, space.ended = "", True
    space.add(CODE)
    space.add(Mapping(0x20000, 0x21000, 0, 1, 5, str(path)))
    return space


def compile_code(space: AddressSpace, name: str, start: int = 0x1000) -> int:
    """Add a function to the file. Returns its time."""
    moment = time.monotonic_ns()
    with open(space.mappings[1].path, "ab") as file:
        file.write(load(start, 0x40, name, moment=moment))
    return moment


def shown(code: CompiledCode, space: AddressSpace, address: int = 0x1010) -> str:
    frame = code.frame(PID, space, CODE, address - 1, True)
    return f"{frame.name}+{frame.offset}"


def test_events_have_the_names_since_the_ring_buffer_was_empty(
    space: AddressSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytrace.runtime.stacks.compiled_code._SLACK", 0)
    code = CompiledCode({})
    compile_code(space, "first")
    code.drained(time.monotonic_ns())
    assert shown(code, space) == "first+16"
    compile_code(space, "second")
    assert shown(code, space) == "first or second+16"
    code.drained(time.monotonic_ns())
    assert shown(code, space) == "second+16"


def test_keys_have_the_names_of_their_period(space: AddressSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytrace.runtime.stacks.compiled_code._SLACK", 0)
    code = CompiledCode({})
    times = [compile_code(space, name) for name in ("first", "second", "third", "fourth")]
    after = time.monotonic_ns()
    periods = {(PID, 0x1010): (times[1], times[1]), (PID, 0x1011): (times[1], times[2])}
    code.keyed(periods, after)
    assert shown(code, space) == "second or fourth+16", "it may be that of an event"
    code.keyed(periods, after, over=True)
    assert shown(code, space) == "second+16"
    assert shown(code, space, 0x1011) == "second or third+17"
    assert shown(code, space, 0x1012) == "fourth+18", "it came after the search"
    code.keyed({(PID, 0x1010): (times[0], after)}, after)
    assert shown(code, space) == "[JIT]+16", "too many"


def test_what_is_followed(space: AddressSpace, tmp_path: Path) -> None:
    code = CompiledCode({})
    assert not code.follow(space), "it has named nothing"
    compile_code(space, "first")
    assert code.follow(space)
    plain = AddressSpace(PID)
    plain.ended = True
    plain.add(Mapping(0x1000, 0x2000, 0, 1, 5, "/usr/bin/plain"))
    (tmp_path / "perf.map").write_text("1000 10 f\n")
    assert not code.follow(plain)
    plain.add(CODE)
    assert code.follow(plain)


# ---------------------------------------------------------------------------------------------- perf map
# Tests of map files: names as they are appended, and files that somebody else may have put there.


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The file that is looked at first, and the second one, which names a function."""
    first, second = tmp_path / "inner.map", tmp_path / "outer.map"
    second.write_text("1000 20 jitted\n")
    monkeypatch.setattr(compiled_code, "_candidates", lambda _pid: ([str(first), str(second)], {os.geteuid()}))
    return first, second


def test_a_file_that_is_absent_is_passed_over(places: tuple[Path, Path]) -> None:
    assert last(PerfMap(1), 0x1010) == ("jitted", 0x10)


def test_pipes_do_not_hold_the_tracer_up(places: tuple[Path, Path]) -> None:
    os.mkfifo(places[0])
    assert last(PerfMap(1), 0x1010) == ("jitted", 0x10)


def test_links_are_not_followed(places: tuple[Path, Path], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("1000 20 secret\n")
    places[0].symlink_to(secret)
    assert last(PerfMap(1), 0x1010) == ("jitted", 0x10)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_passed_over(places: tuple[Path, Path]) -> None:
    places[0].write_text("1000 20 planted\n")
    os.chown(places[0], 12345, 12345)
    found = PerfMap(1)
    assert last(found, 0x1010) == ("jitted", 0x10)
    assert found.problem == f"{places[0]} is not used: it belongs to user 12345"


def test_the_user_of_the_process_may_own_it() -> None:
    paths, owners = compiled_code._candidates(os.getpid())
    assert paths == [f"/proc/{os.getpid()}/root/tmp/perf-{os.getpid()}.map", f"/tmp/perf-{os.getpid()}.map"]
    assert owners == {0, os.geteuid()}


def test_names_are_read_as_they_are_written(places: tuple[Path, Path]) -> None:
    path = places[0]
    path.write_text("1000 10 first\n0x2000 0x10 with a blank \nnonsense\n3000 10 unfin")
    found = PerfMap(1)
    assert last(found, 0x1000) == ("first", 0)
    assert last(found, 0x200F) == ("with a blank", 15)
    assert last(found, 0x2010) is None
    assert last(found, 0x3000) is None, "the line is not complete"
    with path.open("a") as file:
        file.write("ished\n1000 8 again\n0800 10 before\n")
    assert last(found, 0x3000) == ("unfinished", 0)
    assert last(found, 0x1000) == ("again", 0)
    assert last(found, 0x1008) is None
    assert last(found, 0x800) == ("before", 0)


@pytest.mark.parametrize("new", ["5000 10 a\n1000 10 b\n", "1000 10 b\n5000 10 a\n" * 100])
def test_a_file_that_is_written_anew_is_read_anew(places: tuple[Path, Path], new: str) -> None:
    places[0].write_text("1000 10 first\n2000 10 second\n")
    found = PerfMap(1)
    assert last(found, 0x2000) == ("second", 0)
    places[0].write_text(new)
    assert last(found, 0x5000) == ("a", 0)
    assert last(found, 0x1000) == ("b", 0)
    assert last(found, 0x2000) is None


def test_a_replaced_file_is_read_anew(places: tuple[Path, Path], tmp_path: Path) -> None:
    places[0].write_text("1000 10 first\n")
    found = PerfMap(1)
    assert last(found, 0x1000) == ("first", 0)
    (tmp_path / "new").write_text("1000 10 other\n2000 10 second\n")
    (tmp_path / "new").rename(places[0])
    assert last(found, 0x2000) == ("second", 0)
    assert last(found, 0x1000) == ("other", 0)


def test_a_file_that_was_read_may_be_removed(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs remove it at their end, and containers go; another one at its place counts again."""
    places[1].unlink()
    places[0].write_text("1000 20 gone\n")
    found = PerfMap(1)
    found.read_on()
    with places[0].open("a") as file:
        file.write("2000 20 added before the end\n")
    places[0].unlink()
    assert last(found, 0x1010) == ("gone", 0x10)
    assert last(found, 0x2010) == ("added before the end", 0x10)
    places[0].write_text("1000 20 again\n")
    assert last(found, 0x1010) == ("again", 0x10)
    monkeypatch.setattr(compiled_code, "MOST_OPEN", 0)
    assert last(PerfMap(1), 0x1010) == ("again", 0x10)


def test_a_sparse_file_costs_nothing(places: tuple[Path, Path]) -> None:
    """``truncate -s 3G /tmp/perf-PID.map`` took 3 GB and 23 seconds."""
    path = places[0]
    path.write_text("1000 10 first\n")
    with path.open("r+b") as file:
        file.truncate(3 << 30)
        file.seek(2 << 30)
        file.write(b"\n2000 10 second\n")
    tracemalloc.start()
    started = time.process_time()
    found = PerfMap(1)
    assert last(found, 0x1000) == ("first", 0)
    assert last(found, 0x2000) == ("second", 0)
    assert last(found, 0x9000) is None
    assert time.process_time() - started < 2
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("content", ["1000 10 f{number:x}\n", "{number:x}000 1 f\n"])
def test_a_large_file_is_read_up_to_a_limit(
    content: str, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_code, "MOST_READ", 3 << 20)
    monkeypatch.setattr(compiled_code, "MOST_FUNCTIONS", 100_000)
    monkeypatch.setattr(compiled_code, "MOST_ADDED", 100_000)
    places[0].write_text("".join(content.format(number=number) for number in range(1, 400_000)))
    found = PerfMap(1)
    assert last(found, 0x1000) is not None
    assert last(found, 1) is None
    assert "is too large: what is after its first" in found.problem


def test_lines_of_one_address_are_counted(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """60 MB of them took four seconds."""
    monkeypatch.setattr(compiled_code, "MOST_LINES", 200_000)
    places[0].write_text("1000 9 a\n" * 300_000 + "2000 9 b\n")
    found = PerfMap(1)
    assert last(found, 0x1000) == ("a", 0)
    assert last(found, 0x2000) is None
    assert "is too large: what is after its first" in found.problem


def test_a_file_without_lines(places: tuple[Path, Path]) -> None:
    places[0].write_bytes(b"1000 10 " + b"x" * (3 << 20) + b"\n2000 10 second\n")
    found = PerfMap(1)
    name, _ = last(found, 0x1000) or ("", 0)
    assert 4000 < len(name) < 4096
    assert last(found, 0x2000) == ("second", 0)


@pytest.mark.parametrize("name", ["a\x0bUid:\t0 0", "a\x0bNSpid:\tx", "a\x1cUid:\tx", "\x85NSpid:", "\rUid: 7"])
def test_the_name_of_a_process_says_nothing_about_its_user(name: str) -> None:
    comm = Path("/proc/self/comm")
    before = comm.read_text()
    try:
        comm.write_text(name[:15])
        paths, owners = compiled_code._candidates(os.getpid())
    finally:
        comm.write_text(before.strip())
    assert owners == {0, os.geteuid()}
    assert paths[1] == f"/tmp/perf-{os.getpid()}.map"


def test_code_that_was_reused_is_that_of_the_last_function(places: tuple[Path, Path]) -> None:
    places[0].write_text(
        "1000 100 old\n2000 10 apart\n1040 20 inside\n"  # in the middle of an older one
        "3010 10 stale\n3000 40 over\n3030 8 newest\n"
    )
    found = PerfMap(1)
    assert last(found, 0x1000) == ("old", 0)
    assert last(found, 0x1050) == ("inside", 0x10)
    assert last(found, 0x1070) is None, "what is left of the older one"
    assert last(found, 0x2000) == ("apart", 0)
    assert last(found, 0x3010) == ("over", 0x10)
    assert last(found, 0x3031) == ("newest", 1)


def test_a_function_that_was_replaced_stays_away_when_the_newer_one_is_replaced_in_part() -> None:
    row = compiled_code._last_ones({0x0: (100, 2, 1), 0x32: (10, 3, 1), 0x46: (10, 1, 1)})
    assert row == {0x0: (0x32, 2, 1), 0x32: (10, 3, 1)}


def test_functions_that_are_added_while_a_process_is_known_have_a_time(places: tuple[Path, Path]) -> None:
    path = places[0]
    path.write_text("1000 40 stale\n1000 40 first\n2000 10 apart\n")
    found = PerfMap(1)
    begin = time.monotonic_ns()
    assert found.find(0x1024, (begin, begin)) == [("first", 0x24)]
    known = time.monotonic_ns()
    with path.open("a") as file:
        file.write("1020 40 second\n3000 10 new\n")
    assert last(found, 0x1024) == ("second", 4)
    after = time.monotonic_ns()
    assert found.find(0x1024, (begin, begin)) == [("first", 0x24)]
    assert found.find(0x1024, (known, known)) == [("first", 0x24), ("second", 4)], "it came between two readings"
    assert found.find(0x1024, (begin, after)) == [("first", 0x24), ("second", 4)]
    assert found.find(0x1024, (after, after)) == [("second", 4)]
    assert found.find(0x1004, (after, after)) == [("first", 4)]
    assert found.find(0x2000, (begin, after)) == [("apart", 0)]
    assert found.find(0x3000, (begin, begin)) == [("new", 0)], "it may have been noted late"
    with path.open("a") as file:
        file.write("1000 80 second\n")
    assert found.find(0x1024, (after, time.monotonic_ns())) == [("second", 0x24)], "names are distinct"


def test_many_files_of_one_owner_do_not_take_all_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a thousand processes may have one of 60 MB. What is left out is read when there is time again."""
    reading = compiled_code.Reading()
    monkeypatch.setattr(compiled_code, "READING", reading)
    monkeypatch.setattr(compiled_code, "_PIECE", 4096)
    monkeypatch.setattr(compiled_code, "_COUNT_EVERY", -1)
    path = tmp_path / "map"
    path.write_text("".join(f"{0x1000 * at:x} 10 function_{at}\n" for at in range(1, 1000)))
    monkeypatch.setattr(compiled_code, "_candidates", lambda pid: ([str(path)], {os.geteuid()}))
    reading.charge(os.geteuid(), 1000.0)
    names = PerfMap(1)
    assert names.find(0x1000) == []
    assert f"files of user {os.geteuid()} took too much time" in names.problem
    assert reading.refusal(os.geteuid() + 1) == "", "those of others are read"
    reading._spent.clear()
    assert names.find(0x1000) == [("function_1", 0)]
    assert names.find(0x1000 * 999) == [("function_999", 0)]
    monkeypatch.setattr(compiled_code, "MOST_TOGETHER", 1100)
    other = PerfMap(2)
    assert other.find(0x1000 * 999) == [("function_999", 0)]
    third = PerfMap(3)
    assert third.find(0x1000) == []
    assert "1100 functions of such files are known already" in third.problem
    del names
    gc.collect()
    assert third.find(0x1000 * 999) == [("function_999", 0)]


OVERLAPPING = {
    "each over the ones before": lambda at: (0x1000 + at, 0x40000),
    "each inside the one before": lambda at: (0x1000 + at, 2 * (30_000 - at)),
    "in turn": lambda at: (0x1000 + 16 * (at % 1000), 0x4000),
    "at one address": lambda _: (0x1000, 16),
}


def read_for_ever(found: PerfMap) -> None:
    """Read a file again and again, until a signal of the timer ends it."""
    try:
        while True:
            found._clear()
            found._state = (0, 0, 0, 0)
            found.read_on()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@pytest.mark.parametrize("shape", OVERLAPPING)
def test_functions_that_overlap_are_charged_for_and_interrupted(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """130,000 of them took minutes, of a process that anybody may start."""
    reading = compiled_code.Reading()
    monkeypatch.setattr(compiled_code, "READING", reading)
    monkeypatch.setattr(compiled_code, "_BURST", 0.1)
    _, path = places
    path.write_text("")
    found = PerfMap(PID)
    rows = map(OVERLAPPING[shape], range(30_000))
    path.write_text("".join(f"{start:x} {size:x} f{at}\n" for at, (start, size) in enumerate(rows)))
    begun = time.thread_time()
    since = time.monotonic_ns()
    found.read_on()
    if "took too much time" not in found.problem:
        assert found.functions == 30_000
    assert time.thread_time() - begun < 5
    assert len(found.find(0x1008, (0, time.monotonic_ns()))) <= compiled_code.MOST_FOUND
    assert found.find(0x1008, (since, since))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compiled_code, "_BURST", 1e9)
    former = signal.signal(signal.SIGPROF, interrupt)
    gc.disable()  # what a collector calls swallows an exception
    try:
        again = PerfMap(PID)
        again._early = {}
        signal.setitimer(signal.ITIMER_PROF, 0.05, 0.05)
        with pytest.raises(KeyboardInterrupt):
            read_for_ever(again)
        assert time.thread_time() - begun < 10
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.enable()
        signal.signal(signal.SIGPROF, former)


# ---------------------------------------------------------------------------------------------- jit dump
# Tests of jitdump files: functions in the order in which they were compiled, and files that are none.


OURS = {os.geteuid()}


def header(order: str = "<", size: int = 40) -> bytes:
    return struct.pack(f"{order}IIIIIIQQ", 0x4A695444, 1, size, 62, 0, 7, 0, 0).ljust(size, b"\0")


def record(kind: int, body: bytes, order: str = "<", moment: int = 5) -> bytes:
    return struct.pack(f"{order}IIQ", kind, 16 + len(body), moment) + body


def load(start: int, size: int, name: str, order: str = "<", moment: int = 5) -> bytes:
    head = struct.pack(f"{order}IIQQQQ", 7, 7, start, start, size, 1)
    return record(0, head + name.encode() + b"\0" + bytes(min(size, 64)), order, moment)


def move(old: int, new: int, size: int, moment: int = 5) -> bytes:
    return record(1, struct.pack("<IIQQQQQ", 7, 7, new, old, new, size, 1), moment=moment)


def dump(path: Path, data: bytes, begin: int = 0) -> JitDump:
    path.write_bytes(data)
    return JitDump(str(path), OURS, begin)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jit-7.dump"


@pytest.mark.parametrize("order", ["<", ">"])
def test_functions(path: Path, order: str) -> None:
    found = dump(path, header(order, 48) + load(0x1000, 32, "first", order) + load(0x3000, 16, "ünï", order))
    assert last(found, 0x1000) == ("first", 0)
    assert last(found, 0x101F) == ("first", 31)
    assert last(found, 0x1020) is None
    assert last(found, 0x3004) == ("ünï", 4)
    assert found.problem == ""


def test_what_is_appended_is_read_when_it_is_needed(path: Path) -> None:
    late = load(0x2000, 16, "late")
    found = dump(path, header() + load(0x1000, 16, "first") + late[:30])
    assert last(found, 0x2000) is None
    with path.open("ab") as file:
        file.write(late[30:] + record(2, bytes(16)) + record(3, b"") + record(99, b"12345678"))
    assert last(found, 0x2000) == ("late", 0)
    assert last(found, 0x1000) == ("first", 0)


def test_code_that_was_reused_or_moved_is_that_of_the_last_function(path: Path) -> None:
    found = dump(
        path,
        header() + load(0x1000, 0x100, "old") + load(0x2000, 0x10, "apart") + load(0x1040, 0x20, "new")
        + load(0x5000, 0x30, "moves") + move(0x5000, 0x6000, 0x30),
    )  # fmt: skip
    assert last(found, 0x1050) == ("new", 0x10)
    assert last(found, 0x1000) is None, "what is left of it is no function"
    assert last(found, 0x2000) == ("apart", 0)
    assert last(found, 0x6004) == ("moves", 4)
    assert last(found, 0x5004) is None


def test_functions_at_the_time_of_a_sample(path: Path) -> None:
    found = dump(
        path,
        header() + load(0x1000, 0x40, "first", moment=100) + load(0x5000, 0x40, "moves", moment=150)
        + load(0x1020, 0x40, "second", moment=200) + move(0x5000, 0x1000, 0x30, moment=300),
        begin=50,
    )  # fmt: skip
    assert found.find(0x1024, (110, 120)) == [("first", 0x24)]
    assert found.find(0x1024, (210, 220)) == [("second", 4)]
    assert found.find(0x1024, (310, 320)) == [("moves", 0x24)]
    assert found.find(0x1024, (190, 210)) == [("first", 0x24), ("second", 4)]
    assert found.find(0x1024, (100, 400)) == [("first", 0x24), ("second", 4), ("moves", 0x24)]
    assert found.find(0x1024, (60, 70)) == [("first", 0x24)], "it was not noted yet"
    assert found.find(0x1004, (210, 220)) == [], "what is left of it is no function"
    assert found.find(0x5004, (160, 170)) == [("moves", 4)]
    assert found.find(0x5004, (310, 320)) == [], "it was moved from there"


def test_functions_that_were_replaced_before_the_run_are_not_remembered(path: Path) -> None:
    found = dump(path, header() + load(0x1000, 16, "a", moment=1) + load(0x1000, 16, "b", moment=2), begin=10)
    assert found.find(0x1000, (0, 20)) == [("b", 0)]


def test_times_that_no_clock_of_ours_says(path: Path) -> None:
    """Times of the processor's counter, and times that go backwards or are yet to come."""
    data = bytearray(header())
    data[32] = 1
    found = dump(path, bytes(data) + load(0x1000, 16, "old", moment=1 << 60))
    assert last(found, 0x1000) == ("old", 0)
    before = time.monotonic_ns()
    with path.open("ab") as file:
        file.write(load(0x1000, 16, "new", moment=3))
    assert last(found, 0x1000) == ("new", 0)
    assert found.find(0x1000, (before - 1, before)) == [("old", 0), ("new", 0)], "it came between two readings"
    path.write_bytes(header() + load(0x1000, 16, "late", moment=1 << 60) + load(0x1000, 16, "early", moment=1))
    assert last(JitDump(str(path), OURS, 0), 0x1000) == ("early", 0)


@pytest.mark.parametrize(
    "data", [b"", b"JiTD", header()[:39], bytes(64), header() + record(0, b"short"), header() + bytes(16)]
)
def test_files_that_are_none(path: Path, data: bytes) -> None:
    assert last(dump(path, data), 0x1000) is None


def test_links_pipes_and_files_of_others(path: Path, tmp_path: Path) -> None:
    whole = header() + load(0x1000, 16, "secret")
    (tmp_path / "secret").write_bytes(whole)
    path.symlink_to(tmp_path / "secret")
    assert last(JitDump(str(path), OURS, 0), 0x1000) is None
    path.unlink()
    os.mkfifo(path)
    assert last(JitDump(str(path), OURS, 0), 0x1000) is None
    path.unlink()
    found = dump(path, whole)
    found._owners = {os.geteuid() + 1}
    assert last(found, 0x1000) is None
    assert "belongs to user" in found.problem


def test_large_files_are_read_in_part(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_code, "MOST_DUMPED", 3)
    found = dump(path, header() + b"".join(load(0x1000 * number, 16, f"f{number}") for number in range(1, 9)))
    assert last(found, 0x2000) == ("f2", 0)
    assert last(found, 0x8000) is None
    assert "too large" in found.problem


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("/tmp/jit-12.dump", True), ("/srv/a b/jit-1.dump", True), ("/tmp/xjit-1.dump", False), ("/tmp/jit-.dump", False)],
)
def test_names_of_files(name: str, is_one: bool) -> None:
    assert bool(JIT_DUMP_NAME.search(name)) is is_one


# ---------------------------------------------------------------------------------------------- code history
# pytrace.runtime.stacks.compiled_code: random code, compared with a table of each address and moment.


SPACE, MOMENTS = 40, 30


class Model:
    """What is at each address after each moment; None where nothing is, absent where nothing has ever been."""

    def __init__(self, keeps_heads: bool) -> None:
        self.keeps_heads = keeps_heads
        self.now: dict[int, Code | None] = {}
        self.after: list[dict[int, Code | None]] = [{}]

    def replace(self, start: int, end: int, code: Code | None) -> None:
        gone = {id(old) for at in range(start, end) if (old := self.now.get(at)) is not None}
        for at, old in list(self.now.items()):
            if old is not None and id(old) in gone and not (self.keeps_heads and at < start):
                self.now[at] = None
        for at in range(start, end):
            if code is not None or at in self.now:
                self.now[at] = code
        self.after.append(dict(self.now))

    def find(self, at: int, first: int, last: int) -> list[Code]:
        """By the functions after each moment; the first one ever, if it came later."""
        found: list[Code | None] = []
        for moment in range(first, last + 1):
            if at in self.after[moment] and (not found or found[-1] is not self.after[moment][at]):
                found.append(self.after[moment][at])
        if not found:
            found = [held[at] for held in self.after if at in held][:1]
        return [code for code in found if code is not None]


@pytest.mark.parametrize("keeps_heads", [False, True])
def test_functions_at_each_moment(keeps_heads: bool) -> None:
    draw = random.Random(7)
    for _ in range(60):
        model, history = Model(keeps_heads), CodeHistory(0, keeps_heads=keeps_heads)
        for moment in range(1, MOMENTS):
            start = draw.randrange(SPACE)
            size = draw.randrange(1, 12)
            if draw.random() < 0.8:
                code = Code(start, size, moment)
                model.replace(start, start + size, code)
                history.put(code, (moment, moment))
            else:
                model.replace(start, start + size, None)
                history.remove(start, start + size, (moment, moment))
        for at in range(SPACE + 12):
            first = draw.randrange(1, MOMENTS)
            last = draw.randrange(first, MOMENTS)
            assert history.find(at, (first, last)) == model.find(at, first, last), (at, first, last)
            assert history.covers(at) or not history.find(at)


def test_code_that_replaces_too_much_has_no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_code, "_MOST_REPLACED", 3)
    history = CodeHistory(0)
    for number in range(4):
        history.put(Code(10 * number, 10, number), (1, 1))
    wide = Code(0, 1 << 64, 9)
    history.put(wide, (2, 2))
    assert history.find(5, (1, 1)) == [wide]
    assert history.find(1 << 63) == [wide]
