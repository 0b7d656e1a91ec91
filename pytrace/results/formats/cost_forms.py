"""What a run has cost, as text and as JSON."""

from __future__ import annotations

from pytrace.core.costs import ProbeCost, RunCost
from pytrace.render import json

_HEAD = ("probe", "hits", "ns/hit", "entry", "total", "of a CPU")


def cost_text(cost: RunCost) -> str:
    """Costs as a table: a row for each probe, one for the tracer."""
    seconds = cost.duration / 1e9
    rows = [_HEAD, *(_row(item, cost.duration) for item in cost.probes)]
    rows.append(("pytrace itself", "", "", "", _milliseconds(cost.own_time), _percent(cost.own_time, cost.duration)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"cost of tracing: {_percent(cost.total, cost.duration)} of one CPU in {seconds:.1f} s"]
    for name, *numbers in rows:
        cells = [text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join((name.ljust(widths[0]), *cells)))
    lines += [_limited(item) for item in cost.probes if item.detached or item.weight > 1]
    lines.append(f"memory: {_mebibytes(cost.memory)} of pytrace, {_mebibytes(cost.maps)} of its maps in the kernel")
    return "".join(f"{line}\n" for line in lines)


def _limited(cost: ProbeCost) -> str:
    done = [f"sampled, 1 in {cost.weight} hits"] if cost.weight > 1 else []
    return f"{cost.probe}: {', then '.join((*done, *(['detached'] if cost.detached else [])))}"


def _row(cost: ProbeCost, duration: int) -> tuple[str, ...]:
    hits = max(cost.hits, 1)
    each, entry = cost.run_time // hits, cost.entry // hits
    return (
        cost.probe, str(cost.hits), str(each), str(entry), _milliseconds(cost.total), _percent(cost.total, duration)
    )  # fmt: skip


def _milliseconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:.1f} ms"


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole if whole else 0:.2f}%"


def cost_json(cost: RunCost) -> bytes:
    """Costs as JSON; times are nanoseconds, sizes bytes."""
    numbers = {
        "duration": cost.duration, "processors": cost.processors, "total": cost.total, "own_time": cost.own_time,
        "memory": cost.memory, "maps": cost.maps,
    }  # fmt: skip
    return json.mapping([*_numbers(numbers), (b"probes", b"[%s]" % b", ".join(map(_probe_json, cost.probes)))])


def cost_line(cost: RunCost) -> bytes:
    """Costs as a line of JSON output."""
    return json.line("cost", cost_json(cost))


def _probe_json(cost: ProbeCost) -> bytes:
    numbers = {
        "hits": cost.hits, "run_time": cost.run_time, "entry": cost.entry, "total": cost.total, "weight": cost.weight,
    }  # fmt: skip
    name = cost.probe.encode("utf-8", "surrogateescape")
    detached = b"true" if cost.detached else b"false"
    return json.mapping([(b"probe", json.quoted(name)), *_numbers(numbers), (b"detached", detached)])


def _numbers(numbers: dict[str, int]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), json.number(value)) for name, value in numbers.items()]
