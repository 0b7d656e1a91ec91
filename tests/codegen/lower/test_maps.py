"""Maps in scripts: reading, assigning, changing."""

from __future__ import annotations

import pytest

from tests.codegen.running import helpers, printed, ran

VALUES = [
    ("@m[1] = 5; print(@m[1]);", 5),
    ("print(@m[2]); @m[1] = 5;", 0),
    ('@m["k"] = "text"; print(@m["k"]);', b"text"),
    ('@m["k"] = "text"; print(@m["q"]);', b""),
    ("@m[1] = 5; @m[1] += 3; print(@m[1]);", 8),
    ("@m[1] += 3; print(@m[1]);", 3),
    ("@m[1]++; @m[1]++; print(@m[1]);", 2),
    ("@m[1] = 1; @m[1] |= 6; print(@m[1]);", 7),
    ("@m[1] = 7; @m[1] &= 5; print(@m[1]);", 5),
    ("@m[1] &= 5; print(@m[1]);", 0),
    ("@m[1] = 7; @m[1] ^= 1; print(@m[1]);", 6),
    ("@m[1] = 7; @m[1] -= 9; print(@m[1]);", -2),
    ("@m[1] = 8; @m[1] /= 2; print(@m[1]);", 4),
    ("@s = 5; @s += 2; print(@s + 0);", 7),
    ("@s = (uint8)255; @s = (uint8)1; print(@s + 0);", 1),
    ("@m[1] = 5; print(delete(@m, 1));", True),
    ("@m[1] = 5; print(delete(@m, 2));", False),
    ("@m[1] = 5; print(has_key(@m, 1));", True),
    ("@m[1] = 5; print(has_key(@m, 2));", False),
    ("@m[1] = 5; @m[2] = 6; print(len(@m));", 2),
    ("@m[1] = 5; _ = delete(@m, 1); print(len(@m));", 0),
    ("@s = 5; print(delete(@s));", True),
    ("@s = 5; _ = delete(@s); print(@s + 0);", 0),
    ("@m[(1, 2)] = 3; print(@m[1, 2]);", 3),
    ("@m[1] = (bool)1; @m[1] = false; print(@m[1]);", False),
]


@pytest.mark.parametrize(("body", "wanted"), VALUES)
def test_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


def test_steps_are_atomic_where_bpf_can() -> None:
    """No CPU's step is lost: a map's value is changed in place, by one look-up."""
    found = ran("begin { @m[1] = 1; @m[1]++; }")
    assert found.entries("@m") == {1: 2}
    assert helpers(found).count(2) == 1


def test_buckets_of_histograms() -> None:
    body = '@h["a"] = hist(5); @h["a"] = hist(500); @h["b"] = hist(1);'
    assert printed(f'{body} print((has_key(@h, "a"), delete(@h, "a"), has_key(@h, "a"), has_key(@h, "b")));') == [
        (True, True, False, True)
    ]
