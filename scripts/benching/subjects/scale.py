"""How costs grow: with probes, keys, the rate of events, the depth of stacks, the length of scripts, processors."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from benching.loops import Loop, Probed
from benching.plots import Plot, Point
from benching.rows import Line, Measure, Plan, Row
from benching.runs import MANY_PROBES, PYTRACE, ROOT, RunError, Tracer, alone
from benching.subjects.attach import function, many
from benching.subjects.compiling import compile_only, long_script, probes_script
from benching.subjects.maps import GETSID, Filled, chunked

GROWTH = 1.3
"""By how much the cost of ten times the work may exceed ten times the cost."""
KEPT: dict[str, Plot] = {}
"""Plots that were measured, by name."""


def least(sizes: Sequence[int], cost: Callable[[int], float], runs: int = 2) -> list[Point]:
    """The least cost of each size; sizes of which all runs fail are left out."""
    points = []
    for size in sizes:
        taken = []
        for _ in range(runs):
            with alone():
                try:
                    taken.append(cost(size))
                except RunError as error:
                    print(f"  {size:,}: {str(error)[:200]}", file=sys.stderr)
                    break
        if taken:
            points.append((float(size), max(min(taken), 1e-6)))
    return points


def growth(points: list[Point]) -> list[float]:
    """Of each step to a larger size, after the first: cost added for each unit of work, to what it was before."""
    added = [
        (after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(points)
    ]
    return [later / max(earlier, 1e-12) for earlier, later in pairwise(added)]


def of_whole(points: list[Point]) -> list[float]:
    """Of each step the growth of the whole cost to that of the work, for costs that mostly do not grow."""
    return [after[1] / before[1] / (after[0] / before[0]) for before, after in pairwise(points)]


def _line(row: Row, plot: Plot, name: str, steps: Callable[[list[Point]], list[float]] = growth) -> Line:
    """The last step's growth: 1 is linear."""
    KEPT[plot.name] = plot
    found = steps(plot.lines[name]) or [1.0]
    measure = Measure("growth of the last step (1: linear)", "times")
    return Line(row.name, row.title, measure, [found[-1]], limit=GROWTH)


def _both(
    plan: Plan, sizes: Sequence[int], peers: Sequence[int], cost: Callable[[Tracer, int], float]
) -> dict[str, list[Point]]:
    lines = {"pytrace": least(sizes, lambda size: cost(PYTRACE, size), plan.of(2))}
    peer = plan.peer
    if peer:
        points = least(peers, lambda size: cost(peer, size), 1)
        if points:
            lines[peer.name] = points
    return lines


def _attached(tracer: Tracer, count: int) -> float:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        script = Path(folder) / "script.bt"
        script.write_text(",".join(f"uprobe:{many()}:{function(n)}" for n in range(count)) + " { @ = count(); }")
        return tracer.run(str(script), "-c", "/bin/true", environment=MANY_PROBES).processor


def _compiled(tracer: Tracer, text: str) -> float:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        script = Path(folder) / "script.bt"
        script.write_text(text)
        return compile_only(tracer, str(script), f"{folder}/object").processor


def _probes(row: Row, plan: Plan) -> list[Line]:
    many()  # compiled while others may measure
    lines = _both(plan, (1, 10, 100, 1000, 10_000), (1, 10, 100), _attached)
    title = "Probes: attach uprobes with one body, end"
    return [_line(row, Plot("probes", title, "probes", "processor time, s", lines), "pytrace")]


def _bodies(row: Row, plan: Plan) -> list[Line]:
    lines = _both(plan, (1, 10, 100, 1000), (1, 10, 100), lambda tracer, count: _compiled(tracer, probes_script(count)))
    title = "Probes: compile different bodies"
    return [_line(row, Plot("bodies", title, "probes", "processor time, s", lines), "pytrace")]


def _script(row: Row, plan: Plan) -> list[Line]:
    sizes = (100, 300, 1000, 3000) if plan.quick else (100, 300, 1000, 3000, 10_000)
    lines = _both(plan, sizes, sizes[:3], lambda tracer, count: _compiled(tracer, long_script(count)))
    title = "Script: compile lines of ordinary code"
    return [_line(row, Plot("script", title, "lines", "processor time, s", lines), "pytrace")]


def _filled(tracer: Tracer, keys: int, what: str) -> float:
    filled = Filled(f"{GETSID} {{ @[args->pid] = count(); }}", chunked("numbered", keys), keys)
    return filled.whole_run(tracer)[what]


def _keys(row: Row, plan: Plan) -> list[Line]:
    sizes = (1000, 10_000, 100_000, 1_000_000) if plan.quick else (1000, 10_000, 100_000, 1_000_000, 10_000_000)
    lines = _both(plan, sizes, sizes[:4], lambda tracer, keys: _filled(tracer, keys, "processor"))
    plot = Plot("keys", "Keys: fill a map of integer keys, print it", "keys", "processor time, s", lines)
    return [_line(row, plot, "pytrace")]


def _memory(row: Row, plan: Plan) -> list[Line]:
    sizes = (1000, 10_000, 100_000, 1_000_000)
    lines = _both(plan, sizes, sizes, lambda tracer, keys: _filled(tracer, keys, "memory"))
    plot = Plot("memory", "Keys: memory of the tracer", "keys", "MiB", lines)
    return [_line(row, plot, "pytrace", of_whole)]


DEPTHS = (1, 3, 10, 30, 60, 120)


def _depth(row: Row, plan: Plan) -> list[Line]:
    def cost(tracer: Tracer, depth: int) -> float:
        probed = Probed(loop=Loop(depth=depth, calls=100, chunks=300))
        return probed.loop.under(tracer, probed.script("@[ustack] = count();")) - probed.loop.alone()

    lines = _both(plan, DEPTHS, DEPTHS, cost)
    plot = Plot("depth", "Stacks: count() by ustack", "frames below main", "ns added to an event", lines)
    return [_line(row, plot, "pytrace")]


RATES = (10_000, 30_000, 100_000, 300_000, 1_000_000)


def _rate(row: Row, plan: Plan) -> list[Line]:
    """Processor time of the tracer for each event offered at a rate, and what of the events is printed."""
    shares: dict[str, list[Point]] = {}
    script = f'{GETSID} /comm == "loop"/ {{ printf("%s %d %lu\\n", comm, pid, nsecs); }}'

    def cost(tracer: Tracer, rate: int) -> float:
        loop = Loop(calls=rate // 200, chunks=200, pause=4000)
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as out, tempfile.NamedTemporaryFile(dir="/dev/shm") as result:
            command = " ".join(loop.command(result.name))
            done = tracer.run("-o", out.name, "-e", script, "-c", command)
            spent = sum(map(int, Path(result.name).read_text().split())) / 1e9
            with open(out.name, "rb") as file:
                printed = sum(line.startswith(b"loop ") for line in file)
        offered = loop.calls * loop.chunks
        shares.setdefault(tracer.name, []).append((float(rate), 100 * max(printed, 1) / offered))
        return max(done.processor - spent, 1e-6) / offered * 1e6

    lines = _both(plan, RATES, RATES, cost)
    KEPT["printed"] = Plot("printed", "Rate: events that are printed", "events offered a second", "%", shares)
    plot = Plot("rate", "Rate: the tracer's processor time, with its start", "events a second", "us an event", lines)
    return [_line(row, plot, "pytrace", of_whole)]


_OF_PROCESSORS = """
import sys
from tests.support import wide_maps
for processors in map(int, sys.argv[1:]):
    print(processors, *wide_maps.cost(processors))
"""
PROCESSORS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def _processors(row: Row, plan: Plan) -> list[Line]:
    """Of maps as they are on machines with more processors, made by the tests' means: print time and memory."""
    command = [sys.executable, "-c", _OF_PROCESSORS, *map(str, PROCESSORS)]
    found: dict[int, list[float]] = {}
    for _ in range(plan.of(3)):
        with alone():
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode:
            raise RunError(f"maps of many processors: {done.stderr[-300:]}")
        for line in done.stdout.splitlines():
            number, *costs = line.split()
            before = found.setdefault(int(number), [math.inf] * len(costs))
            found[int(number)] = [min(pair) for pair in zip(before, map(float, costs), strict=True)]
    keyed, hist, memory, slots = ([(float(n), costs[at]) for n, costs in found.items()] for at in range(4))
    times = {"1,000 counts": keyed, "a hist": hist}
    sizes = {"1,000 counts": memory, "a hist": slots}
    KEPT["percpu"] = Plot("percpu", "Processors: memory of maps", "processors", "KiB", sizes)
    plot = Plot("processors", "Processors: time to print maps", "processors", "ms", times)
    return [_line(row, plot, "1,000 counts")]


ROWS = [
    Row("scale.probes", "1 to 10,000 uprobes", _probes, slow=True),
    Row("scale.bodies", "1 to 1,000 probes with different bodies", _bodies, slow=True),
    Row("scale.script", "100 to 10,000 lines", _script, slow=True),
    Row("scale.keys", "1,000 to 10,000,000 keys", _keys, slow=True),
    Row("scale.memory", "1,000 to 1,000,000 keys", _memory, slow=True),
    Row("scale.depth", "stacks of 1 to 120 frames", _depth, slow=True),
    Row("scale.rate", "10,000 to 1,000,000 events a second", _rate, slow=True),
    Row("scale.processors", "1 to 512 processors", _processors),
]
