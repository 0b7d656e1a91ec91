"""Filters of processes: which places their values have, and how they are written."""

from __future__ import annotations

import struct

import pytest

from pytrace.core.options.process_filters import FilterShape, ProcessFilters, places


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


def test_many_processes_are_not_compared_one_by_one() -> None:
    shape = ProcessFilters(tuple(range(1, 40))).shape
    assert (shape.pids, shape.listed, shape.size) == (64, 0, 0)


def test_a_single_process_is_no_part_of_what_a_file_is_compiled_with() -> None:
    assert FilterShape(pids=1).text() == ""
    assert FilterShape(pids=4, comms=1, awaited=True).text() == "-p (up to 4), --comm, --exec-wait"


def test_the_first_process_stands_for_all_of_them() -> None:
    assert ProcessFilters().pid is None
    assert ProcessFilters(pids=(7, 8)).pid == 7
