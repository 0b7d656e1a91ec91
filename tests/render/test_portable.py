"""Portable values of every type."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.types import INT8, INT64, UINT8, UINT64, Array, Field, Record, String, Struct, Tuple
from pytrace.render import portable
from pytrace.render.forms import Decoders
from pytrace.results.values import StackTrace
from tests.support.captured import Places, forms
from tests.support.encode import Frame, Run, encode
from tests.support.rows import each_row

PAIR = Struct(
    "struct", "pair", 24,
    (
        Field("x", types.Int(4, True), 0),
        Field("flags", types.Int(4, False), 4, 3, 5),
        Field("", Struct("union", "", 8, (Field("a", UINT64, 0), Field("b", UINT8, 0))), 8),
        Field("name", Array(INT8, 8), 16),
    ),
)  # fmt: skip

VALUES: list[tuple[types.Type, Any, Any]] = [
    (types.BOOL, True, True),
    (INT64, -5, -5),
    (types.DOUBLE, 2.5, 2.5),
    (types.FLOAT, 0.10000000149011612, 0.10000000149011612),
    (types.Enum("e", 4, False, (("A", 1),)), 1, 1),
    (types.Pointer(types.VOID), 0xFFFF_8000_0000_0000, 0xFFFF_8000_0000_0000),
    (String(8), b"ab", "ab"),
    (String(8), b"a\xffb", "a\udcffb"),
    (types.Buffer(8), b"\0\1\xff", b"\0\1\xff"),
    (Array(UINT8, 3), (1, 2, 3), (1, 2, 3)),
    (Array(String(4), 2), (b"a", b"b"), ("a", "b")),
    (Tuple((INT64, UINT64)), (1, 2), (1, 2)),
    (Tuple((INT64, String(4))), (1, b"x"), (1, "x")),
    (Tuple((String(4),)), (b"x",), ("x",)),
    (Tuple((String(4), INT64, Tuple((String(4), INT64)))), (b"x", 1, (b"y", 2)), ("x", 1, ("y", 2))),
    (Record(("pid", "comm"), (INT64, String(4))), (1, b"x"), (1, "x")),
    (PAIR, (-1, 21, 7, 7, b"text"), (-1, 21, 7, 7, "text")),
    (types.Stack(True, 2), (7, (), 0), StackTrace(())),
    (types.KSym(), 0x1000, "do_work"),
    (types.USym(), (7, 0x9), "0x9"),
    (types.Inet(), (socket.AF_INET, bytes((127, 0, 0, 1))), "127.0.0.1"),
    (types.Mac(), bytes(range(6)), "00:01:02:03:04:05"),
    (types.Username(), 0, "root"),
    (types.InterfaceName(), 1, "lo"),
    (types.NetworkNamespace(), 5, "5"),
    (types.CgroupPath(), (1 << 62, 1), ""),
    (types.Fixed(1000, 3), -1500, -1500),
    (types.Joined(":", (types.Inet(), INT64)), ((socket.AF_INET, bytes((127, 0, 0, 1))), 80), "127.0.0.1:80"),
    (types.Count(), 1 << 63, 1 << 63),
    (types.Sum(), -7, -7),
    (types.Avg(), (10, 4), (10, 4)),
    (types.Stats(), (-10, 4), (-10, 4)),
    (types.Min(), (3, 1), 3),
    (types.Max(), (-3, 1), -3),
    (types.LHist(0, 30, 10), (0, 2, 0, 0, 1), {1: 2, 4: 1}),
    (types.TSeries(10**9, 2), ((5, 8, 70), (0, 0, 0)), {4: (8, 70)}),
]


def run() -> Run:
    return Run(symbols=Places({0x1000: [Frame("do_work", 16)]}), strings=("%Y", "nothing*"))


def converted(kind: types.Type, value: Any) -> Any:
    made = run()
    return forms(made, Places()).form(kind)(Decoders().decoder(kind)(encode(kind, value), 0))


@each_row(("kind", "value", "expected"), VALUES)
def test_values(kind: types.Type, value: Any, expected: Any) -> None:
    found = converted(kind, value)
    assert found == expected
    assert type(found) is type(expected)


def test_times_are_what_they_print_as() -> None:
    found = converted(types.Timestamp(), (time.clock_gettime_ns(time.CLOCK_BOOTTIME), 0, 0))
    assert found == time.strftime("%Y")


def test_histograms_have_the_buckets_that_counted() -> None:
    kind = types.Hist(0)
    counts = [0] * kind.buckets
    counts[3], counts[-1] = 5, 1
    assert converted(kind, counts) == {3: 5, kind.buckets - 1: 1}


def test_every_type_has_a_value_here() -> None:
    tried = {type(kind) for kind, _, _ in VALUES}
    assert set(types.ALL) - tried == {types.Void, types.Timestamp, types.Hist}


def test_what_is_portable_already_is_not_taken_apart() -> None:
    made = forms(run())
    for kind in (Tuple((INT64, Array(UINT8, 4))), Record(("a",), (types.Stats(),)), Array(types.BOOL, 2)):
        assert made.form(kind) is portable.as_it_is


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [("sum", (12, 2)), ("avg", (12, 2)), ("min", (5, 1)), ("max", (7, 1)), ("", (5, 90))],
)
def test_intervals_of_all_cpus_are_one(reduce: str, expected: tuple[int, int]) -> None:
    meta = (90, 80) if not reduce else (1, 1)
    form = forms(run()).form(types.TSeries(10**9, 4, reduce))
    assert form(((11, 5, meta[0]), (11, 7, meta[1]))) == {10: expected}


def test_intervals_that_some_cpus_gave_up_are_left_out() -> None:
    """The ring of a CPU has room for two: what one still has of interval 1, another has overwritten with 3."""
    form = forms(run()).form(types.TSeries(10**9, 2, "sum"))
    assert form(((2, 1, 1), (3, 1, 1), (3, 5, 1), (4, 5, 1))) == {2: (6, 2), 3: (5, 1)}
