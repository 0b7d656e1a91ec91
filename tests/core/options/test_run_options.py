"""What follows from the options of a run."""

from __future__ import annotations

from pytrace.core.options.process_filters import ProcessFilters
from pytrace.core.options.run_options import RunOptions


def test_processes_are_those_of_the_filters_else_that_of_pid() -> None:
    assert RunOptions().pids == ()
    assert RunOptions(pid=7).pids == (7,)
    assert RunOptions(pid=7, filters=ProcessFilters(pids=(7, 8))).pids == (7, 8)


def test_the_program_that_is_waited_for() -> None:
    assert RunOptions().exec_wait == ""
    assert RunOptions(filters=ProcessFilters(exec_wait="make")).exec_wait == "make"


def test_formats_of_snapshots_are_written_at_the_end() -> None:
    assert [RunOptions(format=name).exports for name in ("text", "json", "csv", "folded")] == [False] * 3 + [True]
