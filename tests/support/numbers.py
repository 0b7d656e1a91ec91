"""What the models of numbers share: division as C does it, and buckets of histograms as the reference has them."""

from __future__ import annotations


def divided(a: int, b: int) -> int:
    """C's quotient."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def logarithmic(value: int, bits: int) -> int:
    """The number of a value's bucket in ``hist(value, bits)``."""
    if value < 0:
        return 0
    if value < 1 << bits:
        return value + 1
    power = value.bit_length() - 1 - bits
    return ((power + 1) << bits) + ((value >> power) & ((1 << bits) - 1)) + 1
