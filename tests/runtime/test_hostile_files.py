"""Hostile files beside honest ones, by kinds of lies and a seed (``scripts/fuzz hostile_files`` for hours)."""

from __future__ import annotations

import pytest

from tests.support import hostile_files

SEEDS = 2
"""Mixtures of each kind."""


@pytest.mark.parametrize("kind", list(hostile_files.KINDS))
def test_a_hostile_file_harms_nobody_else(kind: str, pytestconfig: pytest.Config) -> None:
    begin = pytestconfig.getoption("--random-seed")
    with hostile_files.low_limits():
        for seed in range(begin, begin + SEEDS):
            try:
                hostile_files.attempt(seed, kind)
            except BaseException as error:
                raise AssertionError(f"hostile_files.attempt({seed}, {kind!r})") from error
