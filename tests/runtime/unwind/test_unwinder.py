from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pytrace.runtime.elf.file import ElfFile
from pytrace.runtime.host.procfs import Mapping
from pytrace.runtime.unwind import unwinder as unwinder_module
from pytrace.runtime.unwind.unwinder import _RANGE, Unwinder, _Loaded, _Slices
from tests.support.waiting import finished


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
    slices.free(first, 10)
    assert slices.take(10) not in (first, second)
    slices.free(second, 10)
    assert slices.take(10) == first


def test_no_room() -> None:
    slices = _Slices(32)
    first, second = slices.take(16), slices.take(16)
    assert slices.take(1) is None
    assert first is not None
    slices.free(first, 16)
    assert slices.take(9) == first
    assert second == 16


def test_a_file_of_a_process_that_is_gone_is_read_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unwinder: Any = Unwinder.__new__(Unwinder)
    unwinder._binaries, unwinder._loading = {}, set()

    def fill(file: ElfFile, _name: str) -> Generator[None, None, _Loaded]:
        yield
        return _Loaded(file, 8, 3)

    monkeypatch.setattr(unwinder, "_fill", fill)
    program = Path("/proc/self/exe").resolve()
    mapping = Mapping(0x1000, 0x2000, 0, 1, 2, str(program))
    gone = 1 << 22 | 1
    assert unwinder._range(mapping) == _RANGE.pack(0x1000, 0x2000, 0, 0, 0)
    finished(unwinder._read(mapping, f"/proc/{gone}/root", gone))
    assert unwinder._binaries == {}
    finished(unwinder._read(mapping, "", gone))
    assert [loaded.count for loaded in unwinder._binaries.values()] == [3]
    (tmp_path / "text").write_text("no binary")
    other = Mapping(0x1000, 0x2000, 0, 1, 3, f"{tmp_path}/text")
    finished(unwinder._read(other, "", gone))
    assert unwinder._range(other) == _RANGE.pack(0x1000, 0x2000, 0, 0, 0)
    assert [loaded.count for loaded in unwinder._binaries.values()] == [3, 0]


def test_a_file_whose_reading_ended_early_is_read_for_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    unwinder: Any = Unwinder.__new__(Unwinder)
    unwinder._binaries, unwinder._loading = {}, set()
    mapping = Mapping(0x1000, 0x2000, 0, 1, 2, "/bin/true")

    def fill(*_: object) -> Generator[None, None, _Loaded]:
        yield
        return _Loaded(None, 0, 0)

    monkeypatch.setattr(unwinder, "_load", fill)
    dropped = unwinder._read(mapping, "", 1)
    next(dropped)
    dropped.close()
    finished(unwinder._read(mapping, "", 1))
    assert len(unwinder._binaries) == 1


def test_tables_of_small_binaries_are_used_while_a_large_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    unwinder: Any = Unwinder.__new__(Unwinder)
    unwinder._binaries, unwinder._loading, unwinder._known = {}, set(), {}
    large = Mapping(0x100000, 0x900000, 0, 1, 2, "/lib/large")
    small = Mapping(0x900000, 0x901000, 0, 1, 3, "/lib/small")
    used: list[list[str]] = []

    def load(mapping: Mapping, *_: object) -> Generator[None, None, _Loaded]:
        for _ in range(3 if mapping is large else 1):
            yield
        return _Loaded(None, 0, 1)

    monkeypatch.setattr(unwinder_module.procfs, "read_maps", lambda _: b"maps")
    monkeypatch.setattr(unwinder_module, "_code", lambda _: [large, small])
    monkeypatch.setattr(unwinder, "_load", load)
    monkeypatch.setattr(unwinder, "_range", lambda item: item.path if (1, item.inode) in unwinder._binaries else "")
    monkeypatch.setattr(unwinder, "_put", lambda _pid, _space, rows: used.append(rows))
    finished(unwinder._add(1, 0))
    assert used == [["", ""], ["", "/lib/small"], ["/lib/large", "/lib/small"]]


def test_an_earlier_reading_does_not_replace_newer_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program asked for tables; while a large one is read, the kernel reports code that was made executable."""
    unwinder: Any = Unwinder.__new__(Unwinder)
    unwinder._binaries, unwinder._loading, unwinder._known = {}, set(), {}
    large, code = Mapping(0x100000, 0x900000, 0, 1, 2, "/lib/large"), Mapping(0x900000, 0x901000, 0, 0, 0, "")
    maps = [b"1"]
    used: list[int] = []

    def load(*_: object) -> Generator[None, None, _Loaded]:
        yield
        yield
        return _Loaded(None, 0, 1)

    monkeypatch.setattr(unwinder_module.procfs, "read_maps", lambda _: maps[0])
    monkeypatch.setattr(unwinder_module, "_code", lambda text: [large] if text == b"1" else [large, code])
    monkeypatch.setattr(unwinder, "_load", load)
    monkeypatch.setattr(unwinder, "_put", lambda _pid, _space, rows: used.append(len(rows)))
    asked = unwinder._add(1, 99)
    next(asked)
    maps[0] = b"2"
    reported = unwinder._add(1, 0)
    next(reported)
    finished(asked)
    finished(reported)
    assert used == [1, 2, 2]
