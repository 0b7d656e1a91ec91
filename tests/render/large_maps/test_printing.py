"""Maps with very many keys print as the straightforward way prints them: text, JSON, CSV, order, top, div."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.types import (
    INT8,
    INT32,
    INT64,
    UINT16,
    UINT64,
    Array,
    Avg,
    Buffer,
    Count,
    Hist,
    LHist,
    Max,
    Min,
    Record,
    Stack,
    Stats,
    String,
    Sum,
    Tuple,
)
from pytrace.render import histogram
from pytrace.render.decoders import for_any
from pytrace.render.forms import Decoders
from pytrace.render.large_maps.printing import LAST, BucketTexts, RowFormat, cell, number_cell
from pytrace.render.maps import map_printer
from pytrace.runtime.output import map_output
from tests.support.encode import Frame, Run, Symbols
from tests.support.rows import each_row

CPUS = 3


def number(rng: random.Random, kind: Any) -> int:
    bits = 8 * kind.size
    value = rng.choice((rng.randrange(4), rng.getrandbits(bits), (1 << bits) - 1 - rng.randrange(3), 1 << (bits - 1)))
    return value - (1 << bits) if kind.signed and value >> (bits - 1) else value


def value_of(rng: random.Random, kind: types.Type) -> Any:
    """A random value as decoders give it; often one that others are equal to, or nearly."""
    return _VALUES[type(kind)](rng, kind)


def _stack(rng: random.Random, kind: Any) -> Any:
    if not rng.randrange(8):
        return rng.randrange(3), (), rng.choice((-14, -2))
    return rng.randrange(3), tuple(rng.choice((1, 2, 3, 1 << 63)) for _ in range(rng.randrange(kind.limit + 1))), 0


def _text(rng: random.Random, most: int) -> bytes:
    return bytes(rng.choices(b'ab%,"\\\x01\xe4', k=rng.randrange(most + 1)))


_VALUES: dict[type[types.Type], Any] = {
    types.Bool: lambda rng, _kind: rng.random() < 0.5,
    types.Int: number,
    types.Enum: number,
    types.Pointer: lambda rng, _kind: rng.choice((0, 5, 1 << 63, rng.getrandbits(64))),
    String: lambda rng, kind: _text(rng, kind.capacity),
    Buffer: lambda rng, kind: rng.choice((_text(rng, kind.capacity), bytes(rng.randrange(kind.capacity + 1)))),
    Array: lambda rng, kind: tuple(value_of(rng, kind.element) for _ in range(kind.count)),
    Tuple: lambda rng, kind: tuple(value_of(rng, item) for item in kind.members),
    Record: lambda rng, kind: tuple(value_of(rng, item) for item in kind.members),
    Stack: _stack,
    types.KSym: lambda rng, _kind: rng.randrange(40),
    types.USym: lambda rng, _kind: (rng.randrange(3), rng.randrange(40)),
    types.Inet: lambda rng, _kind: rng.choice(((2, rng.randbytes(4)), (10, rng.randbytes(16)))),
    types.Mac: lambda rng, _kind: rng.randbytes(6),
    Count: lambda rng, _kind: rng.choice((1, 2, 300, 1 << 60)),
    Sum: number,
    Avg: lambda rng, kind: (number(rng, Sum(kind.signed)), rng.randrange(4)),
    Stats: lambda rng, kind: (number(rng, Sum(kind.signed)), rng.randrange(4)),
    Min: lambda rng, kind: (number(rng, Sum(kind.signed)), rng.randrange(2)),
    Max: lambda rng, kind: (number(rng, Sum(kind.signed)), rng.randrange(2)),
}

ENUM = types.Enum("e", 4, True, (("first", 0), ("second", 1), ("again", 1)))
KEYS = [
    UINT64, INT64, INT8, UINT16, String(5), String(64), Stack(True, 9), Stack(False, 3, types.StackMode.PERF),
    Stack(True, 4, types.StackMode.RAW), Stack(True, 4, types.StackMode.FOLDED),
    Tuple((INT32, String(16))), Tuple((String(3), String(3))), Tuple((INT8, Tuple((UINT64, INT64)), types.Bool())),
    Tuple((Stack(True, 4), INT32)), types.Pointer(types.VOID), ENUM, types.KSym(), types.USym(), types.Inet(),
    types.Mac(), Array(INT8, 3), Buffer(6), Record(("a", "b"), (UINT16, String(6))),
]  # fmt: skip
VALUES = [
    INT64, UINT64, INT32, INT8, Count(), Sum(True), Sum(False), Avg(True), Avg(False), Stats(True), Min(True),
    Min(False), Max(True), Max(False), String(20), Stack(True, 5), Tuple((INT32, String(8))),
    types.Pointer(types.VOID), types.Bool(), ENUM, Array(INT32, 2), types.USym(),
]  # fmt: skip
PER_CPU = (Count, Sum, Avg, Stats, Min, Max)
ORDERS = [
    {}, {"top": 7}, {"order": "key"}, {"order": "-key", "top": 120}, {"order": "value"}, {"order": "-value"},
    {"order": "-value", "top": 9}, {"div": 3}, {"clear": True},
]  # fmt: skip
SYMBOLS = Symbols({1: [Frame("one", 1)], 2: [Frame("two", 2, "/bin/x", "a.c", 3), Frame("in", 0)]},
                  {2: [Frame("call", 1, "/bin/x", "a.c", 2)]})  # fmt: skip
SYMBOLS.trampolines.add(3)


def run_of(key: types.Type, kind: types.Type, seed: int, **output: Any) -> Run:
    rng = random.Random(seed)
    run = Run(symbols=SYMBOLS, **output)
    run.reader.block = 41
    entries = {}
    for _ in range(150):
        copies = CPUS if isinstance(kind, PER_CPU) else 1
        values = [value_of(rng, kind) for _ in range(copies)]
        if copies > 1 and not rng.randrange(3):
            values[1:] = [(0, 0) if isinstance(item, tuple) else 0 for item in values[1:]]
        entries[value_of(rng, key)] = values if copies > 1 else values[0]
    run.keyed("@m%", key, kind, entries)
    return run


def outputs(static: dict[str, Any]) -> list[dict[str, Any]]:
    """Text, and for some orders the other forms too."""
    return [{}, {"json": True}, {"csv": True}] if not static or "div" in static or "top" in static else [{}]


def both(run: Run, monkeypatch: pytest.MonkeyPatch, static: dict[str, Any]) -> tuple[bytes, bytes]:
    """What is printed the straightforward way, and by blocks."""
    found = []
    kept = run.reader.keyed["@m%"]
    identity = run.event("print_map", map="@m%", **static)
    for most in (1 << 40, 0):
        monkeypatch.setattr(map_printer, "LARGE", most)
        run.reader.keyed["@m%"] = kept
        run.send(identity)
        found.append(run.printed().removeprefix(b"\r\n"))
    return found[0], found[1]


@each_row("static", ORDERS, ids=str)
@each_row("key", KEYS, ids=str)
def test_keys(key: types.Type, static: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Count(), String(7)):
        for output in outputs(static):
            plain, large = both(run_of(key, kind, 1, **output), monkeypatch, static)
            assert plain == large
            assert plain


@each_row("static", ORDERS, ids=str)
@each_row("kind", VALUES, ids=str)
def test_values(kind: types.Type, static: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (INT32, Tuple((String(4), UINT64))):
        for output in outputs(static):
            plain, large = both(run_of(key, kind, 2, **output), monkeypatch, static)
            assert plain == large
            assert plain


def test_without_the_sorting_of_the_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_output, "can_sort_records", lambda: False)
    for static in ORDERS:
        plain, large = both(run_of(INT32, Sum(True), 3), monkeypatch, static)
        assert plain == large


@each_row("static", [item for item in ORDERS if item.get("order") not in ("value", "-value")], ids=str)
@each_row("kind", [Hist(), Hist(2), LHist(-10, 90, 7)], ids=str)
def test_histograms(kind: Any, static: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (INT32, String(9), Stack(True, 3)):
        for output in outputs(static):
            rng = random.Random(4)
            run = Run(symbols=SYMBOLS, **output)
            run.reader.block = 41
            counts = [
                {rng.randrange(kind.buckets): rng.choice((0, 1, 5, 70000)) for _ in range(rng.randrange(1, 6))}
                for _ in range(80)
            ]
            run.bucketed("@m%", key, kind, {value_of(rng, key): item for item in counts})
            plain, large = both(run, monkeypatch, static)
            assert plain == large
            assert plain


def test_plain_numbers_of_per_cpu_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (INT8, INT32, INT64, UINT16, UINT64):
        for static in ORDERS:
            rng = random.Random(5)
            run = Run()
            run.keyed("@m%", INT32, kind, {at: [number(rng, kind) for _ in range(CPUS)] for at in range(150)})
            plain, large = both(run, monkeypatch, static)
            assert plain == large


def test_series_and_structs_print_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    series = Run()
    series.bucketed("@m%", INT32, types.TSeries(1_000_000_000, 5, "max"), {at: {0: (3, at, 0)} for at in range(50)})
    field = types.Field("a", UINT64, 0)
    structs = Run()
    structs.keyed("@m%", types.Struct("struct", "s", 8, (field,)), INT64, {(at,): at for at in range(50)})
    for run in (series, structs):
        plain, large = both(run, monkeypatch, {})
        assert plain == large
        assert plain


def test_maps_at_the_end_print_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_printer, "LARGE", 0)
    run = Run()
    run.keyed("@", UINT64, UINT64, {at: 7 * at % 5000 for at in range(5000)})
    run.renderer.print_maps()
    lines = run.printed_text().split()
    assert lines[1::2] == sorted(lines[1::2], key=int)
    assert len(lines) == 10000
    assert struct.calcsize("=Q") == 8


# ---------------------------------------------------------------------------------------------- rows


def test_numbers_and_texts() -> None:
    decoders = Decoders()
    key, value = number_cell(INT32, 0, decoders), number_cell(Sum(True), 16, decoders)
    assert key is not None
    assert value is not None
    name = cell(String(6), 4, decoders, for_any(lambda text: text.upper()))
    form = RowFormat(32, [b"100% [", key, b",", name, b"]=", value, b"\n"])
    rows = bytearray(struct.pack("=i6s6xq8xi6s6xq8x", -5, b"ab", -7, 6, b"cdefgh", 8))
    assert form.text(rows) == b"100% [-5,AB]=-7\n100% [6,CDEFGH]=8\n"
    assert form.text(rows[:32]) == b"100% [-5,AB]=-7\n"


def test_which_values_are_formatted_as_numbers() -> None:
    decoders = Decoders()
    pointer = number_cell(types.Pointer(types.VOID), 0, decoders)
    assert pointer is not None
    assert RowFormat(8, [pointer]).text(bytearray(struct.pack("=Q", 255))) == b"0xff"
    assert number_cell(UINT64, 0, decoders) is not None
    assert number_cell(types.Bool(), 0, decoders) is None
    assert number_cell(String(8), 0, decoders) is None


def test_texts_that_are_not_in_memory() -> None:
    decoders = Decoders()
    number, name = number_cell(INT32, 0, decoders), cell(String(4), 4, decoders, for_any(lambda text: text.upper()))
    assert number is not None
    form = RowFormat(8, [b"[", number, b",", name, b"]: ", LAST, b"%\n"])
    rows = bytearray(struct.pack("=i4si4s", 5, b"ab", -6, b"c"))
    assert form.text(rows, [b"first", b"100%"]) == b"[5,AB]: first%\n[-6,C]: 100%%\n"


@pytest.mark.parametrize("div", [1, 3])
@pytest.mark.parametrize("kind", [Hist(), Hist(1), LHist(0, 50, 5)], ids=str)
def test_histograms_have_the_text_of_one_at_a_time(kind: Hist | LHist, div: int) -> None:
    rng, shape = random.Random(1), histogram.shape(kind)
    texts = BucketTexts(shape, div)
    for _ in range(200):
        counts = {rng.randrange(kind.buckets): rng.choice((0, 1, 2, 500)) for _ in range(rng.randrange(1, 5))}
        words = tuple(word for pair in counts.items() for word in pair)
        whole = histogram.all_buckets(kind, counts)
        assert texts.text(words) == histogram.text(shape, whole, div)
