from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
import time
from array import array
from bisect import bisect_right
from collections.abc import Generator
from pathlib import Path

import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st

from pytrace.base import private_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.stack_formats import Rule
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.stacks import unwind_tables
from pytrace.runtime.stacks.unwind_tables import RBP, RETURN, RSP
from tests.support.examples import examples
from tests.support.waiting import finished

LOADER = Path("/lib64/ld-linux-x86-64.so.2")


def rule_at(rows: array[int], address: int) -> tuple[Rule, int, int]:
    """Kind, distance in bytes and place of rbp that hold at an address."""
    at = bisect_right(rows, address << 32 | 0xFFFFFFFF) - 1
    if at < 0:
        return Rule.FRAME, 0, 0
    rule = rows[at] & 0xFFFFFFFF
    distance = rule >> 12
    return Rule(rule & 15), 8 * (distance - (distance >> 19 << 20)), rule >> 4 & 255


def table_of(path: Path) -> array[int]:
    with ElfFile.open(str(path)) as file:
        return finished(unwind_tables.compile_table(*frames_of(file)))


def frames_of(file: ElfFile) -> tuple[bytes, int]:
    """``.eh_frame`` and its address."""
    section = file.section(".eh_frame")
    assert section is not None
    return bytes(file.contents(section)), section.address


def expected(path: Path) -> list[tuple[int, Rule, int, int]]:
    """Address, kind, distance and place of rbp by another reader, for rules that it shows in full."""
    found = []
    info = ELFFile(io.BytesIO(path.read_bytes())).get_dwarf_info()
    bases = {RSP: Rule.RSP, RBP: Rule.RBP}
    for entry in info.EH_CFI_entries():
        if not isinstance(entry, FDE):
            continue
        start, size = entry["initial_location"], entry["address_range"]
        for row in entry.get_decoded().table:
            cfa, at_return = row["cfa"], row.get(RETURN)
            if cfa.expr is not None or not start <= row["pc"] < start + size:
                continue
            if at_return is not None and at_return.type == "UNDEFINED":
                found.append((row["pc"], Rule.LAST, 0, 0))
            elif cfa.reg in bases:
                saved = row.get(RBP)
                bp = -saved.arg // 8 if saved is not None and saved.type == "OFFSET" else 0
                found.append((row["pc"], bases[cfa.reg], cfa.offset, bp))
    return found


@pytest.mark.parametrize("name", ["frameless", "libframeless.so", "frameless_classes", "calls"])
def test_same_rules_as_another_reader(programs: Path, name: str) -> None:
    path = programs / name
    rows = table_of(path)
    known = expected(path)
    assert len(known) >= 5
    # Of several rows for one address the last one holds.
    for address, *rule in {row[0]: row for row in known}.values():
        assert rule_at(rows, address) == tuple(rule), hex(address)


def test_same_rules_for_the_dynamic_loader() -> None:
    if not LOADER.exists():
        pytest.skip("no x86-64 loader")
    rows = table_of(LOADER)
    signal = next(row >> 32 for row in rows if row & 15 == Rule.SIGNAL)
    for address, *rule in {row[0]: row for row in expected(LOADER)}.values():
        if abs(address - signal) > 16:
            assert rule_at(rows, address) == tuple(rule), hex(address)


def test_rows_are_sorted_and_end(programs: Path) -> None:
    rows = table_of(programs / "frameless")
    addresses = [row >> 32 for row in rows]
    assert addresses == sorted(set(addresses))
    assert rows[-1] & 15 == Rule.FRAME
    assert rule_at(rows, 0)[0] is Rule.FRAME
    assert rule_at(rows, 1 << 31)[0] is Rule.FRAME


def test_function_that_aligns_its_stack(programs: Path) -> None:
    with ElfFile.open(str(programs / "frameless")) as file:
        symbol = file.any_symbol("aligned")
        rows = finished(unwind_tables.compile_table(*frames_of(file)))
    assert symbol is not None
    kinds = {rule_at(rows, symbol.address + distance)[0] for distance in range(60)}
    assert Rule.AT_RBP in kinds or Rule.RBP in kinds


def test_program_start_has_no_caller(programs: Path) -> None:
    with ElfFile.open(str(programs / "frameless")) as file:
        symbol = file.any_symbol("_start")
        rows = finished(unwind_tables.compile_table(*frames_of(file)))
    assert symbol is not None
    assert rule_at(rows, symbol.address + 4)[0] is Rule.LAST


def test_linker_stubs(programs: Path) -> None:
    rows = table_of(programs / "frameless")
    numbers = {row >> 12 & 0xFFFFF for row in rows if row & 15 == Rule.PLT}
    assert numbers <= {10, 11}
    assert len(numbers) == 1


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        pytest.param(bytes.fromhex("770880003f1a3b2a332422"), (Rule.PLT, 11), id="plt"),
        pytest.param(bytes.fromhex("770880003f1a3a2a332422"), (Rule.PLT, 10), id="plt_with_branch_tracking"),
        pytest.param(bytes.fromhex("767806"), (Rule.AT_RBP, -8), id="at_rbp"),
        pytest.param(bytes.fromhex("77a00106"), (Rule.AT_RSP, 160), id="at_rsp"),
        pytest.param(bytes.fromhex("7a0806"), None, id="other_register"),
        pytest.param(b"", None, id="empty"),
        pytest.param(b"\x76", None, id="cut"),
    ],
)
def test_expressions(code: bytes, rule: tuple[Rule, int] | None) -> None:
    assert unwind_tables.cfa_expression(code) == rule


@pytest.mark.parametrize("junk", [b"", b"\0" * 16, b"\x10\0\0\0" + b"\0" * 4, b"\xff" * 64, bytes(range(200))])
def test_damaged_section_gives_no_wrong_rows(junk: bytes) -> None:
    reader = unwind_tables._Reader(junk, 0x1000)
    reader.read()
    assert all(0 <= row < 1 << 64 for row in reader.rows)


@given(st.data())
@examples(60)
def test_damaged_sections_never_raise(programs: Path, data: st.DataObject) -> None:
    with ElfFile.open(str(programs / "frameless")) as file:
        whole, address = frames_of(file)
    frames = bytearray(whole)
    for place in data.draw(st.lists(st.integers(0, len(frames) - 1), min_size=1, max_size=8)):
        frames[place] = data.draw(st.integers(0, 255))
    rows = finished(unwind_tables.compile_table(bytes(frames[: data.draw(st.integers(0, len(frames)))]), address))
    assert list(rows) == sorted(rows)


class TestKept:
    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def test_read_back(self, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with ElfFile.open(str(programs / "frameless")) as file:
            first = finished(unwind_tables.table(file))
            assert len(os.listdir(private_files.directory(unwind_tables.KIND))) == 1
            monkeypatch.setattr(unwind_tables, "compile_table", None)
            assert finished(unwind_tables.table(file)) == first

    def test_damaged_file_is_not_believed(self, programs: Path) -> None:
        with ElfFile.open(str(programs / "frameless")) as file:
            first = finished(unwind_tables.table(file))
            (kept,) = Path(private_files.directory(unwind_tables.KIND)).iterdir()
            data = bytearray(kept.read_bytes())
            data[40] ^= 1
            kept.write_bytes(data)
            assert finished(unwind_tables.table(file)) == first

    @pytest.mark.parametrize(
        "flags", [("--strip-all",), ("--only-keep-debug",), ("--remove-section=.note.gnu.build-id",)]
    )
    def test_copies_of_a_binary(self, programs: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
        """A stripped copy shares the table; a debug file has the build id and no table; a build id is not needed."""
        copy = tmp_path / "copy"
        subprocess.run(["objcopy", *flags, programs / "frameless", copy], check=True)
        with ElfFile.open(str(copy)) as file:
            other = finished(unwind_tables.table(file))
        with ElfFile.open(str(programs / "frameless")) as file:
            table = finished(unwind_tables.table(file))
        assert list(other) == ([] if "--only-keep-debug" in flags else list(table))
        assert len(table) > 50
        assert len(os.listdir(private_files.directory(unwind_tables.KIND))) == 1

    @pytest.mark.parametrize("first", ["changed", "whole"])
    def test_a_changed_copy_has_a_table_of_its_own(self, programs: Path, tmp_path: Path, first: str) -> None:
        """It still has the build id of the original."""
        whole, copy = programs / "frameless", tmp_path / "copy"
        data = bytearray(whole.read_bytes())
        with ElfFile.open(str(whole)) as file:
            section = file.section(".eh_frame")
            assert section is not None
        # Zeros end the section in its middle.
        middle = section.offset + section.size // 2
        data[middle : section.offset + section.size] = bytes(section.offset + section.size - middle)
        copy.write_bytes(data)
        found = {}
        for path in (copy, whole) if first == "changed" else (whole, copy):
            with ElfFile.open(str(path)) as file:
                found[path] = finished(unwind_tables.table(file))
        assert len(found[copy]) < len(found[whole])
        assert found[whole] == table_of(whole)


def _functions(program: bytes, count: int) -> bytes:
    """A section with one CIE, and functions that have the same program."""
    entries = bytearray(struct.pack("<II", 16, 0) + b"\x01\0\x01\x78\x10\x0c\x07\x08\x90\x01" + bytes(2))
    for number in range(count):
        body = struct.pack("<IQQ", len(entries) + 4, number << 12, 1 << 12) + program
        body += bytes(-len(body) % 4)
        entries += struct.pack("<I", len(body)) + body
    return bytes(entries)


def test_what_a_table_takes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One function with a megabyte of instructions took 150 MB and four seconds without a pause; others go on."""
    row = b"\x41\x0e\x10\x41\x0e\x20"
    long = finished(unwind_tables.compile_table(_functions(row * 200_000, 1) + _functions(row, 1), 0))
    assert len(long) < 10
    steps = sum(1 for _ in unwind_tables.compile_table(_functions(row * 5000, 20), 0))
    assert steps >= 20, "events are handled between two functions that take long"
    monkeypatch.setattr(unwind_tables, "MOST_ROWS", 1000)
    assert len(finished(unwind_tables.compile_table(_functions(row * 2000, 1), 0))) == 0


def test_numbers_without_end_are_not_read() -> None:
    """Each byte more takes longer."""
    began = time.process_time()
    assert len(finished(unwind_tables.compile_table(_functions(b"\x0e" + b"\xff" * 30_000 + b"\1", 100), 0))) < 200
    assert time.process_time() - began < 5


def test_tables_of_files_of_others_are_read_elsewhere_and_alike(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes too much has no table, with the reason; the next one is read."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    others = tmp_path / "others"
    shutil.copy(programs / "calls", others)
    others.chmod(0o757)
    reader = unwind_tables.TableReader()
    try:
        ours, theirs = (finished(reader.read(str(path), 1 << 20)) for path in (programs / "calls", others))
        assert len(ours.rows) > 5
        assert (theirs.rows, theirs.segments) == (ours.rows, ours.segments)
        assert finished(reader.read(str(programs / "calls"), 0)).left_out == "it has 0 MiB of them"
        (tmp_path / "text").write_text("no program")
        (tmp_path / "text").chmod(0o666)
        with pytest.raises(TraceError, match="text is not an ELF file"):
            finished(reader.read(str(tmp_path / "text"), 1 << 20))
        monkeypatch.setattr(unwind_tables, "table", _endless)
        monkeypatch.setattr(unwind_tables, "SECONDS", 0.05)
        reader.close()
        slow = finished(reader.read(str(others), 1 << 20))
        assert (len(slow.rows), slow.segments) == (0, ())
        assert slow.left_out == "it is not read: it takes more processor time than a file may"
        monkeypatch.undo()
        assert finished(reader.read(str(others), 1 << 20)).rows == ours.rows
    finally:
        reader.close()


def _endless(_file: ElfFile) -> Generator[None, None, array[int]]:
    while True:
        yield


def test_tables_are_read_in_turns(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of two tables one after the other: none waits for ever, and each has its own rows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    names = ("calls", "frameless", "libframeless.so")
    expected_rows = []
    for name in names:
        with ElfFile.open(str(programs / name)) as file:
            expected_rows.append(finished(unwind_tables.table(file)))
        shutil.copy(programs / name, tmp_path / name)
        (tmp_path / name).chmod(0o757)
    reader, found = unwind_tables.TableReader(), {}
    try:
        waiting = {name: reader.read(str(tmp_path / name), 1 << 20) for name in names}
        while waiting:
            for name, steps in list(waiting.items()):
                try:
                    next(steps)
                except StopIteration as end:
                    found[name] = end.value.rows
                    del waiting[name]
    finally:
        reader.close()
    assert [found[name] for name in names] == expected_rows
