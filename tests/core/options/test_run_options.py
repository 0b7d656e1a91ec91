"""What follows from the options of a run."""

from __future__ import annotations

from pytrace.core.options.run_options import RunOptions


def test_formats_of_snapshots_are_written_at_the_end() -> None:
    assert [RunOptions(format=name).exports for name in ("text", "json", "csv", "folded")] == [False] * 3 + [True]
