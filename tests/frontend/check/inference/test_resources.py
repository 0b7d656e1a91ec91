"""Events, the string table, and declared maps."""


from __future__ import annotations

import pytest

from tests.frontend.checking import refused, warned
from tests.support.front import analyse

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


@pytest.mark.parametrize(("script", "place", "message"), REFUSED)
def test_refused(script: str, place: str, message: str) -> None:
    assert refused(script) == (place, message)


@pytest.mark.parametrize(("script", "place", "message"), WARNED)
def test_warned(script: str, place: str, message: str) -> None:
    assert warned(script) == (place, message)


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
