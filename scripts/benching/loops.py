"""Traced loops: what a tracer adds to a call, and what programs written by hand add."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from benching.rows import FLOOR, Line, Measure, Numbers, Plan, Row, paired
from benching.runs import PROGRAMS, PYTRACE, RunError, Tracer, alone, bpf_object, built, run

PYTHON = "/usr/bin/python3"
"""The interpreter of the distribution, as services run it."""


@dataclass(frozen=True)
class Loop:
    """Calls in short chunks on one processor (``programs/loop.c``)."""

    kind: str = "call"
    calls: int = 250
    chunks: int = 1200
    pause: int = 0
    depth: int = 0
    preloaded: str = ""
    """A library that is mapped into the process."""
    config: str = ""
    """Settings of pytrace alone, for its own ways to unwind: what others have in their place is ``ustack``."""

    def command(self, result: str) -> list[str]:
        """Its command line."""
        numbers = (self.chunks, self.calls, self.pause, self.depth)
        before = ["/usr/bin/env", f"LD_PRELOAD={self.preloaded}"] if self.preloaded else []
        return [*before, built("loop.c"), result, self.kind, *map(str, numbers)]

    def alone(self) -> float:
        """Nanoseconds of a call that nothing traces."""
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as result:
            run(self.command(result.name))
            return self._cost(result.name)

    def under(self, tracer: Tracer, script: str, *words: str) -> float:
        """Nanoseconds of a call that the script's probes see."""
        if tracer is PYTRACE and self.config:
            script = f"config = {{ {self.config} }} {script}"
        elif tracer is not PYTRACE:
            script = script.replace("pystack", "ustack").replace("dw_ustack", "ustack")
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as result, tempfile.NamedTemporaryFile(dir="/dev/shm") as out:
            command = " ".join(self.command(result.name))
            tracer.run("-o", out.name, *words, "-e", script.replace("LOOP", built("loop.c")), "-c", command)
            return self._cost(result.name)

    def _cost(self, result: str) -> float:
        """The cost of a chunk that little disturbed: one in fifty is cheaper."""
        taken = sorted(int(line) for line in Path(result).read_text().split())
        return taken[len(taken) // 50] / self.calls


@dataclass(frozen=True)
class PythonLoop(Loop):
    """The same by functions of Python (``programs/loop.py``); of others the interpreter's own functions are shown."""

    def command(self, result: str) -> list[str]:
        """Its command line."""
        return [PYTHON, str(PROGRAMS / "loop.py"), result, *map(str, (self.chunks, self.calls, self.depth))]


@dataclass(frozen=True)
class Probed:
    """A probe in a loop: the script's probe, and what the loop does."""

    probe: str = "tracepoint:syscalls:sys_enter_getsid"
    loop: Loop = Loop()

    def script(self, body: str) -> str:
        """The script; a body that begins with a slash has the predicate in it."""
        return f"{self.probe} {body}" if body.startswith("/") else f"{self.probe} {{ {body} }}"


FLOOR_GOAL = 1.1
"""What an event may cost, beside the floor."""
WHOLE = "added"
BEYOND = "beyond an empty program"
_empty: dict[tuple[str, Probed], float] = {}


def empty(tracer: Tracer, probed: Probed, runs: int = 3) -> float:
    """What the empty program of the same probe adds, measured once: the kernel's path to it, and the way back.

    Nothing is taken off what a peer adds that has no such probe: its runs fail, too.
    """
    if (tracer.name, probed) not in _empty:
        costs = [0.0]
        with alone(), suppress(RunError) if tracer is not PYTRACE else nullcontext():
            costs = [probed.loop.under(tracer, probed.script("")) - probed.loop.alone() for _ in range(runs)]
        _empty[tracer.name, probed] = statistics.median(costs)
    return _empty[tracer.name, probed]


def floor() -> Tracer:
    """The floor with its command: a loader that takes the options of a tracer, and as script the name of programs."""
    return replace(FLOOR, command=(built("floor.c", "-lbpf"), bpf_object("floor.bpf.c")))


def added(
    row: Row, plan: Plan, script: str, probed: Probed, goal: float | None, *, beyond: bool = True, by_hand: str = "",
    of_peer: str = "",
) -> list[Line]:
    """What the script adds to a call of the loop: whole, and beyond an empty program.

    *of_peer* is the script of the other tracer, where it lacks something. *by_hand* names the programs of
    ``programs/floor.bpf.c`` that do the same; what they add is the floor of the whole.
    """
    loop = probed.loop
    base = 0.0

    def prepare() -> None:
        nonlocal base
        base = loop.alone()

    empties = {tracer.name: empty(tracer, probed) for tracer in (PYTRACE, plan.peer) if tracer and beyond}

    def once(tracer: Tracer) -> Numbers:
        if tracer is FLOOR:
            return {WHOLE: loop.under(floor(), by_hand) - base}
        cost = loop.under(tracer, script if tracer is PYTRACE else of_peer or script) - base
        return {WHOLE: cost, BEYOND: cost - empties.get(tracer.name, 0.0)}

    measures = (Measure(WHOLE, "ns", goal, floor_goal=FLOOR_GOAL), Measure(BEYOND, "ns"))
    base = loop.alone()
    return paired(row, plan, measures if beyond else measures[:1], once, prepare=prepare, floor=bool(by_hand))


def added_by(
    body: str, goal: float | None, probed: Probed = Probed(), by_hand: str = ""
) -> Callable[[Row, Plan], list[Line]]:
    """The measurement of a row whose script is one probe with this body; *by_hand*: of :func:`added`."""

    def measure(row: Row, plan: Plan) -> list[Line]:
        return added(row, plan, probed.script(body), probed, goal, by_hand=by_hand)

    return measure
