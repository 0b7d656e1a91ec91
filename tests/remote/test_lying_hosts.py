"""Agents that lie beside honest ones, by kinds of lies and a seed (``scripts/fuzz lying_hosts`` for hours)."""

from __future__ import annotations

import pytest

from pytrace.remote import host_results
from pytrace.results import stored_document
from tests.support import lies

SEEDS = 10
"""Mixtures of each kind."""


@pytest.fixture(autouse=True)
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are reached quickly; :mod:`tests.remote.test_host_results` tries those of users."""
    monkeypatch.setattr(stored_document, "LEAST_ROWS", lies.ROWS)
    monkeypatch.setattr(host_results, "MOST_FRAMES", lies.ROWS)
    monkeypatch.setattr(host_results, "AT_ONCE", lies.ROWS * 4)


@pytest.mark.parametrize("kind", list(lies.KINDS))
def test_a_lie_harms_nobody_else(kind: str, pytestconfig: pytest.Config) -> None:
    begin = pytestconfig.getoption("--random-seed")
    for seed in range(begin, begin + SEEDS):
        try:
            lies.attempt(seed, kind)
        except BaseException as error:
            raise AssertionError(f"lies.attempt({seed}, {kind!r})") from error
