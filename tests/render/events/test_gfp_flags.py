"""pytrace.render.events.gfp_flags: names of flags, the longest combination first."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pytrace.render.events.gfp_flags import BITS, COMPOUNDS, names
from tests.support.rows import each_row


@each_row(
    ("flags", "text"),
    [
        (0, b"0"),
        (0x1, b"GFP_DMA"),
        (0x2, b"__GFP_HIGHMEM"),
        (0xCC0, b"GFP_KERNEL"),
        (0xDC0, b"GFP_KERNEL|__GFP_ZERO"),
        (0x400CC0, b"GFP_KERNEL_ACCOUNT"),
        (0xC40, b"GFP_NOFS"),
        (0xC00, b"GFP_NOIO"),
        (0x820, b"GFP_ATOMIC"),
        (0x800, b"GFP_NOWAIT"),
        (0x100CCA, b"GFP_HIGHUSER_MOVABLE"),
        # A bit without a name, and one beyond all that have one.
        (0x200, b"0x200"),
        (0x1000000 | 0x100, b"__GFP_ZERO|0x1000000"),
    ],
)
def test_names_of_flags(flags: int, text: bytes) -> None:
    assert names(flags) == text


def test_a_combination_comes_before_those_that_it_contains() -> None:
    for at, (name, bits) in enumerate(COMPOUNDS):
        assert not any(bits & other == bits for _, other in COMPOUNDS[at + 1 :]), name
        assert names(bits) == name.encode()


def test_no_bit_is_lost() -> None:
    every = reduce(or_, BITS.values())
    known = {**BITS, **dict(COMPOUNDS)}
    for flags in (every, every ^ BITS["__GFP_FS"], BITS["__GFP_IO"] | BITS["__GFP_COMP"]):
        parts = names(flags).decode().split("|")
        assert reduce(or_, (known[part] for part in parts)) == flags
