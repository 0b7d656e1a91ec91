"""What the verifier counts of a fixed set of scripts, and what a start from the cache does, does not grow unnoticed."""

from __future__ import annotations

import pytest

from tests.support import costs, kernel_costs
from tests.support.machine import need

pytestmark = pytest.mark.own_process


def _recorded(part: str) -> None:
    if not costs.recorded(part):
        pytest.skip(f"nothing is recorded of programs {part}: the numbers are compared where they were taken")


def test_the_verifier_has_no_more_to_do_than_recorded() -> None:
    part = kernel_costs.verifier()
    _recorded(part)
    # The same program was seen with 128 and with 129: numbers that are those of a boot or a run are in it.
    costs.check(part, kernel_costs.of_all_programs(), kernel_costs.OF_A_RUN)


def test_a_start_from_the_cache_does_no_more_than_recorded() -> None:
    need("tracepoint")
    part = kernel_costs.starter()
    _recorded(part)
    found = kernel_costs.of_all_starts()
    for _ in range(2):
        # What else a machine does may make a start wait or look again: the least is what the start itself does.
        if not costs.changes(found, costs.recorded(part), kernel_costs.TOLERANCE)[0]:
            break
        again = kernel_costs.of_all_starts()
        found = {name: {what: min(n, again[name][what]) for what, n in each.items()} for name, each in found.items()}
    costs.check(part, found, kernel_costs.TOLERANCE)
