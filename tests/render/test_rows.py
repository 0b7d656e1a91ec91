"""Recorded outputs (tests/cases/outputs.jsonl) whose rendering needs no compiler: values are built by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytrace.core import types
from pytrace.core.options import Config
from pytrace.core.types import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT64,
    Array,
    Avg,
    Buffer,
    Count,
    Enum,
    Hist,
    Inet,
    LHist,
    Max,
    Min,
    Pointer,
    Record,
    Stats,
    String,
    Sum,
    Tuple,
)
from tests.support.encode import Run
from tests.support.numbers import logarithmic as bucket
from tests.support.outputs import DIFFERENCES
from tests.support.rows import each_row

RECORDED = Path(__file__).resolve().parents[1] / "cases" / "outputs.jsonl"
ROWS: dict[str, dict[str, Any]] = {
    row["name"]: row for row in map(json.loads, RECORDED.read_text().splitlines())
}
for different, change in DIFFERENCES.items():
    if change.section == "Precision and flags of printf":
        ROWS[different].update(stdout=change.stdout, json=list(change.json or ()))

Build = Callable[[Run], None]
BUILDS: dict[str, Build] = {}


def row(*names: str) -> Callable[[Build], Build]:
    def keep(build: Build) -> Build:
        for name in names:
            assert name not in BUILDS
            BUILDS[name] = build
        return build

    return keep


# ---------------------------------------------------------------------------------------------- values


def prints(run: Run, *values: tuple[types.Type, Any]) -> None:
    """print() of each value, in order."""
    ids = [run.event("print_value", [kind]) for kind, _ in values]
    for identity, (_, value) in zip(ids, values, strict=True):
        run.send(identity, value)


@row("bool_literals")
def _(run: Run) -> None:
    run.scalar("@b", BOOL, False)
    prints(run, (BOOL, True), (BOOL, False), (BOOL, False), (BOOL, True))


@row("string_escapes")
def _(run: Run) -> None:
    text = run.event("printf", format='a\tb\\c"dAA\n')
    value = run.event("print_value", [String(4)])
    run.send(text)
    run.send(value, b"x\ny")


@row("unsigned_ops")
def _(run: Run) -> None:
    prints(run, (INT64, -2), (UINT64, 300), (UINT8, 44), (INT8, -56), (types.UINT16, 65535), (INT32, -1),
           (UINT64, 2**64 - 1))  # fmt: skip


@row("casts")
def _(run: Run) -> None:
    prints(run, (UINT8, 255), (INT16, -32768), (BOOL, True), (INT64, -1), (types.UINT32, 2**32 - 1),
           (Array(INT8, 4), (4, 3, 2, 1)), (Array(UINT8, 8), (2, 1, 0, 0, 0, 0, 0, 0)))  # fmt: skip


@row("pointers")
def _(run: Run) -> None:
    pointer = Pointer(INT32)
    prints(run, (pointer, 0), (pointer, 4), (INT64, 8), (pointer, 16), (pointer, 12), (String(5), b"null"))


@row("tuple_print")
def _(run: Run) -> None:
    pair, single = Tuple((INT64, INT64)), Tuple((INT64,))
    three = Tuple((INT64, String(2), INT64))
    prints(run, (pair, (1, 2)), (Tuple((INT8, String(2), pair)), (1, b"a", (2, 3))), (single, (1,)), (INT64, 1),
           (String(2), b"x"), (INT64, -5), (three, (1, b"x", -5)))  # fmt: skip


@row("record_print")
def _(run: Run) -> None:
    kind = Record(("a", "b", "c"), (INT64, String(4), Tuple((INT64, INT64))))
    value = (1, b"two", (3, 4))
    run.keyed("@k", Record(("x", "y"), (INT64, INT64)), INT64, {(1, 2): 3})
    run.scalar("@r", kind, value)
    prints(run, (kind, value), (INT64, 1), (String(4), b"two"))


@row("enum_print")
def _(run: Run) -> None:
    colour = Enum("color", 4, False, (("RED", 0), ("GREEN", 5), ("BLUE", 6)))
    run.scalar("@e", colour, 5)
    run.keyed("@k", colour, INT64, {0: 1})
    ids = [run.event("print_value", [colour]), run.event("printf", [colour, colour], format="%d %s\n")]
    run.send(ids[0], 0)
    run.send(ids[0], 6)
    run.send(ids[1], 5, 5)
    run.send(ids[0], 6)


@row("buf_print")
def _(run: Run) -> None:
    run.scalar("@b", Buffer(2), b"ab")
    prints(run, (Buffer(5), b"hello"), (Buffer(80), b"abc\xff"))


@row("ntop")
def _(run: Run) -> None:
    def six(text: str) -> tuple[int, bytes]:
        import socket

        return 10, socket.inet_pton(socket.AF_INET6, text)

    inet = Inet()
    run.keyed("@n", inet, INT64, {(2, b"\x7f\0\0\1"): 1})
    prints(run, (inet, (2, b"\x7f\0\0\1")), (inet, (2, b"\x7f\0\0\1")), (inet, six("::1")),
           (inet, (2, b"\xc0\xa8\1\x14")), (inet, six("2001:db8::ff00:42:8329")))  # fmt: skip


@row("bswap")
def _(run: Run) -> None:
    prints(run, (UINT64, 13330), (UINT64, 2018915346), (UINT64, 72057594037927936), (UINT64, 5))


@row("print_many")
def _(run: Run) -> None:
    prints(run, (INT64, 1), (String(2), b"s"), (Tuple((INT64,)), (1,)), (BOOL, True), (Pointer(UINT8), 10))


@row("str_trunc")
def _(run: Run) -> None:
    prints(run, (String(8), b"0123456"))


# ---------------------------------------------------------------------------------------------- printf

NUMBERS = (65, -3, 4294967297)


def printf_number(name: str) -> Build:
    layout = re.findall(r'printf\("([^"]*)"', ROWS[name]["program"])[0].replace("\\n", "\n")

    def build(run: Run) -> None:
        identity = run.event("printf", [INT64], format=layout)
        run.send_many(identity, [(number,) for number in NUMBERS])

    return build


def printf_text(name: str) -> Build:
    layout = re.findall(r'printf\("([^"]*)"', ROWS[name]["program"])[0].replace("\\n", "\n")

    def build(run: Run) -> None:
        identity = run.event("printf", [String(80)], format=layout)
        run.send(identity, b"hello")
        run.send(identity, b"")

    return build


for found in ROWS:
    if found.startswith("printf_int_"):
        BUILDS[found] = printf_number(found)
    elif found.startswith("printf_str_"):
        BUILDS[found] = printf_text(found)


@row("printf_s_any")
def _(run: Run) -> None:
    one = run.event("printf", [INT8, BOOL, Tuple((INT8, String(2))), Array(INT8, 2)], format="%s %s %s %s\n")
    two = run.event("printf", [BOOL, BOOL], format="%d %d\n")
    three = run.event("printf", [Pointer(INT32)], format="%s\n")
    run.send(one, 5, True, (1, b"a"), (1, 0))
    run.send(two, True, False)
    run.send(three, 16)


@row("printf_misc")
def _(run: Run) -> None:
    texts = ["100%%\n", "no newline", "\n", "%c%c\n", "\033[31mred\033[0m\n"]
    ids = [run.event("printf", [INT8, INT8] if "c" in text and "%c" in text else [], format=text) for text in texts]
    for identity in ids:
        run.send(identity, *((72, 105) if run.specs[identity].args else ()))


@row("printf_buf")
def _(run: Run) -> None:
    identity = run.event("printf", [Buffer(3), Buffer(100), Buffer(3)], format="%r %rx %rh\n")
    run.send(identity, b"a\1b", b"a\1b", b"a\1b")


@row("printf_many")
def _(run: Run) -> None:
    identity = run.event("printf", [INT8] * 12, format=" ".join(["%d"] * 12) + "\n")
    run.send(identity, *range(1, 13))


@row("printf_gr")
def _(run: Run) -> None:
    run.send(run.event("printf", [INT16], format="%gr\n"), 0xCC0)


@row("errorf")
def _(run: Run) -> None:
    error = run.event("errorf", [INT8], format="e %d")
    warning = run.event("warnf", [String(2)], format="w %s")
    value = run.event("print_value", [INT8])
    run.move(warning, 28)
    run.send(error, 5)
    run.send(warning, b"x")
    run.send(value, 1)


@row("div_zero")
def _(run: Run) -> None:
    first, second = (run.event("runtime_error", kind="division_by_zero") for _ in range(2))
    value = run.event("print_value", [INT64])
    for identity, column in ((first, 23), (second, 39)):
        run.move(identity, column)
    for identity in (first, value, second, value):
        run.send(identity, *((1,) if identity == value else ()))


# ---------------------------------------------------------------------------------------------- cat, system


@row("cat")
def _(run: Run) -> None:
    plain = run.event("cat", format="/proc/sys/kernel/ostype")
    named = run.event("cat", [String(7)], format="/proc/sys/kernel/%s")
    run.send(plain)
    run.send(named, b"ostype")


@row("system")
def _(run: Run) -> None:
    run.send(run.event("system", [INT8], format="echo hi %d"), 5)


# ---------------------------------------------------------------------------------------------- maps


@row("map_scalar")
def _(run: Run) -> None:
    run.scalar("@a", INT64, 5)
    run.scalar("@b", INT64, -7)
    run.scalar("@c", String(4), b"str")
    run.scalar("@d", BOOL, True)
    run.scalar("@e", Tuple((INT64, INT64)), (1, 2))
    run.scalar("@f", UINT64, 2**64 - 1)
    run.scalar("@g", Pointer(INT8), 255)


@row("map_order_int")
def _(run: Run) -> None:
    run.keyed("@", INT64, INT64, {3: 30, 1: 50, 2: 40, 5: -1, 4: 40})


@row("map_order_str_val")
def _(run: Run) -> None:
    run.keyed("@", String(4), String(4), {b"b": b"x", b"a": b"y", b"c": b"a"})


@row("map_nested_key")
def _(run: Run) -> None:
    pair = Tuple((INT64, INT64))
    run.keyed("@", Tuple((Tuple((INT64, pair)), String(2))), INT64, {((1, (2, 3)), b"x"): 1})


@row("map_tuple_val")
def _(run: Run) -> None:
    run.keyed("@a", INT64, Tuple((INT64, String(2))), {2: (2, b"y"), 1: (1, b"x")})


@row("map_array_key")
def _(run: Run) -> None:
    run.keyed("@", Array(INT8, 4), INT64, {(4, 3, 2, 1): 1})


@row("map_names_order")
def _(run: Run) -> None:
    for name, value in (("@b", 1), ("@a", 2), ("@", 3), ("@_x", 5)):
        run.scalar(name, INT64, value)
    run.keyed("@c", INT64, INT64, {1: 4})


@row("string_map")
def _(run: Run) -> None:
    run.keyed("@a", String(64), String(64), {b"longer": b"value", b"k": b"v"})
    value, whole = run.event("print_value", [String(64)]), run.event("print_map", map="@a", top=0, div=1)
    run.send(value, b"v")
    run.send(whole)


@row("agg_scalar")
def _(run: Run) -> None:
    run.scalar("@a", Avg(), (3, 1), (4, 1))
    run.scalar("@c", Count(), 1, 1, 0, 0)
    run.scalar("@ma", Max(), (3, 1), (8, 1), (0, 0))
    run.scalar("@mi", Min(), (9, 1), (4, 1), (0, 0))
    run.scalar("@s", Sum(), 5, 7)
    run.scalar("@st", Stats(), (10, 1), (20, 1))


@row("agg_keyed")
def _(run: Run) -> None:
    run.keyed("@a", INT64, Avg(), {1: [(10, 1), (0, 0)], 2: [(0, 0), (5, 1)]})
    run.keyed("@c", INT64, Count(), {1: [1, 0], 2: [1, 1]})
    run.keyed("@ma", INT64, Max(), {1: [(-3, 1), (0, 0)]})
    run.keyed("@mi", INT64, Min(), {1: [(0, 0), (-3, 1)]})
    run.keyed("@s", String(2), Sum(), {b"a": [5, 0], b"b": [0, -2]})
    run.keyed("@st", INT64, Stats(), {1: [(4, 1), (0, 0)], 2: [(2, 1), (4, 1)]})


@row("agg_neg")
def _(run: Run) -> None:
    run.scalar("@a", Avg(), (-5, 1), (-6, 1))
    run.scalar("@ma", Max(), (-5, 1), (0, 0))
    run.scalar("@mi", Min(), (0, 0), (-5, 1))
    run.scalar("@s", Sum(), -10, 0)
    run.scalar("@st", Stats(), (-7, 1), (-8, 1))


@row("agg_unsigned")
def _(run: Run) -> None:
    most = 2**64 - 1
    run.scalar("@a", Avg(False), (most, 1), (0, 0))
    run.scalar("@ma", Max(False), (most, 1), (0, 0))
    run.scalar("@mi", Min(False), (0, 0), (most, 1))
    run.scalar("@s", Sum(False), 0, most)


@row("agg_avg_print")
def _(run: Run) -> None:
    run.keyed("@a", INT64, Avg(), {1: [(10, 1), (21, 1)], 2: [(3, 1), (0, 0)]})
    shows = [run.event("print_map", map="@a", top=top, div=div) for top, div in ((0, 1), (1, 1), (1, 2))]
    value = run.event("print_value", [INT64])
    for identity in shows:
        run.send(identity)
    run.send(value, 15)


@row("map_zero_clear")
def _(run: Run) -> None:
    run.keyed("@a", INT64, INT64, {1: 5, 2: 6})
    run.scalar("@c", Count(), 1, 0)
    for kind, name in (("zero", "@a"), ("print_map", "@a"), ("zero", "@c"), ("print_map", "@c"), ("clear", "@a"),
                       ("print_map", "@a"), ("clear", "@c"), ("print_map", "@c")):  # fmt: skip
        run.event(kind, map=name)
    for identity in range(len(run.specs)):
        run.send(identity)


@row("neg_values_order")
def _(run: Run) -> None:
    run.keyed("@", INT64, INT64, {1: -5, 2: 3, 3: -10, 4: 0})


@row("uint_key")
def _(run: Run) -> None:
    run.keyed("@", UINT64, INT64, {2**64 - 1: 1, 5: 2})


@row("bool_key")
def _(run: Run) -> None:
    run.keyed("@", BOOL, INT64, {True: 1, False: 2})


@row("str_key_order")
def _(run: Run) -> None:
    run.keyed("@", String(2), Tuple((INT64, INT64)), {b"b": (1, 2), b"a": (3, 4), b"B": (0, 1)})


@row("config_max")
def _(run: Run) -> None:
    run.config = Config(print_maps_on_exit=False)
    run.keyed("@a", INT64, INT64, {1: 1, 2: 2})


# ---------------------------------------------------------------------------------------------- histograms


def linear(value: int, low: int, high: int, step: int) -> int:
    if value < low:
        return 0
    return 1 + ((high - low) // step if value > high else (value - low) // step)


def counts(size: int, numbers: list[int]) -> tuple[int, ...]:
    found = [0] * size
    for number in numbers:
        found[number] += 1
    return tuple(found)


def hist(*values: int, bits: int = 0) -> Build:
    kind = Hist(bits)
    half = len(values) // 2
    parts = [counts(kind.buckets, [bucket(value, bits) for value in part]) for part in (values[:half], values[half:])]
    return lambda run: void(run.scalar("@", kind, *parts))


def lhist(low: int, high: int, step: int, *values: int) -> Build:
    kind = LHist(low, high, step)
    return lambda run: void(
        run.scalar("@", kind, counts(kind.buckets, [linear(value, low, high, step) for value in values]))
    )


def void(_value: object) -> None:
    return None


BUILDS["hist_small"] = hist(0, 1, 2, 3, 4, 7, 8, -1, -100)
BUILDS["hist_units"] = hist(1023, 1024, 2048, 2**20, 2**30, 2**40, 2**50, 2**63 - 1)
BUILDS["hist_gap"] = hist(4, 4, 4, 1000)
BUILDS["hist_one"] = hist(0)
for power in range(6):
    BUILDS[f"hist_bits_{power}"] = hist(*(3 * number for number in range(40)), bits=power)
BUILDS["lhist_basic"] = lhist(0, 10, 2, *range(12), -5)
BUILDS["lhist_1k"] = lhist(1024, 6144, 1024, *(1024 * number for number in range(8)))
BUILDS["lhist_range"] = lhist(2048, 4096, 1024, 3000, 4097, 100)
BUILDS["lhist_1m"] = lhist(0, 4194304, 1048576, *(1048576 * number for number in range(5)))
BUILDS["lhist_mono"] = lhist(0, 2000000, 250000, 1000000, 1)


@row("hist_keyed")
def _(run: Run) -> None:
    run.bucketed("@h", INT64, Hist(), {1: {bucket(5, 0): 2}, 2: {bucket(100, 0): 1}})


@row("hist_keyed2")
def _(run: Run) -> None:
    run.bucketed("@h", Tuple((INT64, String(2))), Hist(),
                 {(2, b"b"): {bucket(50, 0): 1, bucket(100, 0): 1}, (1, b"a"): {bucket(5, 0): 1}})  # fmt: skip


@row("lhist_keyed")
def _(run: Run) -> None:
    run.bucketed("@", INT64, LHist(0, 100, 10), {2: {11: 1, 6: 1}, 1: {1: 1}})


# ---------------------------------------------------------------------------------------------- comparing


def canonical(name: str, lines: list[str]) -> list[str]:
    return sorted("".join(sorted(line)) for line in lines) if ROWS[name].get("order") == "any" else lines


@each_row("name", sorted(BUILDS))
def test_text(name: str) -> None:
    run = Run()
    BUILDS[name](run)
    run.renderer.print_maps()
    expected = ROWS[name]["stdout"].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    found = run.printed().decode("utf-8", "backslashreplace")
    assert canonical(name, found.splitlines()) == canonical(name, expected.splitlines())
    if ROWS[name].get("order") != "any":
        assert found == expected


@each_row("name", sorted(BUILDS))
def test_json(name: str) -> None:
    run = Run(json=True)
    BUILDS[name](run)
    run.renderer.print_maps()
    found = run.printed().decode()
    lines = [re.sub(r'("type": "runtime_error", "msg": )"[^"]*"', r'\1"*"', line) for line in found.splitlines()]
    assert canonical(name, lines) == canonical(name, ROWS[name]["json"])
    for line in lines:
        json.loads(line)
