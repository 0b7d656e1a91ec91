"""Options of compilations and runs, and their types."""

from __future__ import annotations

import errno
import os
import signal
import struct
from pathlib import Path

import pytest

from pytrace.core import options, script_options
from pytrace.core.options import FilterShape, ProcessFilters, RunOptions, environment, places
from pytrace.core.script_options import ScriptOption, Value, WrongValueError, convert, default
from pytrace.frontend.expand import parameters
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- option types
# .


@each_row(
    ("name", "text", "value"),
    [
        ("0..", "0", 0),
        ("0..", "-1", None),
        ("0..", "x", None),
        ("1..64", "64", 64),
        ("1..64", "65", None),
        ("-5..5", "-5", -5),
        ("seconds", "0", 0),
        ("seconds", "2", 2_000_000_000),
        ("seconds", "0.5", 500_000_000),
        ("seconds", ".25", 250_000_000),
        ("seconds", "1.0000000019", 1_000_000_001),
        ("seconds", "500ms", 500_000_000),
        ("seconds", "2m", 120_000_000_000),
        ("seconds", "-1", None),
        ("seconds", "1e3", None),
        ("seconds", ".", None),
        ("seconds", "9" * 20, None),
        ("interval", "0.5", 500_000_000),
        ("interval", "0", None),
        ("interval", "0.0000001", None),
        ("pid", "1", 1),
        ("pid", "0", None),
        ("pid", "9999999", None),
        ("port", "80", 80),
        ("port", "http", None),
        ("port", "65536", None),
        ("cpu", "0", 0),
        ("cpu", "-1", None),
        ("disk", "/dev/sda", "sda"),
        ("disk", "nvme0n1", "nvme0n1"),
        ("disk", "a/b", None),
        ("interface", "eth0.5", "eth0.5"),
        ("interface", "a/b", None),
        ("comm", "fifteen_bytes_x", "fifteen_bytes_x"),
        ("comm", "Web Content", "Web Content"),
        ("comm", "sixteen_bytes_xx", None),
        ("comm", "", None),
        ("directory", "/proc/../proc/", "/proc"),
        ("directory", "/proc/version", None),
        ("netns", "4026531840", 4026531840),
        ("netns", "/proc/self/ns/net", os.stat("/proc/self/ns/net").st_ino),
        ("netns", "no such", None),
        ("netns", "0", None),
        ("address", "::FFFF", "::ffff"),
        ("address", "1.2.3.400", None),
        ("errno", "ENOENT", errno.ENOENT),
        ("errno", "enoent", errno.ENOENT),
        ("errno", "EWOULDBLOCK", errno.EAGAIN),
        ("errno", "512", 512),
        ("errno", "EFOO", None),
        ("errno", "0", None),
        ("signal", "SIGKILL", signal.SIGKILL),
        ("signal", "term", signal.SIGTERM),
        ("signal", "64", 64),
        ("signal", "SIGNO", None),
        ("syscall", "openat", "openat"),
        ("syscall", "open at", None),
    ],
)
def test_entries(name: str, text: str, value: int | str | None) -> None:
    type_ = script_options.find_type(name)
    assert type_ is not None
    assert type_.entry(text) == value


def test_types_of_options() -> None:
    assert script_options.find_type("ports") is None
    assert script_options.find_type("0...") is None
    assert script_options.suggestions(script_options.TYPES["errno"], "enoentt")[0].startswith("did you mean 'ENOENT'")
    assert script_options.suggestions(script_options.TYPES["port"], "http") == ()


def test_numbers_and_times() -> None:
    assert script_options.default_of_type("seconds", 5) == 5_000_000_000
    assert script_options.default_of_type("interval", 0) == 0
    assert script_options.default_of_type("port", 5) == 5
    assert {name for name in script_options.TYPES if not parameters.is_number(name)} == {
        "disk", "interface", "address", "syscall", "comm", "directory",
    }  # fmt: skip
    assert parameters.is_number("0..5")


def test_a_working_directory_that_was_removed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert script_options.TYPES["directory"].entry(".") is None


# ---------------------------------------------------------------------------------------------- option values
# .


FLAG = ScriptOption(("x",), False)
NUMBER = ScriptOption(("n",), 0, argument="N")
TEXT = ScriptOption(("t",), "", argument="TEXT")
CHOICE = ScriptOption(("c",), "a", argument="C", choices=("a", "b"))
LIST = ScriptOption(("l",), "a", argument="L", choices=("a", "b"), listed=True)
SEVERAL = ScriptOption(("s",), "", argument="S", choices=("a", "b"), repeat=True)


@each_row(
    ("option", "text", "value"),
    [
        (FLAG, None, True),
        (FLAG, "false", False),
        (NUMBER, "0", 0),
        (NUMBER, "-5", -5),
        (NUMBER, "0x10", 16),
        (NUMBER, "010", 8),
        (NUMBER, "1ms", 1_000_000),
        (NUMBER, str(2**64 - 1), 2**64 - 1),
        (TEXT, "", ""),
        (TEXT, "a b", "a b"),
        (CHOICE, "b", "b"),
        (SEVERAL, "a\nb", "a\nb"),
        (LIST, "b, a", "b,a"),
    ],
)
def test_values(option: ScriptOption, text: str | None, value: Value) -> None:
    found = convert(option, text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("option", "text", "needs"),
    [
        (FLAG, "maybe", "true or false"),
        (NUMBER, "x", "an integer"),
        (NUMBER, "", "an integer"),
        (NUMBER, "-", "an integer"),
        (NUMBER, str(2**64), "an integer of 64 bits"),
        (NUMBER, None, "an argument: N"),
        (CHOICE, "c", "one of a, b"),
        (SEVERAL, "a\nc", "one of a, b"),
        (LIST, "a,c", "some of a, b"),
    ],
)
def test_refused_values(option: ScriptOption, text: str | None, needs: str) -> None:
    with pytest.raises(WrongValueError) as found:
        convert(option, text)
    assert str(found.value) == needs


PORTS = ScriptOption(("p",), "", argument="PORTS", type="port", listed=True)
ERRORS = ScriptOption(("e",), "", argument="E", type="errno", listed=True, repeat=True)
TIME = ScriptOption(("i",), 2, argument="SECONDS", type="seconds")


def test_typed_values() -> None:
    assert convert(PORTS, "80, 443") == "80,443"
    assert convert(ERRORS, "ENOENT,13\n4") == "2,13,4"
    assert convert(TIME, "0.5") == 500_000_000
    assert default(TIME) == 2_000_000_000
    assert default(PORTS) == ""


@pytest.mark.parametrize(
    ("option", "text", "shown"),
    [
        (PORTS, "http", "ports from 1 to 65535, separated by commas (80,443), not 'http'"),
        (PORTS, "80,http", "ports from 1 to 65535, separated by commas (80,443), not 'http' (of '80,http')"),
        (PORTS, "80,,1", "ports from 1 to 65535, separated by commas (80,443), not '' (of '80,,1')"),
        (TIME, "soon", "a time in seconds (2 or 0.5) or with a unit (500ms, 2m), not 'soon'"),
    ],
)
def test_refused_entries_are_named(option: ScriptOption, text: str, shown: str) -> None:
    with pytest.raises(WrongValueError) as found:
        convert(option, text)
    assert found.value.shown(text) == shown


def test_similar_names_are_suggested() -> None:
    with pytest.raises(WrongValueError) as found:
        convert(ERRORS, "ENOENTT")
    assert "'ENOENT'" in found.value.hints[0]


# ---------------------------------------------------------------------------------------------- compile options
# Which variables of the environment a compilation depends on.


KEPT = {"PYTRACE_STRLEN": "9", "BPFTRACE_STRLEN": "8", "CPATH": "/a", "C_INCLUDE_PATH": "/b"}


@pytest.mark.parametrize(("mark_unreadable", "added"), [(False, {}), (True, {"PYTRACE_MARK_UNREADABLE": "1"})])
def test_variables_that_do_not_matter_are_left_out(
    mark_unreadable: bool, added: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {"HOME": "/root", "XPYTRACE_STRLEN": "7", "CPATHS": "/c", "pytrace_strlen": "6"}
    monkeypatch.setattr("os.environ", {**others, **KEPT})
    assert environment(mark_unreadable=mark_unreadable) == {**KEPT, **added}


def test_the_option_overrides_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"PYTRACE_MARK_UNREADABLE": "0"})
    assert environment(mark_unreadable=False) == {"PYTRACE_MARK_UNREADABLE": "0"}
    assert environment(mark_unreadable=True) == {"PYTRACE_MARK_UNREADABLE": "1"}


# ---------------------------------------------------------------------------------------------- run options
# What follows from the options of a run.


def test_formats_of_snapshots_are_written_at_the_end() -> None:
    assert [RunOptions(format=name).exports for name in ("text", "json", "csv", "folded")] == [False] * 3 + [True]


# ---------------------------------------------------------------------------------------------- script options
# Names of options of scripts.


def test_letters_and_words() -> None:
    # A script asks for an option by its word; one that has only a letter, by that.
    assert ScriptOption(("x", "failed", "fails"), False).name == "failed"
    assert ScriptOption(("T",), False).name == "T"
    # Names of one letter take one dash, others two.
    option = ScriptOption(("x", "failed", "X"), False)
    assert (option.letters, option.words) == (("x", "X"), ("failed",))


# ---------------------------------------------------------------------------------------------- memory sizes
# Amounts of memory as users write them.


TOTAL = 8 << 30


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("512M", 512 << 20), ("2G", 2 << 30), ("10%", TOTAL // 10), ("1.5g", 3 << 29), ("64 KiB", 64 << 10),
        ("4096", 4096), ("1T", 1 << 40), ("100%", TOTAL), ("0.5%", TOTAL // 200), ("300MB", 300 << 20),
    ],
)  # fmt: skip
def test_amounts(text: str, amount: int) -> None:
    assert options.parse_memory(text, TOTAL) == amount


@each_row("text", ["", "M", "-1M", "0", "0%", "101%", "1X", "1e9", "nan", "10 %%", "0x10", "1M2"])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ValueError, match=r"memory"):
        options.parse_memory(text, TOTAL)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(5, "5 bytes"), (4096, "4.0 KiB"), (300 << 20, "300 MiB"), (3 << 29, "1.5 GiB"), (1 << 40, "1.0 TiB")],
)
def test_amounts_are_shown_with_a_unit(amount: int, text: str) -> None:
    assert options.shown_memory(amount) == text


# ---------------------------------------------------------------------------------------------- process filters
# Filters of processes: which places their values have, and how they are written.


@pytest.mark.parametrize(("count", "room"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (17, 32)])
def test_places_are_powers_of_two(count: int, room: int) -> None:
    assert places(count) == room


def test_runs_with_other_values_have_the_same_shape() -> None:
    one = ProcessFilters((1, 2, 3), (0,), ("a",), ((1, 2),), (5,), "x")
    other = ProcessFilters((4, 5, 6, 7), (9,), ("b",), ((3, 4),), (6,), "y")
    assert one.shape == other.shape != ProcessFilters().shape


def test_values_are_packed_and_free_places_repeat_the_first() -> None:
    filters = ProcessFilters((1, 2, 3), (10,), ("ab", "c" * 20), ((2, 77),), (4026531840,), "prog")
    memory = bytearray(8 + filters.shape.size)
    filters.pack(memory, 8)
    shape = filters.shape
    assert struct.unpack_from("=4Q", memory, 8) == (1, 2, 3, 1)
    assert struct.unpack_from("=QQ", memory, 8 + shape.uids_at) == (10, 4026531840)
    assert memory[8 + shape.comms_at :][:32] == b"ab".ljust(16, b"\0") + b"c" * 15 + b"\0"
    assert struct.unpack_from("=QQ", memory, 8 + shape.cgroups_at) == (2, 77)
    assert memory[8 + shape.awaited_at :] == b"prog".ljust(16, b"\0")


def test_filters_of_processes() -> None:
    shape = ProcessFilters(tuple(range(1, 40))).shape
    assert (shape.pids, shape.listed, shape.size) == (64, 0, 0)
    assert FilterShape(pids=1).text() == ""
    assert FilterShape(pids=4, comms=1, awaited=True).text() == "-p (up to 4), --comm, --exec-wait"
    assert ProcessFilters().pid is None
    assert ProcessFilters(pids=(7, 8)).pid == 7
