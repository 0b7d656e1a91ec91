"""10,000 different user addresses of a large binary as names, and as source lines."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import replace

from benching.loops import Loop
from benching.rows import Line, Measure, Numbers, Plan, Row, paired
from benching.runs import PYTRACE, RunError, Tracer
from benching.subjects.attach import FUNCTIONS, many
from benching.subjects.lists import library
from benching.subjects.maps import END, GETSID, MEMFD, Filled, chunked

GOAL = 0.5
ADDRESSES = 10_000
MEASURES = (Measure("wall", "s", GOAL), Measure("processor", "s", GOAL), Measure("memory", "MiB"))


def _names(row: Row, plan: Plan) -> list[Line]:
    loop: Loop = replace(chunked("addresses", ADDRESSES), preloaded=library())
    script = f"{MEMFD} /(uint64)args->uname != 0/ {{ @[usym((uint64)args->uname)] = count(); }}"
    return paired(row, plan, MEASURES, Filled(script, loop, ADDRESSES // 4).whole_run, runs=plan.of(2))


ADDR2LINE = Tracer("addr2line", (found,)) if (found := shutil.which("addr2line")) else None


def _traced_lines(tracer: Tracer) -> Numbers:
    """Stacks of calls from each function, whose lines print."""
    script = f'{GETSID} /comm == "many"/ {{ @[ustack(2)] = count(); }} {END}'
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as out:
        limits = {"BPFTRACE_MAP_KEYS_MAX": "20000"}
        done = tracer.run("-o", out.name, "-e", script, "-c", f"{many()} call", environment=limits)
        with open(out.name, "rb") as file:
            lines = len({line.split(b"many.c:")[1].split()[0] for line in file if b"many.c:" in line})
    if lines < FUNCTIONS * 0.99:
        raise RunError(f"{tracer.name} printed {lines:,} lines of {FUNCTIONS:,}")
    return {"wall": done.wall, "processor": done.processor, "memory": done.memory / 1024}


def _lines(row: Row, plan: Plan) -> list[Line]:
    nm = subprocess.run(["nm", many()], capture_output=True, text=True, check=True).stdout
    addresses = [f"0x{line.split()[0]}" for line in nm.splitlines() if line.endswith("_function")]

    def once(tracer: Tracer) -> Numbers:
        if tracer is PYTRACE:
            return _traced_lines(tracer)
        # As many arguments as a command line takes.
        done = tracer.run("-f", "-i", "-e", many(), *addresses)
        if done.stdout.count("many.c:") < FUNCTIONS * 0.99:
            raise RunError("addr2line gives no lines")
        return {"wall": done.wall, "processor": done.processor, "memory": done.memory / 1024}

    return paired(row, plan, MEASURES, once, runs=plan.of(2), other=ADDR2LINE)


ROWS = [
    Row("symbols.names", "10,000 addresses of a large library to names", _names, slow=True),
    Row("symbols.lines", "10,000 addresses to source lines", _lines, slow=True),
]
