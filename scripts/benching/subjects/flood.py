"""printf() at the full rate of one and of two processors: what arrives, and what a line costs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from benching.rows import Line, Measure, Numbers, Plan, Row, paired
from benching.runs import Tracer, built

CALLS = 2_000_000
SCRIPT = """tracepoint:syscalls:sys_enter_getsid /comm == "flood"/ { printf("%s %d %lu\\n", comm, pid, nsecs); }"""
MEASURES = (
    Measure("printed", "lines", less=False),
    Measure("wall a line", "us"),
    Measure("processor a line, with the calls", "us", 0.15),
    Measure("processor a line, the tracer's", "us"),
)


def _flood(threads: int) -> Callable[[Row, Plan], list[Line]]:
    def once(tracer: Tracer) -> Numbers:
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as out, tempfile.NamedTemporaryFile(dir="/dev/shm") as result:
            command = f"{built('flood.c', '-pthread')} {result.name} {CALLS} {threads}"
            done = tracer.run("-o", out.name, "-e", SCRIPT, "-c", command)
            with open(out.name, "rb") as file:
                printed = max(1, sum(line.startswith(b"flood ") for line in file))
            calls = int(Path(result.name).read_text()) / 1e6
        return {
            "printed": float(printed),
            "wall a line": done.wall / printed * 1e6,
            "processor a line, with the calls": done.processor / printed * 1e6,
            "processor a line, the tracer's": (done.processor - calls) / printed * 1e6,
        }

    def measure(row: Row, plan: Plan) -> list[Line]:
        lines = paired(row, plan, MEASURES, once, runs=plan.of(2), ahead=False)
        lines[0].limit = CALLS
        return lines

    return measure


ROWS = [
    Row("flood.one", f"printf of 3 fields, {CALLS:,} at full rate, one producer", _flood(1), slow=True),
    Row("flood.two", f"printf of 3 fields, {CALLS:,} at full rate, two producers", _flood(2), slow=True),
]
