"""Portable values as JSON output shows them, written from its documentation (docs/reference/output.md) alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytrace.core import types
from pytrace.render.text import strftime
from pytrace.results.snapshot import MapData, StackTrace


def number(value: int) -> Any:
    return value if int(float(value)) == value else str(value)


def shown(kind: types.Type, value: Any) -> Any:
    """What a JSON parser gives for a value."""
    return ROWS.get(type(kind), lambda _kind, plain: plain)(kind, value)


def key(kind: types.Type, value: Any) -> str:
    """The name of a member, of keys of numbers, texts, stacks and tuples of them."""
    if isinstance(kind, types.Tuple):
        return ",".join(key(inner, item) for inner, item in zip(kind.members, value, strict=True))
    if isinstance(kind, types.Stack):
        return stack(value)
    return str(value)


def stack(trace: StackTrace) -> str:
    """A stack of the mode ``bpftrace`` in a key."""
    lines = [""]
    for frame in trace.frames:
        place = f"@{frame.file}:{frame.line}" if frame.file else ""
        start = f"[inlined] {frame.function}" if frame.inlined else f"{frame.function}+{frame.offset}"
        lines.append(f"{start}{place}" if frame.function else f"0x{frame.address:x}")
    return "".join(f"{line}\n" for line in lines)


def data(item: MapData) -> Any:
    """What ``data`` has of a map."""
    if item.key is None:
        return shown(item.value, item.entries[None])
    last = max((n for series in item.entries.values() if isinstance(series, dict) for n in series), default=0)
    values = {name: window(item.value, value, last) for name, value in item.entries.items()}
    return {key(item.key, name): shown(item.value, value) for name, value in values.items()}


def window(kind: types.Type, value: Any, last: int) -> Any:
    """Of a time series what is not older than the last interval of the whole map allows."""
    if not isinstance(kind, types.TSeries):
        return value
    return {number: item for number, item in value.items() if number > last - kind.count}


def _quotient(total: int, count: int) -> int:
    return abs(total) // count * (1 if total >= 0 else -1) if count else 0


def _stats(_kind: types.Type, value: tuple[int, int]) -> Any:
    return {"count": value[1], "average": _quotient(*value), "total": value[0]}


def _hist(kind: types.Hist, counts: dict[int, int]) -> list[dict[str, int]]:
    """Bucket 0 is of negative numbers, 1 of zero, n + 2 of 2**n and what follows (bits are 0)."""
    assert kind.bits == 0
    found = []
    for bucket in range(min(counts), max(counts) + 1):
        bounds = {"max": -1} if bucket == 0 else {"min": 0, "max": 0}
        if bucket > 1:
            bounds = {"min": 1 << (bucket - 2), "max": (1 << (bucket - 1)) - 1}
        found.append({**bounds, "count": counts.get(bucket, 0)})
    return found


def _lhist(kind: types.LHist, counts: dict[int, int]) -> list[dict[str, int]]:
    found = []
    for bucket in range(min(counts), max(counts) + 1):
        low = kind.low + (bucket - 1) * kind.step
        bounds = {} if bucket == 0 else {"min": low}
        if bucket < kind.buckets - 1:
            bounds["max"] = low + kind.step - 1
        found.append({**bounds, "count": counts.get(bucket, 0)})
    return found


def _tseries(kind: types.TSeries, series: dict[int, tuple[int, int]]) -> list[dict[str, Any]]:
    found = []
    for place in sorted(series):
        start = strftime("%Y-%m-%dT%H:%M:%S.%k", place * kind.interval).decode()
        value, meta = series[place]
        found.append({"interval_start": start, "value": _quotient(value, meta) if kind.reduce == "avg" else value})
    return found


def _members(kinds: tuple[types.Type, ...]) -> Callable[[Any], list[Any]]:
    return lambda values: [shown(kind, value) for kind, value in zip(kinds, values, strict=True)]


ROWS: dict[type[types.Type], Callable[[Any, Any], Any]] = {
    types.Int: lambda _kind, value: number(value),
    types.Pointer: lambda _kind, value: number(value),
    types.Count: lambda _kind, value: number(value),
    types.Sum: lambda _kind, value: number(value),
    types.Min: lambda _kind, value: number(value),
    types.Max: lambda _kind, value: number(value),
    types.Buffer: lambda _kind, value: [byte - 256 * (byte > 127) for byte in value],
    types.Array: lambda kind, value: _members((kind.element,) * kind.count)(value),
    types.Tuple: lambda kind, value: _members(kind.members)(value),
    types.Record: lambda kind, value: dict(zip(kind.names, _members(kind.members)(value), strict=True)),
    types.Avg: lambda _kind, value: _quotient(*value),
    types.Stats: _stats,
    types.Hist: _hist,
    types.LHist: _lhist,
    types.TSeries: _tseries,
    types.Stack: lambda _kind, value: "\n" + "".join(f"        {line}\n" for line in stack(value).split("\n")[1:-1]),
}
