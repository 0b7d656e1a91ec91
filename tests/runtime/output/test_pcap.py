"""pytrace.runtime.output.pcap: the bytes of a file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.output.pcap import PcapWriter

HEADER = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 101)
"""Magic number of nanoseconds, version 2.4, longest packet, raw IP."""


def test_a_file_without_packets(tmp_path: Path) -> None:
    PcapWriter(str(tmp_path / "p")).close()
    assert (tmp_path / "p").read_bytes() == HEADER


@pytest.mark.parametrize(
    ("wall", "length", "head"),
    [
        (5_000_000_007, 4, (5, 7, 4, 4)),
        (5_000_000_007, 1500, (5, 7, 4, 1500)),
        # More was captured than the packet says that it has.
        (999_999_999, 3, (0, 999_999_999, 4, 4)),
        ((1 << 32) * 1_000_000_000 + 9, 4, (0, 9, 4, 4)),
        (-1, 4, (0xFFFFFFFF, 999_999_999, 4, 4)),
    ],
)
def test_a_packet(tmp_path: Path, wall: int, length: int, head: tuple[int, ...]) -> None:
    writer = PcapWriter(str(tmp_path / "p"))
    writer.packet(wall, length, b"data")
    writer.close()
    assert (tmp_path / "p").read_bytes() == HEADER + struct.pack("=4I", *head) + b"data"


def test_a_file_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=f"^cannot write packets to '{tmp_path}': Is a directory$"):
        PcapWriter(str(tmp_path))
