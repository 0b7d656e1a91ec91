"""What a checked program needs beside its code."""

from __future__ import annotations

import pytest

from tests.support.front import analyse


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
