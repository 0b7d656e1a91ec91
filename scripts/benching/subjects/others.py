"""`pytrace calls` beside strace, `pytrace why` beside `perf sched record` and offcputime: what they add."""

from __future__ import annotations

import shutil
import signal
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
OFFCPUTIME = _found("offcputime-libbpf")
"""That of libbpf-tools: bcc's needs kprobes, and a compiler of the kernel's headers."""


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


def _watched(tracer: Tracer) -> Callable[[list[str]], object]:
    """Starts a command under a tracer that takes the number of a process."""

    def start(command: list[str]) -> None:
        quiet = subprocess.DEVNULL
        stopped = ["/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *command]
        with (
            subprocess.Popen(stopped, stdin=quiet) as traced,
            subprocess.Popen([*tracer.command, "-p", str(traced.pid)], stdout=quiet, stderr=quiet) as process,
        ):
            time.sleep(SETTLES)
            traced.send_signal(signal.SIGCONT)
            traced.wait()
            process.send_signal(signal.SIGINT)

    return start


def _calls(row: Row, plan: Plan) -> list[Line]:
    def once(tracer: Tracer) -> Numbers:
        base = _cost("call", run)
        start = _under(tracer, ("calls", "-o", "/dev/null", "-c"), ("-o", "/dev/null"))
        return {"added": _cost("call", start) - base}

    return paired(row, replace(plan, peer=STRACE), (Measure("added", "ns", 0.1),), once, runs=plan.of(5))


def _stacks(row: Row, plan: Plan) -> list[Line]:
    """As :func:`_switches`, of a thread that is traced, beside a tool that takes both stacks of each wait, too."""

    def once(tracer: Tracer) -> Numbers:
        base = _cost("switch", run)
        return {"added": (_cost("switch", _watched(tracer) if tracer is not PYTRACE else _why) - base) / 2}

    return paired(row, replace(plan, peer=OFFCPUTIME), (Measure("added", "ns", 1.0),), once, runs=plan.of(5))


def _why(command: list[str]) -> object:
    return PYTRACE.run("why", "-o", "/dev/null", "-c", " ".join(command))


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
    Row("others.why.stacks", "`why` beside libbpf-tools' offcputime: a switch, with stacks", _stacks, slow=True),
    Row("others.why.untraced", "the same of a thread that is not traced", partial(_switches, traced=False), slow=True),
]
