"""Every builtin that works in the kernel has code."""

from __future__ import annotations

from importlib import import_module

import msgspec
import pytest

from pytrace.codegen.lower.aggregates import ROWS
from pytrace.codegen.lower.builtins.families import FAMILIES, emission
from pytrace.core.builtins import AGGREGATES, BUILTINS, Builtin, Mode
from pytrace.core.types import TSeries, Type

KERNEL = [row for row in BUILTINS if row.mode is Mode.KERNEL and row not in AGGREGATES]


@pytest.mark.parametrize("row", KERNEL, ids=lambda row: row.name)
def test_kernel_builtin_has_emission(row: Builtin) -> None:
    assert emission(row) is not None


def test_no_emission_without_row() -> None:
    rows = {row.name for row in BUILTINS}
    for family in FAMILIES:
        table = import_module(f"pytrace.codegen.lower.builtins.{family}_family").EMIT
        assert set(table) <= rows


def test_every_aggregation_has_a_row() -> None:
    known: set[type[Type]] = {*ROWS, TSeries}
    tags = {kind.__struct_config__.tag for kind in known if issubclass(kind, msgspec.Struct)}
    assert tags == {row.name for row in AGGREGATES}
