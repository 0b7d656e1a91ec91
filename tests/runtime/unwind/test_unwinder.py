from __future__ import annotations

from pytrace.runtime.unwind.unwinder import _Slices


def test_slices_do_not_overlap() -> None:
    slices = _Slices(1024)
    taken = [(start, size) for size in (1, 16, 17, 40, 100) if (start := slices.take(size)) is not None]
    used = [number for start, size in taken for number in range(start, start + size)]
    assert len(used) == len(set(used)) == 174


def test_slice_rests_before_it_is_used_again() -> None:
    slices = _Slices(1024)
    first, second = slices.take(10), slices.take(10)
    assert first is not None
    assert second is not None
    slices.give(first, 10)
    assert slices.take(10) not in (first, second)
    slices.give(second, 10)
    assert slices.take(10) == first


def test_no_room() -> None:
    slices = _Slices(32)
    first, second = slices.take(16), slices.take(16)
    assert slices.take(1) is None
    assert first is not None
    slices.give(first, 16)
    assert slices.take(9) == first
    assert second == 16
