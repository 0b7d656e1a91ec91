"""Probes of ahead-of-time files in user binaries that were changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import Location
from pytrace.core.kernel_info import UsdtProbe, UserSymbol
from pytrace.core.manifest import Manifest, ProgramSpec, Target
from pytrace.core.probes.targets import ProbeTarget, StaticProbeTarget, TypedFunctionTarget, UserTarget
from pytrace.runtime.aot import moved_probes
from pytrace.runtime.host import fingerprints
from tests.support.facts import RecordedKernel

PLACE = Location("x", 1, 1)


@pytest.fixture
def binary(tmp_path: Path) -> str:
    path = tmp_path / "app"
    path.write_bytes(b"first")
    return str(path)


def manifest(path: str, *places: ProbeTarget) -> Manifest:
    targets = tuple(Target("p", at, place) for at, place in enumerate(places))
    program = ProgramSpec("p", "uprobe", 0, targets, PLACE)
    return Manifest((program,), (), (), (), Config(), facts=(fingerprints.file_fact(path),))


def kernel(path: str, offset: int = 0x1000, arguments: str = "4@%eax") -> RecordedKernel:
    usdt = (UsdtProbe(path, "one", "start", 0, offset + 0x10, 0x3000, arguments),)
    return RecordedKernel(symbols={path: (UserSymbol("work", 0x401000, offset, 8),)}, usdt=usdt)


def change(path: str) -> None:
    Path(path).write_bytes(b"another build")


def work(path: str) -> UserTarget:
    """Four bytes into a function."""
    return UserTarget(path, 0x1004, symbol="work")


def test_nothing_moves_in_the_same_file(binary: str) -> None:
    found = manifest(binary, work(binary))
    assert moved_probes.moved(found, [["symbol", binary, "work", "4096"]], kernel(binary, 0x9000)) is found.programs


def test_functions_are_found_again(binary: str) -> None:
    found = manifest(binary, work(binary), UserTarget(binary, 0x50))
    change(binary)
    (program,) = moved_probes.moved(found, [["symbol", binary, "work", "4096"]], kernel(binary, 0x2000))
    assert [target.of(UserTarget).offset for target in program.targets] == [0x2004, 0x50]


def test_code_that_the_kernel_would_misread_is_refused(binary: str) -> None:
    rows = [["symbol", binary, "work", "4096"]]
    found = manifest(binary, work(binary))
    changed = kernel(binary, 0x2000)
    changed.code_at = {0x2004: bytes.fromhex("c5f9ebc1")}
    assert moved_probes.moved(found, rows, changed) is found.programs
    change(binary)
    with pytest.raises(TraceError, match="cannot probe p: the kernel would misread the instruction"):
        moved_probes.moved(found, rows, changed)
    changed.arch = "aarch64"
    assert moved_probes.moved(found, rows, changed)


def test_files_that_are_gone_matter_only_where_they_were_asked_for(binary: str) -> None:
    rows = [["symbol", binary, "work", "4096"]]
    by_name = manifest(binary, work(binary))
    by_pattern = manifest(binary, replace(work(binary), by_pattern=True))
    Path(binary).unlink()
    assert moved_probes.moved(by_pattern, rows, RecordedKernel(symbols={})) is by_pattern.programs
    with pytest.raises(TraceError, match="no longer has a function 'work'"):
        moved_probes.moved(by_name, rows, RecordedKernel(symbols={}))


def test_functions_that_are_gone_are_refused(binary: str) -> None:
    found = manifest(binary, work(binary))
    change(binary)
    with pytest.raises(TraceError, match="no longer has a function 'work'"):
        moved_probes.moved(found, [["symbol", binary, "work", "4096"]], RecordedKernel(symbols={}))


def test_static_tracepoints_are_found_again(binary: str) -> None:
    found = manifest(binary, StaticProbeTarget(binary, 0x1010, provider="one", name="start"))
    row = ["usdt", binary, "one", "start", str(0x1010), "4@%eax"]
    change(binary)
    (program,) = moved_probes.moved(found, [row], kernel(binary, 0x2000))
    place = program.targets[0].of(StaticProbeTarget)
    assert (place.offset, place.semaphore_offset) == (0x2010, 0x3000)
    with pytest.raises(TraceError, match="arguments of usdt"):
        moved_probes.moved(found, [row], kernel(binary, arguments="8@%rdi"))


def test_code_for_one_file_only(binary: str) -> None:
    found = manifest(binary, work(binary))
    row = ["exact", binary, "the probe is on an address"]
    assert moved_probes.moved(found, [row], kernel(binary)) == found.programs
    inode = replace(found, facts=((*found.facts[0][:4], "1"),))
    assert moved_probes.moved(inode, [row], kernel(binary)) == found.programs
    # A library in an archive is as old as the archive.
    inside = ["exact", f"{binary}!/lib/libx.so", "the probe is on an address"]
    for facts_of in (found, inode):
        assert moved_probes.moved(facts_of, [inside], kernel(binary)) == found.programs
    change(binary)
    for given in (row, inside):
        with pytest.raises(TraceError, match=r"is not the file that .* and the probe is on an address"):
            moved_probes.moved(found, [given], kernel(binary))


def test_programs_that_are_gone(binary: str) -> None:
    found = manifest(binary, TypedFunctionTarget("other", program_id=7))
    moved_probes.check_programs(found, RecordedKernel(programs=[(7, "other")]))
    with pytest.raises(TraceError, match="BPF program with id 7 is gone"):
        moved_probes.check_programs(found, RecordedKernel(programs=[(8, "other")]))
