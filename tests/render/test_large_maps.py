"""Maps with very many keys: sorting, reducing and printing by blocks."""

from __future__ import annotations

import random
import struct
from functools import cache
from itertools import chain
from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import MapSpec
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
    Type,
)
from pytrace.render import histogram, large_maps, map_printer
from pytrace.render.forms import Decoders
from pytrace.render.large_maps import (
    LAST,
    BucketTexts,
    Entry,
    RecordForm,
    RowFormat,
    Sort,
    SortedBuckets,
    SortedEntries,
    cell,
    number_cell,
    padded,
    sorted_buckets,
    sorted_entries,
    sorter,
)
from pytrace.render.map_printer import Shown
from pytrace.render.text import for_any
from pytrace.render.value_kind import Piece
from pytrace.render.values import value_kind_of
from pytrace.runtime.machine import syscalls
from pytrace.runtime.output import map_output
from tests.core.types.test_types import SAMPLES
from tests.support.encode import Frame, Run, Symbols, encode
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- printing
# Maps with very many keys print as the straightforward way prints them: text, JSON, CSV, order, top, div.


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


@cache
def _map(key: types.Type, kind: types.Type, seed: int) -> Run:
    """A run with that map, whose content others share: making it is most of the work."""
    rng = random.Random(seed)
    entries = {}
    for _ in range(150):
        copies = CPUS if isinstance(kind, PER_CPU) else 1
        values = [value_of(rng, kind) for _ in range(copies)]
        if copies > 1 and not rng.randrange(3):
            values[1:] = [(0, 0) if isinstance(item, tuple) else 0 for item in values[1:]]
        entries[value_of(rng, key)] = values if copies > 1 else values[0]
    run = Run()
    run.keyed("@m%", key, kind, entries)
    return run


def run_of(key: types.Type, kind: types.Type, seed: int, **output: Any) -> Run:
    made, run = _map(key, kind, seed), Run(symbols=SYMBOLS, **output)
    run.reader.block = 41
    run.maps += made.maps
    run.reader.keyed |= made.reader.keyed
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


# ---------------------------------------------------------------------------------------------- record form
# Rows as records: they compare as the values do, and come back as they were.


ROWS = 60


def columns(kind: Type, seed: int) -> tuple[list[bytes], RecordForm]:
    rng = random.Random(seed)
    rows = [encode(kind, value_of(rng, kind)) for _ in range(ROWS)]
    order = value_kind_of(kind).pieces()
    assert order is not None
    return rows, RecordForm([kind.size], [(0, piece) for piece in order])


def test_order_and_inverse() -> None:
    for kind in (INT8, INT64, String(11), Stack(True, 6), Tuple((INT32, Stack(False, 3), String(5), UINT64))):
        rows, form = columns(kind, 7)
        decode = Decoders().decoder(kind)
        for whole in (True, False):
            data, size = form.records([b"".join(rows)], ROWS, whole=whole)
            assert size == form.size if whole else size <= form.size
            records = [bytes(data[at : at + size]) for at in range(0, len(data), size)]
            assert [row for _, row in sorted(zip(records, rows, strict=True))] == sorted(
                rows, key=lambda row: (decode(row, 0), row)
            )
            back = form.rows((data, size))
            assert [bytes(back[at : at + kind.size]) for at in range(0, len(back), form.row_size)] == rows


def test_truncated_stacks_come_back() -> None:
    """They come after the same frames without the mark."""
    kind = Stack(True, 3)
    rows = [struct.pack("=iI3Q", count, 7, 5, 6, 8) for count in (4, 3)]
    form = RecordForm([kind.size], [(0, piece) for piece in value_kind_of(kind).pieces() or ()])
    data, size = form.records([b"".join(rows)], 2)
    back = form.rows((data, size))
    assert [bytes(back[at : at + kind.size]) for at in range(0, len(back), form.row_size)] == rows
    assert data[size:] < data[:size]


def test_a_stack_may_end_with_the_address_zero() -> None:
    """As a broken chain of frame pointers ends: a sorter cuts the zeros at the ends of all records."""
    kind = Stack(True, 3)
    for frames in ((5, 6, 0), (5, 0, 0), (0, 0, 0)):
        for count in (1, 2, 3, 4):
            row = struct.pack("=iI3Q", count, 7, *[address if at < count else 0 for at, address in enumerate(frames)])
            key = [(0, piece) for piece in value_kind_of(kind).pieces() or ()]
            form = RecordForm([kind.size, 8], [(1, Piece(0, 8)), *key])
            last = sorter(form.size, None, top=3)
            last.add(form.records([5 * row, bytes(40)], 5, whole=last.whole))
            (back,) = map(form.rows, last.blocks())
            assert [bytes(back[at : at + kind.size]) for at in range(0, len(back), form.row_size)] == 3 * [row]


def test_what_the_order_leaves_out_comes_back() -> None:
    form = RecordForm([12, 3], [(1, Piece(1, 2)), (0, Piece(4, 4, True, True))])
    first, second = bytes(range(24)), bytes(range(100, 106))
    rows = form.rows(form.records([first, second], 2))
    assert form.starts == [0, 16]
    assert [bytes(rows[at : at + 12]) for at in (0, form.row_size)] == [first[:12], first[12:]]
    assert [bytes(rows[at + 16 : at + 19]) for at in (0, form.row_size)] == [second[:3], second[3:]]


def test_zeros_at_the_end_take_no_room() -> None:
    form = RecordForm([1024], [(0, Piece(0, 1024, False))])
    data, size = form.records([b"abc".ljust(1024, b"\0") + b"abcdefghi".ljust(1024, b"\0")], 2)
    assert size == 16
    assert len(data) == 32


def test_a_string_is_read_up_to_where_all_have_ended() -> None:
    """What may come after the NUL in memory is not looked at, and what follows the string is."""
    order = [(0, Piece(0, 32, False, ends=True)), (0, Piece(32, 8))]
    form = RecordForm([40], order)
    first, second = b"ab".ljust(32, b"\0") + b"12345678", b"abcdefghij".ljust(24, b"\0") + b"garbage!" + b"87654321"
    data, size = form.records([first + second], 2)
    rows = form.rows((data, size))
    assert bytes(rows[:40]) == first
    assert bytes(rows[40:]) == b"abcdefghij".ljust(32, b"\0") + b"87654321"
    plain = RecordForm([40], [(0, Piece(0, 32, False)), (0, Piece(32, 8))])
    assert bytes(plain.rows(plain.records([first + second], 2))) == first + second


# ---------------------------------------------------------------------------------------------- record sorting
# Sorting records that come in blocks.


SORTS = [
    pytest.param(syscalls.sort_records if syscalls.can_sort_records() else None, id="C library"),
    pytest.param(None, id="objects"),
]


@each_row("size", [8, 32, 40])
@each_row("sort", SORTS)
@each_row("descending", [False, True])
@each_row("top", [0, 5, 5000])
def test_blocks_in_order(
    size: int, sort: Sort | None, descending: bool, top: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_maps, "ROWS", 64)
    rng = random.Random(1)
    records = [rng.randbytes(3).ljust(size, b"\0") for _ in range(500)]
    made = sorter(size, sort, top=top, descending=descending)
    for start in range(0, len(records), 77):
        made.add((bytearray(b"".join(records[start : start + 77])), size))
    found = []
    for data, width in made.blocks():
        found += [bytes(data[at : at + width]).ljust(size, b"\0") for at in range(0, len(data), width)]
    assert found == sorted(records, reverse=descending)[-top:]


def test_padding() -> None:
    assert padded([b"a", b"123456789"]) == (bytearray(b"a".ljust(16, b"\0") + b"123456789".ljust(16, b"\0")), 16)
    assert padded([b""]) == (bytearray(8), 8)


# ---------------------------------------------------------------------------------------------- reduction
# Values of many keys reduced at once are what merging them one by one gives.


REDUCTION_KEYS = 40


@each_row("cpus", [1, 2, 3, 8])
@each_row("kind", [Count(), Sum(True), Sum(False), Avg(True), Avg(False), Stats(True), Min(True),
                                  Min(False), Max(True), Max(False), INT64, UINT64, INT8], ids=str)  # fmt: skip
def test_as_one_by_one(kind: Any, cpus: int) -> None:
    rng = random.Random(cpus)
    words = (kind.size + 7) // 8
    values = [
        struct.pack(f"={words * cpus}Q", *(rng.choice((0, 0, 1, 7, rng.getrandbits(59), rng.getrandbits(64)))
                                           for _ in range(words * cpus)))
        for _ in range(REDUCTION_KEYS)
    ]  # fmt: skip
    if isinstance(kind, Count | Avg | Stats):
        # Counts do not come near 64 bits.
        values = [bytes(0 if at % (8 * words) == 8 * words - 1 else byte for at, byte in enumerate(value))
                  for value in values]  # fmt: skip
    decoders = Decoders()
    reduced = value_kind_of(kind).reduction(len(values[0]), decoders)
    assert reduced is not None
    data = reduced.one(b"".join(values))
    merge = value_kind_of(kind).merge(len(values[0]), decoders)
    decode = decoders.decoder(reduced.type)
    size = reduced.size
    found = [decode(data, at * size) for at in range(REDUCTION_KEYS)]
    wanted = [merge(value) for value in values]
    if isinstance(kind, Min | Max):
        found = [(item[0], bool(item[1])) for item in found]  # type: ignore[index]
        wanted = [(item[0], bool(item[1])) for item in wanted]  # type: ignore[index]
    assert found == wanted
    rank = value_kind_of(kind).rank()
    if reduced.ranks is not None:
        assert rank is not None
        assert list(reduced.ranks(data)) == [rank(item) for item in wanted]


def test_other_values_stay() -> None:
    reduced = value_kind_of(String(5)).reduction(5, Decoders())
    assert reduced is not None
    assert reduced.one(b"abcdefghij") == b"abcdefghij"
    assert value_kind_of(types.TSeries(1_000_000_000, 5, "max")).reduction(24, Decoders()) is None


AGGREGATIONS = [kind for kind in SAMPLES.values() if isinstance(kind, types.Aggregate)]


@pytest.mark.parametrize("kind", AGGREGATIONS, ids=str)
def test_no_aggregation_keeps_the_value_of_one_processor(kind: types.Type) -> None:
    """It has a reduction that merges, or none: then entries are merged one by one."""
    size = 2 * (kind.size + 7) // 8 * 8
    reduced = value_kind_of(kind).reduction(size, Decoders())
    assert reduced is None or reduced.size < size


# ---------------------------------------------------------------------------------------------- sorted entries
# Entries of large maps, decoded, in order.


SORTED_ENTRIES_KEYS, SORTED_ENTRIES_VALUES = struct.pack("=4q", 5, -6, 7, 8), struct.pack("=8Q", 1, 1, 2, 0, 0, 1, 9, 9)


def listed(entries: SortedEntries | SortedBuckets) -> list[Entry]:
    return list(chain.from_iterable(entries.entries()))


def test_entries_by_value_then_key() -> None:
    spec = MapSpec("@", "m", "percpuhash", INT64, Count(), 10)
    for shown, wanted in (
        (Shown(), [(7, 1), (-6, 2), (5, 2), (8, 18)]),
        (Shown(top=2), [(5, 2), (8, 18)]),
        (Shown(order="-key", top=3), [(7, 1), (5, 2), (-6, 2)]),
    ):
        found = sorted_entries(spec, (SORTED_ENTRIES_KEYS, SORTED_ENTRIES_VALUES, 4), Decoders(), shown, None)
        assert found is not None
        found.fill(
            [
                (SORTED_ENTRIES_KEYS[:16], SORTED_ENTRIES_VALUES[:32], 2),
                (SORTED_ENTRIES_KEYS[16:], SORTED_ENTRIES_VALUES[32:], 2),
            ]
        )
        assert listed(found) == wanted


def test_types_without_such_an_order_go_the_other_way() -> None:
    kind = types.Struct("struct", "s", 8, (types.Field("a", UINT64, 0),))
    assert (
        sorted_entries(
            MapSpec("@", "m", "hash", kind, INT64, 9),
            (SORTED_ENTRIES_KEYS, SORTED_ENTRIES_KEYS, 4),
            Decoders(),
            Shown(),
            None,
        )
        is None
    )
    by_value = Shown(order="value")
    spec = MapSpec("@", "m", "hash", INT64, kind, 9)
    assert sorted_entries(spec, (SORTED_ENTRIES_KEYS, SORTED_ENTRIES_KEYS, 4), Decoders(), by_value, None) is None
    assert sorted_entries(spec, (SORTED_ENTRIES_KEYS, SORTED_ENTRIES_KEYS, 4), Decoders(), Shown(), None) is not None


# ---------------------------------------------------------------------------------------------- histograms

SPEC = MapSpec("@", "m", "percpuhash", UINT64, Hist(), 10)


def made(rows: list[tuple[int, int, int]], shown: Shown) -> SortedBuckets:
    keys = b"".join(struct.pack("=QQ", key, bucket) for key, bucket, _ in rows)
    values = b"".join(struct.pack("=QQ", count, 1) for _, _, count in rows)
    found = sorted_buckets(SPEC, (keys, values, len(rows)), Decoders(), shown)
    assert found is not None
    found.fill([(keys[:16], values[:16], 1), (keys[16:], values[16:], len(rows) - 1)])
    return found


def test_rows_of_a_key_are_one_histogram() -> None:
    found = listed(made([(3, 1, 4), (2, 5, 1), (3, 0, 0)], Shown()))
    assert [key for key, _ in found] == [2, 3]
    counts = found[1][1]
    assert isinstance(counts, tuple)
    assert counts[:3] == (1, 5, 0)
    assert len(counts) == Hist().buckets
    assert [key for key, _ in listed(made([(3, 1, 4), (2, 5, 1), (3, 0, 0)], Shown(order="-key", top=1)))] == [2]


def test_a_bucket_that_the_type_does_not_have() -> None:
    with pytest.raises(InternalError, match="bucket 99"):
        made([(3, 1, 4), (2, 99, 1)], Shown())


def test_keys_with_one_bucket_and_with_several_are_ordered_alike() -> None:
    rows = [(key, 1 + key % 5, (key * 7) % 11 + 1) for key in range(20)]
    alone = [key for key, _ in listed(made(rows, Shown()))]
    assert alone == sorted(range(20), key=lambda key: ((key * 7) % 11 + 1, key))
    several = [key for key, _ in listed(made([*rows, (5, 9, 100), (2, 10, 50)], Shown()))]
    assert several == [key for key in alone if key not in (2, 5)] + [2, 5]
