"""pytrace.runtime.host.name_patterns: what a ``*`` accepts, whichever of its quick ways answers."""

from __future__ import annotations

import re

import pytest

from pytrace.runtime.host.name_patterns import exact, matching, name_pattern, within
from tests.support.rows import each_row

NAMES = ["vfs_read", "vfs_readv", "ksys_read", "read", "vfs", "a.b", "a\nb", "aXb", "[x]", ""]


@each_row(
    ("pattern", "accepted"),
    [
        ("*", NAMES),
        ("vfs_read", ["vfs_read"]),
        ("vfs_*", ["vfs_read", "vfs_readv"]),
        ("*read", ["vfs_read", "ksys_read", "read"]),
        ("*read*", ["vfs_read", "vfs_readv", "ksys_read", "read"]),
        ("v*s*d", ["vfs_read"]),
        ("a.b", ["a.b"]),
        ("a*b", ["a.b", "a\nb", "aXb"]),
        ("a.*", ["a.b"]),
        ("[x*", ["[x]"]),
        ("", [""]),
        # Head and tail may not share letters.
        ("vfs*s", []),
        ("vfs_r*read", []),
    ],
)
def test_names_that_a_pattern_accepts(pattern: str, accepted: list[str]) -> None:
    assert matching(pattern, NAMES) == accepted
    assert matching(pattern, iter(NAMES)) == accepted
    assert [name for name in NAMES if name_pattern(pattern).fullmatch(name)] == accepted


def test_only_a_star_makes_a_pattern() -> None:
    assert exact("a?[b].c")
    assert exact("")
    assert not exact("a*")


@pytest.mark.parametrize(
    ("text", "accepted"), [(b"read", True), (b"re_d", True), (b"read@v1", False), (b"rd", False), (b"bread", False)]
)
def test_a_star_that_stops_at_some_bytes(text: bytes, accepted: bool) -> None:
    assert bool(re.fullmatch(within("re*d", b"@"), text)) is accepted


def test_letters_of_expressions_mean_themselves_in_bytes_too() -> None:
    assert re.fullmatch(within("a.b*", b"@"), b"a.bc")
    assert not re.fullmatch(within("a.b*", b"@"), b"aXbc")
    assert re.fullmatch(within("größe*", b"\n"), "größe_1".encode())
