"""Unification and assignability of types."""

from __future__ import annotations

import pytest

from pytrace.core.types import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    VOID,
    AddressSpace,
    Array,
    Count,
    Enum,
    Pointer,
    Record,
    String,
    Sum,
    Tuple,
    Type,
)
from pytrace.frontend.check.conversions import UNKNOWN, Flexible, fits, literal, settle, signs_differ, unify
from tests.support.rows import each_row

COLOR = Enum("color", 4, False, (("RED", 0),))


@each_row(
    ("first", "second", "wanted"),
    [
        (INT8, INT32, INT32),
        (UINT8, UINT32, UINT32),
        (UINT8, INT8, INT16),
        (UINT32, INT8, INT64),
        (UINT64, INT8, INT64),
        (UINT16, INT64, INT64),
        (literal(5), UINT16, UINT16),
        (literal(70000), UINT16, UINT32),
        (literal(-1), UINT16, INT32),
        (literal(-1), UINT64, INT64),
        (BOOL, INT8, INT8),
        (BOOL, BOOL, BOOL),
        (String(4), String(9), String(9)),
        (COLOR, COLOR, COLOR),
        (COLOR, literal(3), UINT32),
        (Tuple((INT8, String(2))), Tuple((INT32, String(1))), Tuple((INT32, String(2)))),
        (Tuple((INT8,)), Tuple((INT8, INT8)), None),
        (Record(("a", "b"), (INT8, INT16)), Record(("b", "a"), (INT8, INT64)), Record(("a", "b"), (INT64, INT16))),
        (Record(("a",), (INT8,)), Record(("b",), (INT8,)), None),
        (Pointer(INT8), Pointer(INT8), Pointer(INT8)),
        (Pointer(INT8), Pointer(VOID), Pointer(VOID)),
        (Pointer(INT8), Pointer(INT16), None),
        (Pointer(INT8), INT64, None),
        (INT8, String(4), None),
        (Array(INT8, 4), Array(UINT8, 4), Array(INT8, 4)),
        (Array(INT8, 4), Array(INT8, 5), None),
        (Array(Pointer(INT8), 2), Array(Pointer(INT8, AddressSpace.USER), 2), Array(Pointer(INT8), 2)),
        (Array(Pointer(INT8), 2), Array(Pointer(INT16), 2), None),
        (Count(), Sum(), None),
        (Sum(True), Sum(False), Sum(True)),
        (UNKNOWN, INT8, INT8),
    ],
)
def test_unify(first: Type, second: Type, wanted: Type | None) -> None:
    found = unify(first, second)
    assert (settle(found) if found is not None else None) == wanted


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [(0, 127, INT8), (0, 128, INT16), (-129, 0, INT16), (0, 1 << 63, UINT64), (-1, 1 << 31, INT64)],
)
def test_settle(low: int, high: int, wanted: Type) -> None:
    assert settle(Flexible(low, high)) == wanted
    assert settle(Tuple((Flexible(low, high),))) == Tuple((wanted,))


def test_signs() -> None:
    assert signs_differ(UINT64, INT8)
    assert signs_differ(literal(-1), UINT64)
    assert not signs_differ(literal(1), UINT64)
    assert not signs_differ(UINT32, INT8)


@each_row(
    ("value", "slot", "wanted"),
    [
        (INT8, INT16, True), (INT16, INT8, False), (UINT8, INT16, True), (INT8, UINT16, False),
        (literal(255), UINT8, True), (literal(256), UINT8, False), (literal(1), BOOL, True), (INT8, BOOL, False),
        (String(4), String(8), True), (String(8), String(4), False),
        (Tuple((INT8,)), Tuple((INT16,)), True), (Tuple((INT16,)), Tuple((INT8,)), False),
        (Record(("a", "b"), (INT8, INT8)), Record(("b", "a"), (INT16, INT8)), True),
        (Pointer(INT8), Pointer(INT8), True), (Pointer(INT8), INT64, False), (UNKNOWN, INT8, True),
    ],
)  # fmt: skip
def test_fits(value: Type, slot: Type, wanted: bool) -> None:
    assert fits(value, slot) is wanted
