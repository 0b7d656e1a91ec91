"""Hostile processes beside an honest one, by a seed (``scripts/fuzz hostile_processes`` for hours)."""

from __future__ import annotations

import pytest

from tests.support import hostile_files, hostile_processes

SEEDS = 2
"""Mixtures, beside the two of ``tests/fuzz/test_corpus.py``: one takes two to four seconds of a processor."""


def test_hostile_processes_harm_nobody_else(pytestconfig: pytest.Config) -> None:
    begin = 2 + pytestconfig.getoption("--random-seed")
    with hostile_files.low_limits():
        for seed in range(begin, begin + SEEDS):
            try:
                hostile_processes.attempt(seed)
            except BaseException as error:
                raise AssertionError(f"hostile_processes.attempt({seed})") from error
