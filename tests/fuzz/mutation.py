"""Inputs that differ a little from known ones: fuzzing without coverage, for the unit tests."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_MOST = 8
"""Bytes that one change concerns."""


def mutated(data: bytes, words: Sequence[str], choose: Random) -> bytes:
    """*data* with some changes: bytes and bits, numbers, parts left out, added and copied, words of the format."""
    found = bytearray(data or b"x")
    for _ in range(choose.randint(1, 6)):
        place = choose.randrange(len(found)) if found else 0
        kind = choose.randrange(7 if words else 6)
        if kind == 0 and found:
            found[place] = choose.randrange(256)
        elif kind == 1 and found:
            found[place] ^= 1 << choose.randrange(8)
        elif kind == 2:
            found[place : place + 4] = choose.choice((0, 0xFFFFFFFF, choose.randrange(40))).to_bytes(4, "little")
        elif kind == 3:
            del found[place : place + choose.randint(1, _MOST)]
        elif kind == 4:
            found[place:place] = choose.randbytes(choose.randint(1, _MOST))
        elif kind == 5:
            source = choose.randrange(len(found) + 1)
            found[place : place + _MOST] = found[source : source + _MOST]
        elif words:
            found[place:place] = choose.choice(words).encode("utf-8", "surrogateescape")
    return bytes(found)
