"""Allocation of per-CPU scratch memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytrace.codegen.emit.storage import Scratch, area_name
from pytrace.core.probe_kinds import probe_kind


def test_released_memory_is_used_again() -> None:
    scratch = Scratch()
    first = scratch.allocate(100)
    second = scratch.allocate(8)
    scratch.release(first, 100)
    assert scratch.allocate(40) == first
    assert scratch.allocate(64) == first + 40
    assert second == 104
    assert scratch.size == 112


def test_neighbours_merge() -> None:
    scratch = Scratch()
    offsets = [scratch.allocate(16) for _ in range(3)]
    for offset in offsets:
        scratch.release(offset, 16)
    assert scratch.allocate(48) == 0


@given(st.lists(st.tuples(st.integers(1, 200), st.booleans())))
def test_live_ranges_never_overlap(steps: list[tuple[int, bool]]) -> None:
    scratch = Scratch()
    live: list[tuple[int, int]] = []
    for size, free in steps:
        offset = scratch.allocate(size)
        assert offset % 8 == 0
        assert all(offset + size <= start or start + room <= offset for start, room in live)
        assert offset + size <= scratch.size
        live.append((offset, size))
        if free:
            scratch.release(*live.pop(0))


def test_programs_that_can_interrupt_each_other_have_areas_of_their_own() -> None:
    names = {}
    for kind in ("kprobe", "tracepoint", "profile", "uprobe", "begin", "fentry", "rawtracepoint"):
        row = probe_kind(kind)
        assert row is not None
        names[kind] = area_name(row, f"{kind}_0")
    assert names["kprobe"] == names["tracepoint"] == names["profile"]
    assert len({names[kind] for kind in ("kprobe", "uprobe", "begin", "fentry", "rawtracepoint")}) == 5
