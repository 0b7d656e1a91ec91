"""Where a string is among the strings of the kernel's type information, told by a sorted column of checksums.

A search of two megabytes takes a millisecond, and a script asks for dozens of names, most of which are in no type.  The
column is made once for a kernel and cached on disk.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING
from zlib import crc32

from pytrace.runtime.host import fingerprints

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC = b"PTBTFS1\n"


class StringIndex:
    """*entries*: the checksum of each string, 32 bits, above its offset, in order."""

    def __init__(self, entries: array[int]) -> None:
        self._entries = entries

    def offsets(self, text: bytes) -> Iterator[int]:
        """Offsets at which the string may be, in order; another one with the same checksum may be there, too."""
        entries, wanted = self._entries, crc32(text)
        at = bisect_left(entries, wanted << 32)
        while at < len(entries) and entries[at] >> 32 == wanted:
            yield entries[at] & 0xFFFFFFFF
            at += 1


def of_strings(strings: bytes | memoryview, name: str) -> StringIndex:
    """The index of a string section, from the cache file of a *name* or made now."""
    kept = _read(name, len(strings))
    if kept is None:
        kept = _made(bytes(strings))
        fingerprints.keep(name, _MAGIC, len(strings).to_bytes(8, "little"), kept.tobytes())
    return StringIndex(kept)


def _made(strings: bytes) -> array[int]:
    texts = strings.split(b"\0")
    starts = accumulate((len(text) + 1 for text in texts), initial=0)
    return array("Q", sorted(crc32(text) << 32 | start for text, start in zip(texts, starts, strict=False)))


def _read(name: str, size: int) -> array[int] | None:
    data = fingerprints.read_kept(name)
    head = len(_MAGIC) + 8
    if data is None or not data.startswith(_MAGIC) or (len(data) - head) % 8 or len(data) < head:
        return None
    if int.from_bytes(data[len(_MAGIC) : head], "little") != size:
        return None
    return array("Q", data[head:])
