"""The function that finds the unwind rule at an address."""

from __future__ import annotations

import struct

import pytest

from pytrace.codegen.walkers import unwinding
from pytrace.codegen.walkers.unwinding import RANGES, ROWS, RULE_FUNCTION
from pytrace.core.manifest import MapType
from pytrace.core.stack_formats import Rule
from tests.codegen.running import machine
from tests.codegen.services.test_user_unwinding import KERNEL
from tests.support.bpf_machine import BpfMap, Machine

STARTS = (0x1000, 0x3000, 0x9000)
"""Where the ranges of a process begin, each 0x1000 long; the binary's rows begin at its first and every 16th byte."""
ROWS_EACH = 5
FRAME, UNMAPPED = Rule.FRAME.value, Rule.UNMAPPED.value


def tables() -> Machine:
    found = machine("kprobe:vfs_read { @[dw_ustack] = count(); }", KERNEL)
    ranges = found.maps[found.names[RANGES]] = BpfMap(MapType.ARRAY, 4, 32)
    rows = found.maps[found.names[ROWS]] = BpfMap(MapType.ARRAY, 4, 8)
    # The process's ranges are entries 2 to 4 of all.
    for at, start in enumerate(STARTS):
        entry = struct.pack("<4Q", start, start + 0x1000, start - 0x100, (ROWS_EACH << 32) | (10 * at))
        ranges.entries[(2 + at).to_bytes(4, "little"), 0] = found.region(entry)
        for row in range(ROWS_EACH):
            place = 0x100 + 16 * row
            key = (10 * at + row).to_bytes(4, "little")
            rows.entries[key, 0] = found.region(struct.pack("<Q", place << 32 | 100 * at + row + 1))
    # Code without a table.
    entry = struct.pack("<4Q", 0xB000, 0xC000, 0, 0)
    ranges.entries[(2 + len(STARTS)).to_bytes(4, "little"), 0] = found.region(entry)
    return found


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        (0x0FFF, UNMAPPED), (0x1000, 1), (0x100F, 1), (0x1010, 2), (0x1040, 5), (0x1FFF, 5), (0x2000, UNMAPPED),
        (0x3000, 101), (0x3021, 103), (0x9000, 201), (0x9FFF, 205), (0xA000, UNMAPPED), (0, UNMAPPED),
        (2**64 - 1, UNMAPPED), (0xB000, FRAME), (0xBFFF, FRAME),
    ],
)  # fmt: skip
def test_rules(address: int, rule: int) -> None:
    found = tables()
    assert found._function(found.names[RULE_FUNCTION], (address, (len(STARTS) + 1) << 32 | 2)) == rule


def test_a_process_without_ranges() -> None:
    found = tables()
    assert found._function(found.names[RULE_FUNCTION], (0x1000, 2)) == UNMAPPED


def test_maps() -> None:
    manifest = tables().script.manifest
    assert manifest.unwind == unwinding.unwind_maps(selected=True, asks=False)
    assert machine("kprobe:vfs_read { @[ustack] = count(); }").script.manifest.unwind is None
