"""Types with portable values of them (:mod:`pytrace.results.snapshot`), for property tests."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from pytrace.core import types
from pytrace.core.types import Type
from pytrace.results.snapshot import Frame, MapData, SnapshotData, StackTrace, Table
from tests.support.snapshots import run

TEXTS = st.binary(max_size=6).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
U64 = st.integers(0, (1 << 64) - 1) | st.integers(0, 5)
I64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3)

FRAMES = st.builds(
    Frame, st.sampled_from(["main", "work", ""]), st.integers(0, 3), st.sampled_from(["", "/bin/x"]),
    st.sampled_from(["", "00ff"]), st.sampled_from(["", "x.c"]), st.integers(0, 2), st.booleans(), st.integers(0, 1),
)  # fmt: skip
STACKS = st.builds(
    StackTrace, st.lists(FRAMES, max_size=3).map(tuple), st.just(True), st.sampled_from(["", "File exists"])
)

COLOUR = types.Enum("colour", 4, False, (("RED", 0), ("GREEN", 1)))
WIDER = types.Enum("colour", 8, True, (("BLUE", 2), ("RED", 0)))


def _struct(size: int, *fields: types.Field) -> types.Struct:
    return types.Struct("struct", "point", size, fields, alignment=4)


INNER = types.Struct("union", "", 4, (types.Field("x", types.INT32, 0), types.Field("y", types.INT32, 0)), alignment=4)
POINT = _struct(8, types.Field("", INNER, 0), types.Field("name", types.Array(types.INT8, 4), 4))
MOVED = _struct(12, types.Field("", INNER, 4), types.Field("name", types.Array(types.INT8, 4), 0))

Sample = tuple[tuple[Type, ...], st.SearchStrategy[Any]]

PLAIN: dict[type[Type], Sample] = {
    types.Bool: ((types.BOOL,), st.booleans()),
    types.Int: ((types.INT64, types.UINT64, types.INT8), I64 | U64),
    types.Float: ((types.DOUBLE,), st.sampled_from((2.5, 0.0, 3.0, -1e300, math.inf, math.nan))),
    types.Enum: ((COLOUR, WIDER), st.integers(-1, 3)),
    types.Pointer: ((types.Pointer(types.VOID), types.Pointer(types.INT8, types.AddressSpace.USER)), U64),
    types.String: ((types.String(16), types.String(64)), TEXTS),
    types.Buffer: ((types.Buffer(4), types.Buffer(8)), st.binary(max_size=4)),
    types.Array: ((types.Array(types.INT32, 2), types.Array(types.UINT64, 2)), st.tuples(I64, I64)),
    types.Tuple: ((types.Tuple((types.INT32, types.String(4))), types.Tuple((types.INT64, types.String(8)))),
                  st.tuples(I64, TEXTS)),
    types.Record: ((types.Record(("a", "b"), (types.INT32, types.String(4))),), st.tuples(I64, TEXTS)),
    types.Struct: ((POINT, MOVED), st.tuples(I64, I64, TEXTS)),
    types.Stack: ((types.Stack(True), types.Stack(True, 3)), STACKS),
    types.KSym: ((types.KSym(),), TEXTS),
    types.USym: ((types.USym(),), TEXTS),
    types.Inet: ((types.Inet(),), st.sampled_from(["", "127.0.0.1", "::1", "fe80::1"])),
    types.Mac: ((types.Mac(),), st.sampled_from(["00:11:22:33:44:FF", "AA:BB:CC:DD:EE:00"])),
    types.Timestamp: ((types.Timestamp(),), TEXTS),
    types.Username: ((types.Username(),), TEXTS),
    types.InterfaceName: ((types.InterfaceName(),), TEXTS),
    types.NetworkNamespace: ((types.NetworkNamespace(),), TEXTS),
    types.CgroupPath: ((types.CgroupPath(),), TEXTS),
    types.Fixed: ((types.Fixed(1000, 3), types.Fixed(1000, 3, False)), I64 | U64),
    types.Joined: ((types.Joined(":", (types.INT64, types.INT8)), types.Joined(":", (types.INT64,))), TEXTS),
}  # fmt: skip
"""Types of keys and plain values: some that join, and values that all of them may have."""

_COUNTS = st.dictionaries(st.integers(0, 11), U64.filter(bool), min_size=1, max_size=3)
_PAIRS = st.tuples(I64, U64)


def _series(reduce: str) -> Sample:
    kinds = (types.TSeries(10, 5, reduce), types.TSeries(10, 7, reduce, False))
    return kinds, st.dictionaries(st.integers(0, 9), st.tuples(I64, U64), min_size=1, max_size=3)


AGGREGATES: dict[str, Sample] = {
    "count": ((types.Count(),), U64),
    "sum": ((types.Sum(True), types.Sum(False)), I64),
    "usum": ((types.Sum(False),), U64),
    "avg": ((types.Avg(True), types.Avg(False)), _PAIRS),
    "stats": ((types.Stats(True),), _PAIRS),
    "min": ((types.Min(True), types.Min(False)), I64 | U64),
    "max": ((types.Max(True), types.Max(False)), I64 | U64),
    "hist": ((types.Hist(2),), _COUNTS),
    "lhist": ((types.LHist(0, 100, 10),), _COUNTS),
    **{f"tseries {reduce or 'last'}": _series(reduce) for reduce in ("", "sum", "avg", "min", "max")},
}

VALUES: dict[str, Sample] = {**{sample[0][0].tag: sample for sample in PLAIN.values()}, **AGGREGATES}
"""Everything that a map may have as value."""

KEYS: tuple[Sample | None, ...] = (None, *PLAIN.values())


@st.composite
def maps(draw: st.DrawFn, name: str, key: Sample | None, value: Sample, count: int) -> list[MapData]:
    """The map *name* of *count* snapshots."""
    keys = st.none() if key is None else key[1]
    found = []
    for _ in range(count):
        entries = draw(st.dictionaries(keys, value[1], max_size=3))
        key_type = None if key is None else draw(st.sampled_from(key[0]))
        found.append(MapData(name, key_type, draw(st.sampled_from(value[0])), entries, None, draw(TEXTS)))
    return found


@st.composite
def tables(draw: st.DrawFn, identity: str) -> tuple[Table, ...]:
    """Tables of one run."""
    shapes = [
        (types.Record(("pid", "name"), (types.INT32, draw(st.sampled_from(PLAIN[types.String][0])))),
         st.tuples(I64, TEXTS)),
        (types.Record(("pid", "name"), (types.INT32, types.KSym())), st.tuples(I64, TEXTS)),
        (types.Record(("stack",), (types.Stack(True),)), st.tuples(STACKS)),
    ]  # fmt: skip
    chosen = draw(st.lists(st.sampled_from(range(len(shapes))), unique=True))
    return tuple(
        Table(shapes[at][0], {identity: draw(st.lists(shapes[at][1], max_size=3))}, draw(st.integers(0, 2)))
        for at in chosen
    )


LOSSES = st.dictionaries(
    st.sampled_from(["lost", "map_full"]), st.dictionaries(TEXTS, st.integers(1, 9), max_size=2), max_size=2
)


@st.composite
def snapshots(draw: st.DrawFn, count: int) -> list[SnapshotData]:
    """Snapshots of *count* runs that have maps of the same names, of every type now and then."""
    columns = []
    for number in range(draw(st.integers(0, 3))):
        key, value = draw(st.sampled_from(KEYS)), draw(st.sampled_from(list(VALUES.values())))
        columns.append(draw(maps(f"@{number}", key, value, count)))
    found = []
    for number in range(count):
        identity = f"run-{number}"
        one = run(identity, start=draw(st.integers(0, 3)), end=draw(st.integers(4, 6)))
        kept = [column[number] for column in columns if draw(st.integers(0, 5))]
        found.append(SnapshotData((one,), {data.name: data for data in kept}, draw(tables(identity)), draw(LOSSES)))
    return found
