"""Events, the string table, and declared maps."""

from __future__ import annotations

import pytest

from pytrace.core.source import Source, Span
from pytrace.core.types import INT64, Avg, Count, Hist, LHist, Max, Min, Stats, Sum, TSeries, Type
from pytrace.frontend.check.maps import (
    MANY_KEYS,
    MUCH_MEMORY,
    comment_above,
    copies_size,
    kind_of_undeclared,
    zeroed_maps,
)
from tests.frontend.checking import refusals, warnings
from tests.support.facts import RecordedKernel
from tests.support.front import analyse
from tests.support.rows import each_row

# fmt: off
REFUSED = [
    ("let @a = foo(5); begin { @a[1] = 1; }", "1:1-16", "there is no map type 'foo'"),
    ("let @a = hash(0); begin { @a[1] = 1; }", "1:15-16", "a map cannot have 0 entries"),
    ("let @a = percpuhash(5); begin { @a[1] = 1; }", "1:1-23", "@a holds int8, which a percpuhash cannot"),
    ("let @a = hash(5); begin { @a[1] = count(); }", "1:1-17", "@a holds count_t, which a hash cannot"),
    ("let @a = hash(5); let @a = hash(6); begin { @a[1] = 1; }", "1:19-35", "@a is already declared"),
    ("let @a = hash(4294967296); begin { @a[1] = 1; }", "1:15-25", "a map cannot have 4294967296 entries"),
    ("let @a = percpuhash(5); begin { @a = 1; }", "1:1-23", "@a holds int8, which a percpuhash cannot"),
    ("let @a = hsh(5); begin { @a[1] = 1; }", "1:1-16", "there is no map type 'hsh'"),
]
WARNED = [
    ("let @a = hash(5); begin { @b[1] = count(); }", "1:1-17", "@a is declared but never used"),
]
# fmt: on

test_refused = refusals(REFUSED)
test_warned = warnings(WARNED)


@pytest.mark.parametrize(
    ("script", "kind", "entries"),
    [
        ("begin { @m[1] = 1; }", "hash", 4096),
        ("begin { @m[1] = count(); }", "percpuhash", 4096),
        ("begin { @m = count(); }", "global", 1),
        ("let @m = lruhash(7); begin { @m[1] = 1; }", "lruhash", 7),
        ("let @m = percpulruhash(7); begin { @m[1] = count(); }", "percpulruhash", 7),
        ("let @m = hash(4294967295); begin { @m[1] = 1; }", "hash", 4294967295),
        ("config = { max_map_keys = 9 } begin { @m[1] = 1; }", "hash", 9),
        ("let @m = percpuhash(3); begin { print(@m); }", "percpuhash", 3),
    ],
)
def test_maps(script: str, kind: str, entries: int) -> None:
    info = analyse(script).checked().maps["@m"]
    assert (info.kind, info.max_entries) == (kind, entries)


def test_each_text_is_in_the_string_table_once() -> None:
    script = 'begin { print(strftime("a", 1)); print(strftime("b", 1)); print(cgroup_path(1, "a")); }'
    assert analyse(script).checked().strings == ["a", "b"]


def test_suggestions_of_map_types() -> None:
    (error,) = analyse("let @a = hsh(5); begin { @a[1] = 1; }").diagnostics.errors
    assert "hash" in error.hints[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("// calls\nbegin { @a = count(); }", "calls"),
        ("begin {\n  // calls\n  @a = count();\n  // no more\n  @a = count(); }", "calls"),
        ("// table\nlet @a = hash(5);\nbegin {\n  // used\n  @a[1] = 1; }", "table"),
        ("let @a = hash(5);\nbegin {\n  // used\n  @a[1] = 1; }", "used"),
        ("begin {\n  @a = 1; // after\n  print(@a); }\n// below", ""),
        ("macro add(@m) {\n  // in a macro\n  @m = 1 }\nbegin {\n  // call\n  add(@a); }", "call"),
    ],
)
def test_maps_are_described_by_the_comment_above_them(text: str, expected: str) -> None:
    assert analyse(text).checked().maps["@a"].help == expected


@pytest.mark.parametrize("value", [Count(), Sum(), Avg(), Stats(), Hist(), LHist(0, 10, 1)])
def test_sums_of_very_many_keys_are_shared(value: Type) -> None:
    assert kind_of_undeclared(value, 1_000_000, 2, zeroed=False) == "hash"
    assert kind_of_undeclared(value, 1_000_000, 2, zeroed=True) == "percpuhash"
    assert kind_of_undeclared(value, 4096, 512, zeroed=False) == "percpuhash"


@pytest.mark.parametrize("value", [Min(), Max(), TSeries(1, 5)])
def test_what_is_not_a_sum_is_not_shared(value: Type) -> None:
    assert kind_of_undeclared(value, 1_000_000, 512, zeroed=False) == "percpuhash"


def test_values_of_no_aggregation() -> None:
    assert kind_of_undeclared(INT64, 1, 1, zeroed=True) == "hash"


def test_the_limits_of_shared_maps() -> None:
    """Many keys, and much memory for their copies."""
    cpus = MUCH_MEMORY // (8 * MANY_KEYS)
    assert kind_of_undeclared(Count(), MANY_KEYS, cpus, zeroed=False) == "hash"
    assert kind_of_undeclared(Count(), MANY_KEYS - 1, 4 * cpus, zeroed=False) == "percpuhash"
    assert kind_of_undeclared(Count(), MANY_KEYS, cpus - 1, zeroed=False) == "percpuhash"
    assert copies_size(Stats(), 3, 5) == 240
    assert copies_size(Hist(), 3, 5) == 120, "a bucket is an entry"


def test_maps_that_a_script_sets_to_zero() -> None:
    script = "begin { @a[1] = count(); @b[1] = count(); @c[1] = count(); zero(@b); clear(@c); print(@a); }"
    assert zeroed_maps(analyse(script).checked().event_list) == {"@b"}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("@m[1] = count();", "hash"),
        ("@m[1] = max(5);", "percpuhash"),
        ("@m[1] = count(); zero(@m);", "percpuhash"),
        ("@m[1] = count(); print(@m); clear(@m);", "hash"),
    ],
)
def test_kinds_of_undeclared_maps(body: str, kind: str) -> None:
    script = f"config = {{ max_map_keys = 100000 }} begin {{ {body} }}"
    info = analyse(script, kernel=RecordedKernel(possible_cpus=2)).checked().maps["@m"]
    assert (info.kind, info.shared) == (kind, kind == "hash")
    few = analyse(f"begin {{ {body} }}", kernel=RecordedKernel(possible_cpus=2)).checked().maps["@m"]
    assert (few.kind, few.shared) == ("percpuhash", False)
    other = analyse(f"let @m = percpuhash(100000); begin {{ {body} }}").checked().maps["@m"]
    assert other.kind == "percpuhash"


@each_row(
    ("text", "expected"),
    [
        ("@", ""),
        ("// calls\n@", "calls"),
        ("begin {\n  // calls\n  @", "calls"),
        ("// one\n// two\n@", "one\ntwo"),
        ("// far\n\n// near\n@", "near"),
        ("// far\n\n@", ""),
        ("/* block */\n@", "block"),
        ("/*\n * one\n * two\n */\n@", "one\ntwo"),
        ("/** one */\n// two\n@", "two"),
        ("x; // of x\n@", ""),
        ("x; /* of x */\n@", ""),
        ("x; /* of\n x */\n@", ""),
        ("*/\n@", ""),
        ("///// line\n//\n@", "line"),
        ("//\n@", ""),
        ('printf("//");\n@', ""),
        ("// same line\nbegin { @", "same line"),
        ("// windows\r\n@", "windows"),
        ("/* windows\r\n * two */\r\n@", "windows\ntwo"),
    ],
)
def test_comments(text: str, expected: str) -> None:
    source = Source("x", text + "[1] = 1;\n// below")
    assert comment_above(Span(source, len(text) - 1, len(text))) == expected


@each_row(
    ("body", "kinds"),
    [
        ("print(@m); clear(@m);", [("print_map", True), ("clear", True)]),
        ('print(@m); printf("x"); clear(@m);', [("print_map", True), ("clear", True)]),
        (
            "print(@m); print(@n); clear(@m); clear(@n);",
            [("print_map", True), ("print_map", True), ("clear", True), ("clear", True)],
        ),
        ("if (pid) { print(@m); clear(@m); }", [("print_map", True), ("clear", True)]),
        ("clear(@m); print(@m);", [("clear", False), ("print_map", False)]),
        ("print(@m); @m[2] = 2; clear(@m);", [("print_map", False), ("clear", False)]),
        ("print(@m); print(@m[1]); clear(@m);", [("print_map", False), ("clear", False)]),
        ("print(@m); print(@m); clear(@m);", [("print_map", False), ("print_map", True), ("clear", True)]),
        ("print(@m); if (pid) { clear(@m); }", [("print_map", False), ("clear", False)]),
        ("print(@m); zero(@m);", [("print_map", False), ("zero", False)]),
        ("print(@m); exit(); clear(@m);", [("print_map", False)]),
        ("print(@m); clear(@n);", [("print_map", False), ("clear", False)]),
        ("print_clear(@m); clear(@m);", [("print_map", True), ("clear", False)]),
    ],
)
def test_pairs(body: str, kinds: list[tuple[str, bool]]) -> None:
    program = analyse(f"end {{ {body} }} begin {{ @m[1] = 1; @n[1] = 1; }}").checked()
    found = [
        (item.kind, bool(getattr(item.static, "clear", False) or getattr(item.static, "joined", False)))
        for item in program.event_list
        if item.kind in ("print_map", "clear", "zero")
    ]
    assert found == kinds


def test_the_clear_sends_nothing() -> None:
    program = analyse("begin { @m[1] = 1; print(@m); clear(@m); }").checked()
    assert len(program.dead) == 1
