"""Packets written as pcap files, for ``skboutput``."""

from __future__ import annotations

import struct

from pytrace.core.diagnostics import TraceError

_MAGIC_NANOSECONDS = 0xA1B23C4D
_LINKTYPE_RAW = 101
_SNAPLEN = 65535
_SECOND = 1_000_000_000


class PcapWriter:
    """One file of raw IP packets with times in nanoseconds (https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html).

    Raises:
        TraceError: the file cannot be created.
    """

    def __init__(self, path: str) -> None:
        try:
            self._file = open(path, "wb")  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise TraceError(f"cannot write packets to {path!r}: {error.strerror}") from error
        self._file.write(struct.pack("=IHHiIII", _MAGIC_NANOSECONDS, 2, 4, 0, 0, _SNAPLEN, _LINKTYPE_RAW))

    def packet(self, wall: int, length: int, data: bytes) -> None:
        """Add a packet of *length* bytes, of which *data* was captured at *wall* (nanoseconds since 1970)."""
        seconds, rest = divmod(wall, _SECOND)
        self._file.write(struct.pack("=IIII", seconds & 0xFFFFFFFF, rest, len(data), max(length, len(data))) + data)

    def close(self) -> None:
        """Write what waits and close the file."""
        self._file.close()
