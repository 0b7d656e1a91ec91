"""What the models of numbers share: integers of some width, and buckets of histograms as the reference has them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Integers:
    """The integers of 1, 2, 4 or 8 bytes; values are Python integers."""

    width: int
    signed: bool

    @property
    def name(self) -> str:
        return f"{'' if self.signed else 'u'}int{8 * self.width}"

    @property
    def zero(self) -> int:
        return 0

    @property
    def low(self) -> int:
        return -(1 << (8 * self.width - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        return (1 << (8 * self.width - self.signed)) - 1

    def wrap(self, value: int) -> int:
        """*value* cut to the width, and read with the sign."""
        value &= (1 << (8 * self.width)) - 1
        return value - (1 << (8 * self.width)) if value > self.high else value


def logarithmic(value: int, bits: int) -> int:
    """The number of a value's bucket in ``hist(value, bits)``."""
    if value < 0:
        return 0
    if value < 1 << bits:
        return value + 1
    power = value.bit_length() - 1 - bits
    return ((power + 1) << bits) + ((value >> power) & ((1 << bits) - 1)) + 1
