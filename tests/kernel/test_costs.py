"""What the verifier counts of a fixed set of scripts, and what a start from the cache does, does not grow unnoticed."""

from __future__ import annotations

import pytest

from tests.support import costs, kernel_costs
from tests.support.machine import need


def _recorded(part: str) -> None:
    if not costs.recorded(part):
        pytest.skip(f"nothing is recorded of programs {part}: the numbers are compared where they were taken")


def test_the_verifier_has_no_more_to_do_than_recorded() -> None:
    part = kernel_costs.verifier()
    _recorded(part)
    costs.check(part, kernel_costs.of_all_programs())


def test_a_start_from_the_cache_does_no_more_than_recorded() -> None:
    need("tracepoint")
    part = kernel_costs.starter()
    _recorded(part)
    costs.check(part, kernel_costs.of_all_starts(), kernel_costs.TOLERANCE)
