"""10,000 different user addresses of a large binary as names, and as source lines."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from benching.rows import Line, Measure, Numbers, Plan, Row, paired
from benching.runs import PYTRACE, RunError, Tracer, limit_of_keys
from benching.subjects.attach import FUNCTIONS, many
from benching.subjects.lists import library
from benching.subjects.maps import END, GETSID, MEMFD, chunked

GOAL = 0.5
ADDRESSES = 10_000
MEASURES = (Measure("wall", "s", GOAL), Measure("processor", "s", GOAL), Measure("memory", "MiB"))


def _named(tracer: Tracer) -> Numbers:
    """Names of addresses of a process that lives until they have been printed.

    What a tracer starts itself ends with the run, and bpftrace then prints numbers; so the child of the tracer only
    starts the loop and waits.
    """
    loop = replace(chunked("addresses", ADDRESSES), preloaded=library())
    script = f"{MEMFD} /(uint64)args->uname != 0/ {{ @[usym((uint64)args->uname)] = count(); }} {END}"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        out, process, child = (Path(folder) / name for name in ("out", "process", "child"))
        child.write_text(f"({shlex.join(loop.command('/dev/null'))} linger & echo $! >{process})\nexec sleep 100\n")
        keys = limit_of_keys(2 * ADDRESSES)
        try:
            done = tracer.run("-o", str(out), "-e", script, "-c", f"/bin/sh {child}", environment=keys)
        finally:
            if process.exists():
                os.kill(int(process.read_text()), signal.SIGKILL)
        lines = out.read_bytes().splitlines()
    named = sum(line.startswith(b"@[") and not line.startswith(b"@[0x") for line in lines)
    if named < ADDRESSES * 0.95:
        raise RunError(f"{tracer.name} printed {named:,} names of {ADDRESSES:,}")
    return {"wall": done.wall, "processor": done.processor, "memory": done.memory / 1024}


def _names(row: Row, plan: Plan) -> list[Line]:
    return paired(row, plan, MEASURES, _named, runs=plan.of(3))


ADDR2LINE = Tracer("addr2line", (found,)) if (found := shutil.which("addr2line")) else None


def _traced_lines(tracer: Tracer) -> Numbers:
    """Stacks of calls from each function, whose lines print."""
    script = f'{GETSID} /comm == "many"/ {{ @[ustack(2)] = count(); }} {END}'
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as out:
        keys = limit_of_keys(2 * FUNCTIONS)
        done = tracer.run("-o", out.name, "-e", script, "-c", f"{many()} call", environment=keys)
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

    return paired(row, replace(plan, peer=ADDR2LINE), MEASURES, once, runs=plan.of(2))


ROWS = [
    Row("symbols.names", "10,000 addresses of a large library to names", _names, slow=True),
    Row("symbols.lines", "10,000 addresses to source lines", _lines, slow=True),
]
