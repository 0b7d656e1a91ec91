"""The text of attach points: its parts, and its kind."""

from __future__ import annotations

import pytest

from pytrace.core.probes.kinds import kind_of, split_attach_point


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("begin", ["begin"]),
        ("", [""]),
        ("kprobe:vfs_read", ["kprobe", "vfs_read"]),
        ("kprobe:", ["kprobe", ""]),
        ("tracepoint:sched:*", ["tracepoint", "sched", "*"]),
        ('uprobe:"/a:b":f', ["uprobe", "/a:b", "f"]),
        (r'uprobe:/a:"f(\"x\")"', ["uprobe", "/a", 'f("x")']),
        ("uprobe:/a@f.c:12", ["uprobe", "/a@f.c", "12"]),
        ("kprobe:$1:$name", ["kprobe", "$1", "$name"]),
        ('kprobe:"open', ["kprobe", '"open']),
    ],
)
def test_parts(text: str, parts: list[str]) -> None:
    assert split_attach_point(text) == parts


@pytest.mark.parametrize(
    ("text", "kind"),
    [("k:f", "kprobe"), (" BEGIN ", "begin"), ('"tracepoint":a:b', "tracepoint"), ("$1", None), ("k*:f", None)],
)
def test_kinds(text: str, kind: str | None) -> None:
    row = kind_of(text)
    assert (None if row is None else row.name) == kind
