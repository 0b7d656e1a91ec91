"""Every builtin that works in the kernel has code."""

from __future__ import annotations

import msgspec
import pytest

from pytrace.codegen.lower.expressions import FAMILIES, family_of
from pytrace.codegen.lower.maps import Aggregates
from pytrace.core.builtins import AGGREGATES, BUILTINS, Builtin, Mode
from pytrace.core.types import TSeries, Type

KERNEL = [row for row in BUILTINS if row.mode is Mode.KERNEL and row not in AGGREGATES]


@pytest.mark.parametrize("row", KERNEL, ids=lambda row: row.name)
def test_kernel_builtin_has_emission(row: Builtin) -> None:
    assert row.name in family_of(row).EMIT


def test_no_emission_without_row() -> None:
    families: dict[str, set[str]] = {}
    for row in BUILTINS:
        families.setdefault(row.family, set()).add(row.name)
    assert families.keys() == {*FAMILIES, "aggregate"}
    for family in FAMILIES:
        row = next(row for row in BUILTINS if row.family == family)
        assert set(family_of(row).EMIT) <= families[family]


def test_every_aggregation_has_a_row() -> None:
    known: set[type[Type]] = {*Aggregates.ROWS, TSeries}
    tags = {kind.__struct_config__.tag for kind in known if issubclass(kind, msgspec.Struct)}
    assert tags == {row.name for row in AGGREGATES}
