"""Descriptions of the runs of a snapshot: hosts, times, losses."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pytrace.core.costs import ProbeCost, RunCost
from pytrace.core.failures import failure
from pytrace.core.types import Count
from pytrace.render import json
from pytrace.render.text import encoded
from pytrace.results.snapshot import MapData, Run, SnapshotData
from pytrace.results.stack_samples import is_profile, is_remainder


def text(snapshot: SnapshotData) -> str:
    """As :func:`lines`, at once."""
    return "".join(lines(snapshot))


def lines(snapshot: SnapshotData) -> Iterator[str]:
    """A paragraph for each script and host, with a line for each of its runs; one for losses, and an empty line."""
    origins: dict[tuple[str | tuple[str, ...], ...], list[Run]] = {}
    for run in snapshot.runs:
        origin = (run.script, run.parameters, run.script_hash, run.host, run.kernel, run.machine)
        origins.setdefault(origin, []).append(run)
    for runs in origins.values():
        yield _origin(runs[0])
        for run in runs:
            yield _times(run)
            if run.identity in snapshot.costs:
                yield from _cost(snapshot.costs[run.identity])
    yield from [f"# {line}\n" for line in losses(snapshot)]
    yield "\n"


def losses(snapshot: SnapshotData) -> Iterator[str]:
    """A line for each gap, and for each kind of loss and what it concerns."""
    for run in snapshot.runs:
        for start, duration in run.gaps:
            yield f"hits were skipped for {seconds(duration)} s from {moment(start)}"
    for data in snapshot.shown.values():
        if data.entries and is_remainder(data, snapshot):
            yield _remainder(data, next(filter(is_profile, snapshot.shown.values())))
    for kind, subjects in sorted(snapshot.losses.items()):
        for subject, count in sorted(subjects.items()):
            if kind == "map_full" and subject in snapshot.maps:
                yield _incomplete(snapshot.maps[subject], count)
            else:
                words = failure(kind)
                sentence = f"{count} {words.one if count == 1 else words.many}"
                yield f"{sentence} ({subject})" if subject and subject != "total" else sentence


def _incomplete(data: MapData, dropped: int) -> str:
    """What is missing of a full map; as a share where each update counted one."""
    if not isinstance(data.value, Count):
        return f"{data.name} is incomplete: {dropped} updates found no room for their keys"
    every = dropped + sum(value for value in data.entries.values() if isinstance(value, int))
    return (
        f"{data.name} is incomplete: {dropped} of {every} ({100 * dropped / every:.0f}%) found no room for their keys"
    )


def _remainder(data: MapData, stacks: MapData) -> str:
    """The share of stacks that found no room."""
    here, there = (sum(value for value in one.entries.values() if isinstance(value, int)) for one in (data, stacks))
    share = 100 * here / ((here + there) or 1)
    what = f"{here:,} {stacks.unit}".rstrip()
    return f"{what} ({share:.0f} % of all) are of stacks beyond the first {len(stacks.entries):,}: no function has them"


def _origin(run: Run) -> str:
    parameters = "".join(f" {parameter}" for parameter in run.parameters)
    where = f"on {run.host}, Linux {run.kernel} {run.machine}"
    return f"# {run.script}{parameters} (SHA-256 {run.script_hash[:12]}) {where}\n"


def _times(run: Run) -> str:
    span = f"{moment(run.start)} to {moment(run.end)} ({seconds(run.end - run.start)} s)"
    clock = "" if run.clock is None else f", {_clock(*run.clock)}"
    return f"# {span}, run {run.identity}, pytrace {run.version}{clock}\n"


def _clock(ahead: int, error: int) -> str:
    side = "ahead" if ahead > 0 else "behind"
    return f"clock {abs(ahead) / 1e6:.3f} ms {side} (± {error / 1e6:.3f} ms)"


def _cost(cost: RunCost) -> Iterator[str]:
    for line in cost_text(cost).splitlines():
        yield f"# {line}\n"


def seconds(nanoseconds: int) -> str:
    """A duration in seconds, to the millisecond."""
    return f"{nanoseconds / 1e9:.3f}"


def moment(nanoseconds: int) -> str:
    """A wall time, in UTC and to the millisecond."""
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(whole)) + f".{rest // 1_000_000:03} UTC"


def json_line(snapshot: SnapshotData) -> bytes:
    """One line of JSON with the runs and what was lost; times are nanoseconds since 1970, and as texts."""
    runs = [json.mapping(_members(run)) for run in snapshot.runs]
    losses = [(encoded(kind), _numbers(subjects)) for kind, subjects in sorted(snapshot.losses.items())]
    members = [(b"runs", b"[%s]" % b", ".join(runs)), (b"losses", json.mapping(losses))]
    if snapshot.costs:
        costs = [(run.encode(), _cost_json(cost)) for run, cost in snapshot.costs.items()]
        members.append((b"costs", json.mapping(costs)))
    return json.line("snapshot", json.mapping(members))


def _numbers(counts: dict[str, int]) -> bytes:
    return json.mapping([(encoded(subject), json.number(count)) for subject, count in sorted(counts.items())])


def _members(run: Run) -> list[tuple[bytes, bytes]]:
    texts = {
        "identity": run.identity, "host": run.host, "kernel": run.kernel, "machine": run.machine,
        "script": run.script, "script_hash": run.script_hash, "version": run.version,
    }  # fmt: skip
    times = {
        "start": run.start, "end": run.end,
        "start_monotonic": run.start_monotonic, "end_monotonic": run.end_monotonic,
    }  # fmt: skip
    return [
        *((name.encode(), json.quoted(encoded(value))) for name, value in texts.items()),
        (b"parameters", b"[%s]" % b", ".join(json.quoted(encoded(item)) for item in run.parameters)),
        *((name.encode(), json.number(value)) for name, value in times.items()),
        (b"start_time", json.quoted(moment(run.start).encode())),
        (b"end_time", json.quoted(moment(run.end).encode())),
        (b"gaps", b"[%s]" % b", ".join(b"[%d, %d]" % gap for gap in run.gaps)),
        *([] if run.clock is None else [(b"clock", b"[%d, %d]" % run.clock)]),
    ]


# ---------------------------------------------------------------------------------------------- cost forms


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


def _cost_json(cost: RunCost) -> bytes:
    """Costs as JSON; times are nanoseconds, sizes bytes."""
    numbers = {
        "duration": cost.duration, "processors": cost.processors, "total": cost.total, "own_time": cost.own_time,
        "memory": cost.memory, "maps": cost.maps,
    }  # fmt: skip
    return json.mapping([*_number_members(numbers), (b"probes", b"[%s]" % b", ".join(map(_probe_json, cost.probes)))])


def cost_line(cost: RunCost) -> bytes:
    """Costs as a line of JSON output."""
    return json.line("cost", _cost_json(cost))


def _probe_json(cost: ProbeCost) -> bytes:
    numbers = {
        "hits": cost.hits, "run_time": cost.run_time, "entry": cost.entry, "total": cost.total, "weight": cost.weight,
    }  # fmt: skip
    name = cost.probe.encode("utf-8", "surrogateescape")
    detached = b"true" if cost.detached else b"false"
    return json.mapping([(b"probe", json.quoted(name)), *_number_members(numbers), (b"detached", detached)])


def _number_members(numbers: dict[str, int]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), json.number(value)) for name, value in numbers.items()]
