"""What row() takes: records; what it refuses, and the names of scripts that are its own."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from pytrace.core.event_layout import RowMembers
from pytrace.core.types import Record
from tests.support.front import analyse

REFUSED = [
    ("begin { row(pid=1); }", "1:16-17", "syntax: unexpected '=', expected ')' or ','"),
    ("begin { row(); }", "1:9-14", "row() takes 1 argument, not 0"),
    ("begin { row((a=1), (b=2)); }", "1:9-26", "row() takes 1 argument, not 2"),
    ("begin { row((pid, comm)); }", "1:13-24", "row() takes a record, whose members have names, not the tuple (uint32,string[16])"),
    ("begin { row(()); }", "1:13-15", "row() takes a record, whose members have names, not the tuple ()"),
    ("begin { row(5); }", "1:13-14", "row() takes a record, whose members have names, not int8"),
    ("begin { row(comm); }", "1:13-17", "row() takes a record, whose members have names, not string[16]"),
    ("begin { row(*curtask); }", "1:13-21", "row() takes a record, whose members have names, not struct task_struct"),
    ("begin { row(uint32); }", "1:13-19", "row() takes a record, not a type"),
    ("begin { @m[1] = (a=1); row(@m); }", "1:28-30", "row() takes a record, not the map @m"),
    ("begin { @m[1] = count(); row(@m); }", "1:30-32", "row() takes a record, not the map @m"),
    ("begin { @m = hist(2); row((a=@m)); }", "1:30-32", "a value of hist_t cannot be read by the script"),
    ("begin { @m = stats(2); row((a=@m)); }", "1:31-33", "stats_t cannot be part of a value"),
    ("begin { row((a=print(1))); }", "1:16-24", "this has no value"),
    ("begin { row((a=1, a=2)); }", "1:19-20", "syntax: the record has a field 'a' already"),
    ("begin { print(row); }", "1:15-18", "row is a function: row((name=value, …))"),
]


@pytest.mark.parametrize(("script", "place", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(script: str, place: str, message: str) -> None:
    assert analyse(script).errors == [(place, message)]


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("begin { row(pid=1); }", "row() takes a record: write row((name=value, …)), with two pairs of parentheses"),
        ("begin { row((1, 2)); }", "write row((pid=pid, comm=comm)), with a name for each column"),
        ("begin { @m[1] = (a=1); row(@m); }", "print(@m) prints the map, row(@m[key]) the record of one key"),
    ],
)
def test_hints(script: str, hint: str) -> None:
    (error,) = analyse(script).diagnostics.errors
    assert hint in error.hints


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("begin { row((a=1, b=comm)); }", ["a", "b"]),
        ("begin { row((a=(b=1, c=(2, pid)), d=3)); }", ["a.b", "a.c.0", "a.c.1", "d"]),
        ("begin { $r = (a=1, b=2); row($r); }", [""]),
        ("begin { $r = (a=1, b=2); row((x=$r, y=1)); }", ["x", "y"]),
        ("begin { @m[1] = (a=1); row(@m[1]); }", [""]),
        ("begin { @r = (a=1); row(@r); }", [""]),
    ],
)
def test_literals_are_sent_by_their_members_and_values_whole(script: str, names: list[str]) -> None:
    (event,) = analyse(script).checked().events.values()
    assert event.static == RowMembers(names)
    assert ("" in names) == (len(event.args) == 1 and isinstance(event.args[0], Record))


@pytest.mark.parametrize(
    "script",
    [
        "begin { $row = 1; @row = $row; print(@row); print((row=3).row); }",
        "macro row(x) { x + 1 } begin { print(row(3)); }",
        "macro row() { 8 } begin { print(row); print(row()); }",
        "macro twice(row) { row * 2 } begin { print(twice(3)); }",
        "fn row($x: int64): int64 { return $x + 1; } begin { print(row(3)); }",
        "struct s { int row; }; begin { $s = (struct s *)0; if ($s != 0) { print($s->row); } print(offsetof(struct s, row)); }",
    ],
)
def test_scripts_may_have_the_name(script: str) -> None:
    assert analyse(script).errors == []
