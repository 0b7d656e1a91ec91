"""A unit of processor time that fits the machine: the test machine is emulated and ten times slower than its host."""

from __future__ import annotations

import time
from functools import cache


@cache
def unit() -> float:
    """Processor seconds that a fixed piece of Python takes here (4 to 10 ms on a machine of 2024)."""
    start = time.process_time()
    total = 0
    for number in range(200_000):
        total += number
    return time.process_time() - start
