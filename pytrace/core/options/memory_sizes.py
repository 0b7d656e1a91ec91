"""Amounts of memory as users write them: ``512M``, ``2G``, ``10%``."""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT]?)(?:iB|B)?|(%))", re.IGNORECASE)


def parse(text: str, total: int) -> int:
    """The bytes of *text*: a number with a unit (powers of 1024), or a percentage of *total*.

    Raises:
        ValueError: it is neither, or no memory at all.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory")
    number, unit, percent = match.groups()
    if percent and float(number) > 100:
        raise ValueError(f"{text!r} is more than all memory")
    amount = int(float(number) * total / 100) if percent else int(float(number) * _UNITS[unit.upper()])
    if not amount:
        raise ValueError(f"{text!r} is no memory")
    return amount


def shown(amount: int) -> str:
    """An amount with three or four digits and a unit."""
    for unit in ("T", "G", "M", "K"):
        if amount >= _UNITS[unit]:
            value = amount / _UNITS[unit]
            return f"{value:.0f} {unit}iB" if value >= 100 else f"{value:.1f} {unit}iB"
    return f"{amount} bytes"
