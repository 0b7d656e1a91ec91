"""What ``show`` prints of a snapshot is what the run would have printed of the same maps."""

from __future__ import annotations

import json as standard_json
import math
from io import BytesIO
from typing import Any

from pytrace.core import types
from pytrace.core.types import Type
from pytrace.results.formats.format_row import WriteOptions, Writer
from pytrace.results.formats.text_and_json import write_json, write_text
from pytrace.results.snapshot import SnapshotData
from pytrace.results.values import Frame, StackTrace
from tests.support.encode import Run
from tests.support.rows import each_row
from tests.support.snapshots import COUNT, STRING, map_data, snapshot
from tests.support.zone import zone

COLOUR = types.Enum("colour", 4, False, (("RED", 0), ("GREEN", 5)))
PAIR = types.Record(("a", "b"), (types.INT64, STRING))
NAMED = types.Struct("struct", "x", 8, (types.Field("n", types.INT32, 0), types.Field("t", types.INT32, 4)), "", 4)

KEYS: list[tuple[Type, list[Any], list[Any]]] = [
    (types.INT64, [-1, 3, 2], [-1, 3, 2]),
    (types.BOOL, [True, False], [True, False]),
    (types.DOUBLE, [2.5, -1e300, math.inf], [2.5, -1e300, math.inf]),
    (COLOUR, [5, 0, 7], [5, 0, 7]),
    (types.Pointer(types.VOID), [255, 16], [255, 16]),
    (STRING, [b"b", b"a\xff", b"%d"], ["b", "a\udcff", "%d"]),
    (types.Buffer(4), [b"\x00a", b"z"], [b"\x00a", b"z"]),
    (types.Array(types.INT32, 2), [(1, 2), (0, 9)], [(1, 2), (0, 9)]),
    (types.Tuple((types.INT64, STRING)), [(1, b"x"), (1, b"a")], [(1, "x"), (1, "a")]),
    (types.Tuple((STRING,)), [(b"x",), (b"a",)], [("x",), ("a",)]),
    (PAIR, [(1, b"x"), (0, b"y")], [(1, "x"), (0, "y")]),
    (NAMED, [(1, 2), (0, 3)], [(1, 2), (0, 3)]),
    (types.Inet(), [(2, b"\x7f\x00\x00\x01"), (10, bytes(15) + b"\x01"), (0, bytes(16))], ["127.0.0.1", "::1", ""]),
    (types.Mac(), [b"\xaa\x00\x00\x00\x00\x01"], ["AA:00:00:00:00:01"]),
]
"""Types, keys as they are decoded, and the same as snapshots have them."""

VALUES: list[tuple[Type, list[Any], list[Any]]] = [
    (types.INT64, [5, -2, 1 << 62], [5, -2, 1 << 62]),
    (types.FLOAT, [-2.5, 1.0, math.inf], [-2.5, 1.0, math.inf]),
    (STRING, [b"x", b"y", b"\xfe"], ["x", "y", "\udcfe"]),
    (types.Tuple((types.INT64, STRING)), [(1, b"x"), (2, b"y"), (3, b"")], [(1, "x"), (2, "y"), (3, "")]),
    (COUNT, [[2], [1], [3]], [2, 1, 3]),
    (types.Sum(), [[-2], [1], [3]], [-2, 1, 3]),
    (types.Avg(), [[(7, 2)], [(-7, 2)], [(1, 1)]], [(7, 2), (-7, 2), (1, 1)]),
    (types.Stats(), [[(7, 2)], [(-7, 2)], [(1, 1)]], [(7, 2), (-7, 2), (1, 1)]),
    (types.Min(), [[(4, 1)], [(-4, 1)], [(1, 1)]], [4, -4, 1]),
    (types.Max(), [[(4, 1)], [(-4, 1)], [(1, 1)]], [4, -4, 1]),
]


def written(found: SnapshotData, write: Writer = write_text, *, about: bool = False) -> bytes:
    file = BytesIO()
    write(found, WriteOptions({}, about), file)
    return file.getvalue()


def live(key: Type, value: Type, entries: dict[Any, Any], *, as_json: bool) -> bytes:
    one = Run(json=as_json)
    one.keyed("@", key, value, entries)
    one.send(one.event("print_map", map="@"))
    return one.printed()


@each_row(("value", "decoded_values", "portable_values"), VALUES, ids=lambda item: str(item)[:12])
@each_row(("key", "decoded_keys", "portable_keys"), KEYS, ids=lambda item: str(item)[:12])
def test_maps_print_as_in_the_run(
    key: Type, decoded_keys: list[Any], portable_keys: list[Any],
    value: Type, decoded_values: list[Any], portable_values: list[Any],
) -> None:  # fmt: skip
    decoded = dict(zip(decoded_keys, decoded_values, strict=False))
    found = snapshot(map_data("@", key, value, dict(zip(portable_keys, portable_values, strict=False))))
    assert written(found) == live(key, value, decoded, as_json=False)
    assert written(found, write_json) == live(key, value, decoded, as_json=True)


def test_histograms_and_series() -> None:
    found = snapshot(
        map_data("@h", STRING, types.Hist(), {"a": {2: 1, 4: 3}, "b": {1: 9}}),
        map_data("@t", None, types.TSeries(1_000_000_000, 3, "avg"), {None: {7: (9, 2), 9: (-3, 2)}}),
    )
    with zone("UTC"):
        shown = written(found).decode().splitlines()
    assert shown[0] == "@h[a]:"
    assert shown[1].startswith("[1]                    1 |@@@")
    assert sum(line.startswith("@h[") for line in shown) == 2
    assert [line.split()[-1] for line in shown if line.startswith("00:00:")] == ["4", "-", "-1"]
    first, second = map(standard_json.loads, written(found, write_json).splitlines())
    assert first == {"type": "hist", "data": {"@h": {
        "a": [{"min": 1, "max": 1, "count": 1}, {"min": 2, "max": 3, "count": 0}, {"min": 4, "max": 7, "count": 3}],
        "b": [{"min": 0, "max": 0, "count": 9}],
    }}}  # fmt: skip
    assert [item["value"] for item in second["data"]["@t"]] == [4, -1]


def test_stacks_print_by_their_mode() -> None:
    frames = (
        Frame("f", 4, "/bin/x", "00ff", "x.c", 7, False, 0x10),
        Frame("g", 0, "/bin/x", "", "", 0, True, 0x10),
        Frame("", address=0x20),
    )
    expected = {
        types.StackMode.BPFTRACE: "        f+4@x.c:7\n        [inlined] g\n        0x20\n",
        types.StackMode.PERF: "\t10 f+4 (/bin/x)\n\t10 g (inlined)\n\t20 0x20 ([unknown])\n",
        types.StackMode.RAW: "10\n10\n20\n",
        types.StackMode.BUILD_ID: "00ff 0x10\n10\n20\n",
    }
    for mode, lines in expected.items():
        found = snapshot(map_data("@", types.Stack(True, 127, mode), COUNT, {StackTrace(frames): 1}))
        assert written(found).decode() == f"@[\n{lines}]: 1\n"
    error = snapshot(map_data("@", types.Stack(True), COUNT, {StackTrace((), True, "File exists"): 1}))
    assert written(error) == b"@[\n        [no stack: File exists]\n]: 1\n"
