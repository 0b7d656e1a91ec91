"""What row() takes: records; what it refuses, and the names of scripts that are its own."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from pytrace.core.event_layout import RowMembers
from pytrace.core.types import UINT16, UINT32, Fixed, Joined, Record, Type
from tests.support.front import analyse
from tests.support.rows import each_row

REFUSED = [
    ("begin { row(pid=1); }", "1:16-17", "syntax: unexpected '=', expected ')' or ','"),
    ("begin { row(); }", "1:9-14", "row() takes 1 to 9 arguments, not 0"),
    ("begin { row((a=1), (b=2)); }", "1:20-25", "the column that rows are sorted by must be a string literal"),
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
    ("begin { row((a=print(1))); }", "1:16-24", "print() returns nothing"),
    ("begin { row((a=1, a=2)); }", "1:19-20", "syntax: the record has a field 'a' already"),
    ("begin { row((a=1, \"a\"=2)); }", "1:19-22", "syntax: the record has a field 'a' already"),
    ("begin { print((\"\"=2).x); }", "1:16-18", 'syntax: a field cannot have the name ""'),
    ("begin { $r = (\"a b\"=2); print($r.a); }", "1:31-35", "the record has no field 'a'"),
    ("begin { row((reads=1, b=2), \"-read\"); }", "1:29-36", "the rows have no column 'read' to sort by"),
    ("begin { row((a=1), \"-\"); }", "1:9-24", 'no column follows the "-"'),
    ("begin { row((a=1), comm); }", "1:20-24", "the column that rows are sorted by must be a string literal"),
    ("begin { print_rows(-1); }", "1:20-22", "print_rows() cannot print -1 rows"),
    ("begin { print_rows(comm); }", "1:9-25", "the number of rows of print_rows() must be an integer, not string[16]"),
    ("begin { print(fixed(1, 0, 3)); }", "1:15-29", "the divisor of fixed() must be 1 to 1000000000000, not 0"),
    ("begin { print(fixed(1, pid, 3)); }", "1:15-31", "the divisor of fixed() must be an integer literal"),
    ("begin { print(fixed(1, 2, 10)); }", "1:15-30", "the number of decimals of fixed() must be 0 to 9, not 10"),
    ("begin { print(fixed(comm, 2, 1)); }", "1:15-32", "the value of fixed() must be an integer, not string[16]"),
    ("begin { print(fixed(1, 2, 1) + 1); }", "1:15-33", "operator + needs integers, not fixed_t"),
    ("begin { @ = fixed(1, 2, 1); @ = fixed(1, 2, 2); }", "1:29-47",
     "the value of @ is fixed_t of divisor 2 with 1 decimals, this is fixed_t of divisor 2 with 2 decimals"),
    ("begin { print(joined(comm, 2)); }", "1:22-26", "the separator of joined() must be a string literal"),
    ("begin { @s = stats(1); print(joined(\":\", @s)); }", "1:42-44", "stats_t cannot be part of a text"),
    ("begin { print(row); }", "1:15-18", "row is a function: row((name=value, …)[, const string column…])"),
]


@each_row(("script", "place", "message"), REFUSED, ids=[row[0] for row in REFUSED])
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
    ("arguments", "order"),
    [
        ("", []),
        (', "a"', [1]),
        (', "-b.c", "a"', [-2, 1]),
        (', "-", "LAT(ms)"', [-3]),
        (', "-LAT(ms)"', [-3]),
        (', "-x"', [4]),
    ],
)
def test_columns_that_rows_are_sorted_by(arguments: str, order: list[int]) -> None:
    script = f'begin {{ row((a=1, b=(c=2,), "LAT(ms)"=fixed(3, 1000, 2), "-x"=4){arguments}); }}'
    (event,) = analyse(script.replace("(c=2,)", "(c=2)")).checked().events.values()
    assert event.static == RowMembers(["a", "b.c", '"LAT(ms)"', '"-x"'], order)


def test_near_columns_are_named() -> None:
    (error,) = analyse('begin { row((reads=1, writes=2), "-raeds"); }').diagnostics.errors
    assert any("reads" in hint for hint in error.hints)
    (error,) = analyse('begin { row((reads=1, writes=2), "q"); }').diagnostics.errors
    assert "the columns are reads, writes" in error.hints


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("fixed(nsecs, 1000, 3)", Fixed(1000, 3, False)),
        ("fixed((int32)-1, 1024, 0)", Fixed(1024, 0, True)),
        ('joined(":", pid, (uint16)80)', Joined(":", (UINT32, UINT16))),
    ],
)
def test_types_of_values_for_rows(expression: str, type_: Type) -> None:
    (event,) = analyse(f"begin {{ row((a={expression})); }}").checked().events.values()
    assert event.args == (type_,)


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
