"""Tests of map files: names as they are appended, and files that somebody else may have put there."""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from pathlib import Path

import pytest

from pytrace.runtime.symbols import code_history, perf_map
from pytrace.runtime.symbols.perf_map import PerfMap
from tests.support.compiled_names import last


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The file that is looked at first, and the second one, which names a function."""
    first, second = tmp_path / "inner.map", tmp_path / "outer.map"
    second.write_text("1000 20 jitted\n")
    monkeypatch.setattr(perf_map, "_candidates", lambda _pid: ([str(first), str(second)], {os.geteuid()}))
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
    paths, owners = perf_map._candidates(os.getpid())
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
    places[0].unlink()
    assert last(found, 0x1010) == ("gone", 0x10)
    places[0].write_text("1000 20 again\n")
    assert last(found, 0x1010) == ("again", 0x10)
    monkeypatch.setattr(perf_map, "MOST_OPEN", 0)
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
    monkeypatch.setattr(perf_map, "MOST_READ", 3 << 20)
    monkeypatch.setattr(perf_map, "MOST_FUNCTIONS", 100_000)
    monkeypatch.setattr(perf_map, "MOST_ADDED", 100_000)
    places[0].write_text("".join(content.format(number=number) for number in range(1, 400_000)))
    found = PerfMap(1)
    assert last(found, 0x1000) is not None
    assert last(found, 1) is None
    assert "is too large: what is after its first" in found.problem


def test_lines_of_one_address_are_counted(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """60 MB of them took four seconds."""
    monkeypatch.setattr(perf_map, "MOST_LINES", 200_000)
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
        paths, owners = perf_map._candidates(os.getpid())
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
    row = perf_map._last_ones({0x0: (100, 2, 1), 0x32: (10, 3, 1), 0x46: (10, 1, 1)})
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
    reading = code_history.Reading()
    monkeypatch.setattr(perf_map, "READING", reading)
    monkeypatch.setattr(perf_map, "_PIECE", 4096)
    path = tmp_path / "map"
    path.write_text("".join(f"{0x1000 * at:x} 10 function_{at}\n" for at in range(1, 1000)))
    monkeypatch.setattr(perf_map, "_candidates", lambda pid: ([str(path)], {os.geteuid()}))
    reading.charge(os.geteuid(), 1000.0)
    names = PerfMap(1)
    assert names.find(0x1000) == []
    assert f"files of user {os.geteuid()} took too much time" in names.problem
    assert reading.refusal(os.geteuid() + 1) == "", "those of others are read"
    reading._spent.clear()
    assert names.find(0x1000) == [("function_1", 0)]
    assert names.find(0x1000 * 999) == [("function_999", 0)]
    monkeypatch.setattr(code_history, "MOST_TOGETHER", 1100)
    other = PerfMap(2)
    assert other.find(0x1000 * 999) == [("function_999", 0)]
    third = PerfMap(3)
    assert third.find(0x1000) == []
    assert "1100 functions of such files are known already" in third.problem
    del names
    gc.collect()
    assert third.find(0x1000 * 999) == [("function_999", 0)]
