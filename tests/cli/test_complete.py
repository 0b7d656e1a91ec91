"""The tables of the command line, as completion sees them."""

from __future__ import annotations

from pytrace.cli.complete import tables, text
from pytrace.cli.options import OPTIONS


def test_all_options_that_are_shown_are_offered() -> None:
    rows = tables().options
    assert [row.key for row in rows] == [row.key for row in OPTIONS if not row.hidden]
    assert set(tables().values) <= {row.key for row in rows}


def test_values_of_options() -> None:
    assert "--buffering=line" in text("fish", "pytrace --buffering=l")
