"""`pytrace calls` beside strace, and `pytrace why` beside `perf sched record`: what they add to what they look at."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benching.rows import Line, Measure, Numbers, Plan, Row, paired
from benching.runs import PYTRACE, Tracer, built, run

CHUNKS, CALLS = 400, 250
SETTLES, LASTS = 4.0, 12
"""Seconds until a tracer of another process has surely begun, and that it runs."""


def _found(name: str, *words: str) -> Tracer | None:
    path = shutil.which(name)
    return Tracer(" ".join((name, *words)), (path, *words)) if path else None


STRACE, PERF = _found("strace"), _found("perf", "sched")


def _cost(kind: str, start: Callable[[list[str]], object]) -> float:
    """Nanoseconds of a call or a turn where little else disturbs it: one chunk in fifty is cheaper."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as result:
        start([built("waits.c", "-pthread"), result.name, kind, str(CHUNKS), str(CALLS)])
        taken = sorted(int(line) for line in Path(result.name).read_text().split())
    return taken[len(taken) // 50] / CALLS


def _under(tracer: Tracer, own: Sequence[str], others: Sequence[str]) -> Callable[[list[str]], object]:
    """Starts a command under a tracer: words of pytrace's, which takes it as one word, or of the other one."""
    if tracer is PYTRACE:
        return lambda command: tracer.run(*own, " ".join(command))
    return lambda command: tracer.run(*others, *command)


def _calls(row: Row, plan: Plan) -> list[Line]:
    def once(tracer: Tracer) -> Numbers:
        base = _cost("call", run)
        start = _under(tracer, ("calls", "-o", "/dev/null", "-c"), ("-o", "/dev/null"))
        return {"added": _cost("call", start) - base}

    return paired(row, replace(plan, peer=STRACE), (Measure("added", "ns", 0.1),), once, runs=plan.of(5))


def _switches(row: Row, plan: Plan, *, traced: bool) -> list[Line]:
    """A turn is two switches."""

    def once(tracer: Tracer) -> Numbers:
        base = _cost("switch", run)
        own, others = ("why", "-o", "/dev/null", "-c"), ("record", "-o", "/dev/null")
        if traced:
            return {"added": (_cost("switch", _under(tracer, own, others)) - base) / 2}
        idle = (*own, f"sleep {LASTS}") if tracer is PYTRACE else (*others, "sleep", str(LASTS))
        quiet = subprocess.DEVNULL
        with subprocess.Popen([*tracer.command, *idle], stdin=quiet, stdout=quiet, stderr=quiet) as process:
            time.sleep(SETTLES)
            cost = _cost("switch", run)
            process.wait()
        return {"added": (cost - base) / 2}

    measure = Measure("added", "ns", 0.5)
    return paired(row, replace(plan, peer=PERF), (measure,), once, runs=plan.of(5))


ROWS = [
    Row("others.calls", "`calls` beside strace: a system call", _calls),
    Row("others.why.traced", "`why` beside perf sched record: a switch", partial(_switches, traced=True), slow=True),
    Row("others.why.untraced", "the same of a thread that is not traced", partial(_switches, traced=False), slow=True),
]
