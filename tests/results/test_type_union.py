"""One type for what two snapshots call the same."""

from __future__ import annotations

import pytest

from pytrace.core import types
from pytrace.core.types import Field, Type
from pytrace.results.type_union import ROWS, MismatchError, described, joined
from tests.support.rows import each_row
from tests.support.snapshots import COUNT, STRING


def struct(name: str, size: int, *fields: Field) -> types.Struct:
    return types.Struct("struct", name, size, fields, alignment=4)


NARROW = struct("x", 4, Field("n", types.INT32, 0))
MOVED = struct("x", 12, Field("n", types.INT64, 4))
WIDE = types.Record(("a",), (types.INT32,))
SIGNED = types.Enum("colour", 8, True, (("BLUE", 2),))
COLOUR = types.Enum("colour", 4, False, (("RED", 0),))


@each_row(
    ("first", "second", "both"),
    [
        (types.INT32, types.UINT64, types.INT64),
        (types.UINT8, types.UINT64, types.UINT64),
        (types.String(4), types.String(64), types.String(64)),
        (types.Buffer(4), types.Buffer(8), types.Buffer(8)),
        (types.Array(types.INT8, 3), types.Array(types.INT32, 3), types.Array(types.INT32, 3)),
        (types.Tuple((types.INT8, STRING)), types.Tuple((types.INT32, STRING)), types.Tuple((types.INT32, STRING))),
        (types.Record(("a",), (types.INT8,)), WIDE, WIDE),
        (COLOUR, SIGNED, types.Enum("colour", 8, True, (("RED", 0), ("BLUE", 2)))),
        (NARROW, MOVED, MOVED),
        (types.Stack(True, 3), types.Stack(True, 9), types.Stack(True, 9)),
        (types.Sum(False), types.Sum(True), types.Sum(True)),
        (types.Pointer(types.INT8), types.Pointer(types.INT64), types.Pointer(types.VOID)),
        (types.TSeries(10, 3, "sum"), types.TSeries(10, 5, "sum"), types.TSeries(10, 5, "sum")),
        (types.Mac(), types.Mac(), types.Mac()),
    ],
)  # fmt: skip
def test_the_larger_is_taken_in_any_order(first: Type, second: Type, both: Type) -> None:
    assert joined(first, second) == joined(second, first) == both
    assert joined(both, first) == both
    assert joined(first, first) is first


@each_row(
    ("first", "second"),
    [
        (types.INT64, STRING),
        (COUNT, types.Sum()),
        (COLOUR, types.Enum("flavour", 4, False, ())),
        (types.Array(types.INT8, 3), types.Array(types.INT8, 4)),
        (types.Tuple((types.INT8,)), types.Tuple((types.INT8, types.INT8))),
        (types.Tuple((types.INT8,)), types.Tuple((STRING,))),
        (types.Record(("a",), (types.INT8,)), types.Record(("b",), (types.INT8,))),
        (NARROW, struct("y", 4, Field("n", types.INT32, 0))),
        (NARROW, struct("x", 4, Field("m", types.INT32, 0))),
        (types.Stack(True), types.Stack(False)),
        (types.Hist(1), types.Hist(2)),
        (types.LHist(0, 9, 1), types.LHist(0, 9, 3)),
        (types.TSeries(10, 3, "sum"), types.TSeries(10, 3, "avg")),
    ],
)
def test_what_decides_the_meaning_must_agree(first: Type, second: Type) -> None:
    for one, other in ((first, second), (second, first)):
        with pytest.raises(MismatchError):
            joined(one, other)


def test_descriptions_name_what_decides() -> None:
    assert described(None) == "no key"
    assert described(types.Hist(3)) == "hist with 3 bits"
    assert described(types.LHist(0, 9, 3)) == "lhist from 0 to 9 by 3"
    assert described(types.TSeries(10, 3)) == "tseries of 10 ns, last value"
    assert described(types.Tuple((types.INT64, types.Stack(True)))) == "(int64, ustack(bpftrace))"
    assert described(types.Record(("a", "b"), (types.INT64, types.INT8))) == "(a=int64, b=int8)"
    assert described(NARROW) == "struct x with members n"


def test_every_type_with_parameters_has_a_row() -> None:
    parameters = {kind: set(kind.__struct_fields__) for kind in types.ALL if issubclass(kind, types.Data)}
    lacking = [kind.__name__ for kind, names in parameters.items() if names and kind not in ROWS]
    assert not lacking, "rows of pytrace/results/type_union.py"
