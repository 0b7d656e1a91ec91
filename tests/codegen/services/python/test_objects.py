"""Objects as text in strings of any size; what the texts are is shown in tests/kernel/test_python_stacks.py."""

from __future__ import annotations

import pytest

from pytrace.codegen.walkers.python_objects import _DECIMALS
from tests.codegen.services.python.test_calls import compiled


@pytest.mark.parametrize("size", [1, 2, 3, 5, 24, 200])
def test_sizes(size: int) -> None:
    assert compiled(f"python:a.py:f {{ print(pystr(args.x, {size})); }}").elf


def test_decimals_of_64_bits() -> None:
    assert len(str((1 << 64) - 1)) == _DECIMALS
