"""Agents that lie beside honest ones, by kinds of lies and a seed (``scripts/fuzz lying_hosts`` for hours)."""

from __future__ import annotations

import pytest

from tests.support import lies

SEEDS = 10
"""Mixtures of each kind."""


@pytest.mark.parametrize("kind", list(lies.KINDS))
def test_a_lie_harms_nobody_else(kind: str, pytestconfig: pytest.Config) -> None:
    begin = pytestconfig.getoption("--random-seed")
    with lies.low_bounds():
        for seed in range(begin, begin + SEEDS):
            try:
                lies.attempt(seed, kind)
            except BaseException as error:
                raise AssertionError(f"lies.attempt({seed}, {kind!r})") from error
