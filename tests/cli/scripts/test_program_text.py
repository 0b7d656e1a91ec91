"""Completion inside programs and of attach points."""

from __future__ import annotations

import pytest

from pytrace.cli.scripts.program_text import attach_points, candidates

LISTED = (
    "tracepoint:sched:sched_switch", "tracepoint:sched:sched_wakeup", "tracepoint:signal:signal_generate",
    "rawtracepoint:vmlinux:sched_switch", "kprobe:vfs_read", "uprobe:/bin/bash:readline",
)  # fmt: skip
LONG = {"t": "tracepoint", "rt": "rawtracepoint", "k": "kprobe", "u": "uprobe"}


def listing(pattern: str) -> list[str]:
    """As ``-l`` does: by the provider's full name, the last part a prefix; the kernel's module may be left out."""
    provider, _, rest = pattern.rstrip("*").partition(":")
    provider = LONG.get(provider, provider)
    names = [name for name in LISTED if name.startswith(f"{provider}:")]
    return [name for name in names if name.startswith(f"{provider}:{rest}") or f":{rest}" in name]


@pytest.mark.parametrize(
    ("token", "found"),
    [
        ("tracep", ["tracepoint:"]),
        ("tracepoint:s", ["tracepoint:sched:", "tracepoint:signal:"]),
        ("t:sched:sched_s", ["t:sched:sched_switch"]),
        ("rawtracepoint:sched_sw", ["rawtracepoint:sched_switch"]),
        ("k:vfs", ["k:vfs_read"]),
        ("uprobe:/bin/bash:rea", ["uprobe:/bin/bash:readline"]),
        ("interval:m", ["interval:ms:"]),
        ("begi", ["begin"]),
        ("nosuch:", []),
    ],
)
def test_attach_points_grow_by_a_part(token: str, found: list[str]) -> None:
    assert attach_points(token, listing) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("k:vfs", ["k:vfs_read"]),
        ("k:vfs_read { @a = count(); } t:sched:sched_w", ["k:vfs_read { @a = count(); } t:sched:sched_wakeup"]),
        ("k:vfs_read { @reads = count(); print(@r", ["k:vfs_read { @reads = count(); print(@reads"]),
        ("begin { strft", ["begin { strftime("]),
        ("begin { in_sc", ["begin { in_scope"]),
        ("k:vfs_read /usern", ["k:vfs_read /username"]),
        ("begin { } k:vfs_read /pid == 1 && cpi", ["begin { } k:vfs_read /pid == 1 && cpid"]),
        ("uprobe:/bin/bash:readline /usern", ["uprobe:/bin/bash:readline /username"]),
        ("k:vfs_read /pid == 1/ { } k:vfs", ["k:vfs_read /pid == 1/ { } k:vfs_read"]),
        ("begin { @x = 1; } uprobe:/bin/bash:r", ["begin { @x = 1; } uprobe:/bin/bash:readline"]),
    ],
)
def test_programs(text: str, found: list[str]) -> None:
    assert candidates(text, listing) == found
