"""Hostile processes beside an honest one, by a seed (``scripts/fuzz hostile_processes`` for hours)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.patience import patience

SEEDS = 4
"""Mixtures: one takes a second of a processor."""


def test_hostile_processes_harm_nobody_else(pytestconfig: pytest.Config) -> None:
    """In a process of their own: they have what that one had mapped, and of a worker of tests that is LLVM, too."""
    begin = pytestconfig.getoption("--random-seed")
    command = [sys.executable, "-m", "tests.support.hostile_processes", str(begin), str(begin + SEEDS)]
    done = subprocess.run(
        command, cwd=pytestconfig.rootpath, capture_output=True, text=True, timeout=patience(60), check=False
    )
    assert done.returncode == 0, done.stderr
