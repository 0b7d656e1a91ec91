"""Tables of constants: what several kernels agree on."""

from __future__ import annotations

import pytest
from generating import constants as generator


def test_constants_on_which_kernels_differ_are_left_out() -> None:
    tables = [{"A": 1, "B": 2, "C": 3}, {"A": 1, "B": 5, "D": 4}]
    assert generator._agreed(tables) == {"A": 1, "C": 3, "D": 4}


@pytest.mark.parametrize(("machine", "folder"), [("x86_64", "x86"), ("aarch64", "arm64")])
def test_architectures(machine: str, folder: str) -> None:
    assert generator.architecture(machine) == folder


def test_values_of_names() -> None:
    found = generator._values(
        "enum { A = 5 };\n#define B (A + 1)\n#define C nothing\n", ["A", "B", "C", "D"], []
    )
    assert found == {"A": 5, "B": 6}
