"""pytrace.runtime.binaries.function_places: what was read of DWARF for stacks is known to the next run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from pytrace.runtime.binaries import debug_info, dwarf_lines, function_places
from pytrace.runtime.binaries.debug_info import DebugInfo
from pytrace.runtime.binaries.dwarf_lines import LineTable
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.binaries.user_binary import Binary, CachedDebugInfo
from tests.support import rust_debug_info
from tests.support.compile import compiled

PROGRAM = """\
extern int getpid(void);
static inline __attribute__((always_inline)) int inner(int v) { return v * 3 + getpid(); }
__attribute__((noinline)) int work(int n) { return inner(n) + n; }
int main(int argc, char **argv) { (void)argv; return work(argc); }
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pytrace" / "facts"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pieces of code that were read of DWARF."""
    found: list[int] = []
    read_piece = DebugInfo._read_piece

    def noted(debug: DebugInfo, row: tuple[int, int, int], address: int) -> Iterator[None]:
        found.append(address)
        return read_piece(debug, row, address)

    monkeypatch.setattr(DebugInfo, "_read_piece", noted)
    return found


def _address(path: Path) -> int:
    (symbol,) = Binary.open(str(path)).functions("work")
    return symbol.address + symbol.size - 1


@pytest.mark.parametrize("options", ["-O2", "-O2 -gz", "-O2 -gdwarf-4"])
def test_the_next_run_reads_nothing(options: str, tmp_path: Path, read: list[int]) -> None:
    path = compiled(tmp_path, "program", PROGRAM, "-g", *options.split())
    first = CachedDebugInfo(ElfFile.open(str(path)))
    expected = first.frames(_address(path))
    assert expected[-1].function == "work"
    assert len(read) == 1
    assert first.frames(_address(path) - 1)[-1].function == "work"
    assert len(read) == 1, "the function is known as a whole"
    first.keep()
    assert CachedDebugInfo(ElfFile.open(str(path))).frames(_address(path)) == expected
    assert len(read) == 1


def test_bodies_of_async_functions_have_the_names_of_dwarf(tmp_path: Path) -> None:
    path = str(compiled(tmp_path, "program", rust_debug_info.text()))
    debug = CachedDebugInfo(ElfFile.open(path))
    (handle,) = Binary.open(path).functions(rust_debug_info.HANDLE)
    (run,) = Binary.open(path).functions(rust_debug_info.RUN)
    wanted = [
        [(rust_debug_info.HANDLE, "app::handle::{async_fn#0}")],
        [
            (rust_debug_info.BLOCK, "app::handle::{async_fn#0}::{async_block#0}"),
            (rust_debug_info.HANDLE, "app::handle::{async_fn#0}"),
        ],
        [(rust_debug_info.RUN, "app::run<app::handle::{async_fn_env#0}>")],
    ]
    addresses = [handle.address, handle.address + 1, run.address]
    for asked in (debug, None):
        known = asked or CachedDebugInfo(ElfFile.open(path))
        found = [[(place.function, place.written) for place in known.frames(address)] for address in addresses]
        assert found == wanted, "of a former run" if asked is None else ""
        known.keep()


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8, 13])
def test_what_was_read_in_part_is_not_taken_for_the_whole(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dwarf_lines, "STEP", 16)
    monkeypatch.setattr(dwarf_lines, "_STEP", 1)
    path = compiled(tmp_path, "program", PROGRAM, "-g", "-O2")
    (work,) = Binary.open(str(path)).functions("work")
    addresses = range(work.address, work.address + work.size)
    whole, debug = CachedDebugInfo(ElfFile.open(str(path))), CachedDebugInfo(ElfFile.open(str(path)))
    expected = [whole.frames(address) for address in addresses]
    assert {len(frames) for frames in expected} == {1, 2}
    steps = debug.reading(work.address)
    for _ in islice(steps, most):
        pass
    del steps
    assert [debug.frames(address) for address in addresses] == expected


@pytest.mark.needs("clang")
def test_units_without_ranges_are_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = compiled(tmp_path, "program", PROGRAM, "-g", "-O2", compiler="clang")
    first = CachedDebugInfo(ElfFile.open(str(path)))
    expected = first.frames(_address(path))
    assert expected[-1].function == "work"
    first.keep()
    monkeypatch.setattr(debug_info, "ranges", None)
    assert CachedDebugInfo(ElfFile.open(str(path))).frames(_address(path)) == expected


def test_another_build_is_read_again(tmp_path: Path, read: list[int]) -> None:
    path = compiled(tmp_path, "program", PROGRAM, "-g", "-O2", "-Wl,--build-id=none")
    first = CachedDebugInfo(ElfFile.open(str(path)))
    (before,) = (place.line for place in first.frames(_address(path)) if place.function == "work")
    first.keep()
    path = compiled(tmp_path, "program", f"\n\n{PROGRAM}", "-g", "-O2", "-Wl,--build-id=none")
    found = CachedDebugInfo(ElfFile.open(str(path))).frames(_address(path))
    assert [place.line for place in found if place.function == "work"] == [before + 2]
    assert len(read) == 2


def test_a_damaged_file_is_not_believed(tmp_path: Path, cache: Path, read: list[int]) -> None:
    path = compiled(tmp_path, "program", PROGRAM, "-g", "-O2")
    first = CachedDebugInfo(ElfFile.open(str(path)))
    expected = first.frames(_address(path))
    first.keep()
    (kept,) = cache.glob("lines-*")
    data = kept.read_bytes()
    for changed in (data[:-1], data[: len(data) // 2], b"", data[:80] + b"\xff" + data[81:]):
        kept.write_bytes(changed)
        del read[:]
        assert CachedDebugInfo(ElfFile.open(str(path))).frames(_address(path)) == expected
        assert len(read) == 1


def test_split_units_are_not_kept(tmp_path: Path, cache: Path) -> None:
    """Their files come and go by themselves."""
    path = compiled(tmp_path, "program", PROGRAM, "-g", "-O2", "-gsplit-dwarf")
    first = CachedDebugInfo(ElfFile.open(str(path)))
    assert first.frames(_address(path))[-1].function == "work"
    first.keep()
    assert not list(cache.glob("lines-*"))


def test_only_so_many_files_are_kept(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_places, "_FILES", 2)
    for number in range(4):
        path = compiled(tmp_path, f"program{number}", PROGRAM + f"int more = {number};\n", "-g", "-O2")
        debug = CachedDebugInfo(ElfFile.open(str(path)))
        debug.frames(_address(path))
        debug.keep()
    assert len(list(cache.glob("lines-*"))) == 2


def test_it_begins_again_when_it_grows_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_places, "_MOST_SEGMENTS", 0)
    path = compiled(tmp_path, "program", PROGRAM, "-g", "-O2")
    debug = CachedDebugInfo(ElfFile.open(str(path)))
    main = Binary.open(str(path)).address_of("main")
    assert main is not None
    for _ in range(2):
        assert debug.frames(_address(path))[-1].function == "work"
        assert debug.frames(main)[-1].function == "main"


def test_a_piece_that_is_damaged_in_the_middle_shifts_no_others() -> None:
    class Table(LineTable):
        def __init__(self) -> None:
            pass

        def file(self, number: int) -> str:
            return f"{number}.c"

    known = function_places.Places(None)
    with pytest.raises(OverflowError):
        known.add(0, 8, [(0, None, 1, 1), (4, None, 1, 1 << 40)], Table())
    assert not known.knows(4)
    known.add(16, 24, [(16, None, 2, 5), (20, None, 3, 6)], Table())
    assert known.find(17) == [function_places.Place("", "2.c", 5)]
    assert known.find(20) == [function_places.Place("", "3.c", 6)]
    known.add(32, 40, [(36, None, 4, 7)], Table())
    assert known.find(33) == []
