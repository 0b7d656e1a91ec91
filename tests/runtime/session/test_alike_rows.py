"""pytrace.runtime.session.alike_rows: rows of maps that are the same stacks of one process."""

from __future__ import annotations

import struct

from pytrace.core import types
from pytrace.core.manifest import MapSpec
from pytrace.core.stacks.image_format import FIRST_IMAGE
from pytrace.runtime.session.alike_rows import AlikeRows

PID, OTHER = 100, 200
STACK = types.Stack(user=True, limit=3)
SYMBOL = types.USym()


class Symbols:
    """Process 100 has loaded a library at 0x1000, then at 0x5000; what is at 0x9000 is another one each time."""

    def owner(self, process: int) -> int:
        return PID if process == PID or process >= FIRST_IMAGE else 0

    def origin(self, process: int, address: int) -> tuple[object, ...]:
        return (process, address) if address >= 0x9000 else ("library", address % 0x1000)


def stack(process: int, *addresses: int) -> bytes:
    return struct.pack("=iI", len(addresses), process) + struct.pack("=3Q", *addresses, *[0] * (3 - len(addresses)))


def joined(key: types.Type, value: types.Type, rows: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The rows after joining; each is a block of its own before."""
    spec = MapSpec("@", "map", "percpuhash", key, value, 10)
    size = len(rows[0][0])
    return [
        (keys[size * row : size * (row + 1)], values[len(values) // count * row : len(values) // count * (row + 1)])
        for keys, values, count in AlikeRows(Symbols())(spec, iter([(*row, 1) for row in rows]))
        for row in range(count)
    ]


def test_stacks_of_the_same_code_are_one() -> None:
    one, two = struct.pack("=2Q", 1, 5), struct.pack("=2Q", 2, (1 << 64) - 1)
    rows = [
        (stack(PID, 0x1010, 0x1020), one),
        (stack(OTHER, 0x1010, 0x1020), one),
        (stack(FIRST_IMAGE, 0x5010, 0x5020), two),
        (stack(FIRST_IMAGE + 1, 0x1010), one),
        (stack(FIRST_IMAGE, 0x9010), one),
        (stack(FIRST_IMAGE + 1, 0x9010), one),
    ]
    assert joined(STACK, types.Count(), rows) == [
        rows[1],
        (rows[0][0], struct.pack("=2Q", 3, 4)),
        *rows[3:],
    ]


def test_other_parts_of_keys_still_differ() -> None:
    key = types.Tuple((types.UINT64, SYMBOL))
    rows = [
        (struct.pack("=QQII", number, address, process, 0), struct.pack("=Q", 1))
        for number, address, process in ((1, 0x1010, PID), (2, 0x1010, PID), (1, 0x5010, FIRST_IMAGE))
    ]
    assert joined(key, types.Sum(), rows) == [(rows[0][0], struct.pack("=Q", 2)), rows[1]]


def test_extremes_and_values_that_cannot_be_joined() -> None:
    rows = [
        (stack(PID, 0x1010), struct.pack("=4Q", 7, 1, 0, 0)),
        (stack(FIRST_IMAGE, 0x5010), struct.pack("=4Q", 9, 0, 4, 1)),
    ]
    assert joined(STACK, types.Max(), rows) == [(rows[0][0], struct.pack("=4Q", 7, 1, 4, 1))]
    plain = [(key, struct.pack("=Q", number)) for number, (key, _) in enumerate(rows)]
    assert joined(STACK, types.UINT64, plain) == plain
