"""pytrace.runtime.elf.usdt_notes: the notes of a test program."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pytrace.runtime.live_kernel import LiveKernel


def test_notes(programs: Path) -> None:
    path = str(programs / "usdt")
    found = LiveKernel().usdt_probes(path, "*", "*")
    assert [(probe.provider, probe.name) for probe in found] == [
        ("sample", "plain"), ("sample", "one"), ("sample", "four"), ("sample", "guarded"),
    ]  # fmt: skip
    assert found[0].arguments == ""
    assert found[2].arguments.split()[-1] == "-4@$42"
    code = Path(path).read_bytes()
    assert all(code[probe.offset] == 0x90 for probe in found), "each is at a nop"


def test_semaphore_offset(programs: Path) -> None:
    path = str(programs / "usdt")
    by_name = {probe.name: probe for probe in LiveKernel().usdt_probes(path, "sample", "*")}
    assert by_name["one"].semaphore_offset == 0
    sections = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout
    row = next(line for line in sections.splitlines() if " .probes " in line)
    offset = int(row.split("PROGBITS")[1].split()[1], 16)
    assert by_name["guarded"].semaphore_offset == offset


def test_patterns(programs: Path) -> None:
    kernel = LiveKernel()
    path = str(programs / "usdt")
    assert [probe.name for probe in kernel.usdt_probes(path, "", "*u*")] == ["four", "guarded"]
    assert kernel.usdt_probes(path, "other", "*") == []
    assert kernel.usdt_probes(str(programs / "calls"), "*", "*") == []
