"""Arithmetic on constants is what the machine would compute."""

from __future__ import annotations

import pytest

from pytrace.core.types import INT8, INT32, INT64, UINT8, UINT64, Int
from pytrace.frontend.check.conversions import FoldError, fold_arithmetic, fold_bytes, fold_comparison, wrap
from tests.support.rows import each_row


@pytest.mark.parametrize(
    ("value", "type_", "wanted"),
    [
        (300, UINT8, 44), (200, INT8, -56), (-1, UINT8, 255), (127, INT8, 127), (128, INT8, -128), (1 << 64, INT64, 0),
        (-1, UINT64, 2**64 - 1),
    ],
)  # fmt: skip
def test_wrap(value: int, type_: Int, wanted: int) -> None:
    assert wrap(value, type_) == wanted


@each_row(
    ("left", "operator", "right", "type_", "wanted"),
    [
        (7, "/", 2, None, 3), (-7, "/", 2, None, -3), (7, "/", -2, None, -3), (-7, "/", -2, None, 3),
        (-7, "%", 3, None, -1), (7, "%", -3, None, 1),
        (1, "<<", 65, None, 2),
        (-1, "<<", 63, None, -(2**63)), (1, "<<", 64, None, 1), (-8, ">>", 1, None, -4), (8, ">>", 65, None, 4),
        (2**63, "<<", 1, None, 0), (6, "&", 3, None, 2), (6, "|", 3, None, 7), (6, "^", 3, None, 5),
        (2**63 - 1, "+", 1, INT64, -(2**63)), (2**63 - 1, "+", 1, None, 2**63), (0, "-", 1, UINT64, 2**64 - 1),
        (2**31, "*", 2, INT32, 0), (-1, "/", 2, UINT64, 2**63 - 1), (1, "<<", -1, INT64, -(2**63)),
    ],
)  # fmt: skip
def test_arithmetic(left: int, operator: str, right: int, type_: Int | None, wanted: int) -> None:
    assert fold_arithmetic(operator, left, right, type_) == wanted


@pytest.mark.parametrize(
    ("left", "operator", "right", "message"),
    [
        (1, "/", 0, "division by zero"), (1, "%", 0, "division by zero"), (2**64 - 1, "+", 1, "fit 64 bits"),
        (-(2**63), "-", 1, "fit 64 bits"),
    ],
)  # fmt: skip
def test_results_that_do_not_exist(left: int, operator: str, right: int, message: str) -> None:
    with pytest.raises(FoldError, match=message):
        fold_arithmetic(operator, left, right, None)


def test_comparisons() -> None:
    assert fold_comparison("<", -1, 1, None)
    assert not fold_comparison("<", -1, 1, UINT64)
    assert fold_comparison("==", 256, 0, UINT8)
    assert fold_comparison(">=", 5, 5, INT64)
    assert not fold_comparison("!=", 5, 5, INT64)


def test_strings_end_at_their_first_nul() -> None:
    assert fold_bytes("==", b"a\0b", b"a")
    assert fold_bytes("<", b"a", b"b")
    assert not fold_bytes("!=", b"", b"\0x")
