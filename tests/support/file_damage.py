"""Ways in which a file is not what was written: after a power failure, on a bad disk, by a mistake."""

from __future__ import annotations

from collections.abc import Callable
from random import Random


def _zeroed(data: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes(len(data[at : at + 512])) + data[at + 512 :]


def _flipped(data: bytes, chance: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 20)) if data else 0):
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


DAMAGE: dict[str, Callable[[bytes, Random], bytes]] = {
    "truncated": lambda data, chance: data[: chance.randrange(len(data) + 1)],
    "empty": lambda data, chance: b"",
    "zeros": lambda data, chance: bytes(len(data)),
    "zeroed": _zeroed,
    "flipped": _flipped,
    "random": lambda data, chance: chance.randbytes(len(data)),
    "longer": lambda data, chance: data + chance.randbytes(chance.randrange(1, 99)),
    "doubled": lambda data, chance: data * 2,
}
"""By name: a function of the file's bytes and a source of chance."""
