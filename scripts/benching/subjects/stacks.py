"""Stacks as keys, shallow and deep."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benching.loops import Loop, Probed, PythonLoop, added_by
from benching.rows import Line, Measure, Plan, Row, against_limit
from benching.runs import PYTRACE, packaged, run

GOAL = 0.7
DEPTHS = (3, 30, 100)
DEEP = Probed("tracepoint:kmem:kmem_cache_alloc", Loop("open", calls=50, chunks=600))
"""Allocations of open(): a dozen frames, more than once a call."""
KNOWN = replace(DEEP, probe="rawtracepoint:kmem_cache_alloc")
"""The same where pytrace recognises stacks."""


PYTHON = PythonLoop(depth=30, calls=100, chunks=500)
_RATE, _SECONDS = 500, 4


def _py_spy(row: Row, plan: Plan) -> list[Line]:
    """Processor time of py-spy for a sample of the same stack, which it takes from outside of the process."""
    command = packaged("py-spy")

    def taken(rate: int) -> float:
        words = (command, "record", "--rate", str(rate), "--duration", str(_SECONDS), "--format", "raw")
        with tempfile.NamedTemporaryFile() as out, subprocess.Popen(replace(PYTHON, chunks=0).command("")) as loop:
            try:
                return run([*words, "--output", out.name, "--pid", str(loop.pid)]).processor
            finally:
                loop.kill()

    def once() -> float:
        return (taken(_RATE) - taken(1)) / (_SECONDS * (_RATE - 1)) * 1e9

    return [against_limit(row, plan, Measure("processor a sample", "ns"), None, once, runs=plan.of(3))]


def _user(depth: int) -> Probed:
    return Probed(loop=Loop(depth=depth, calls=100, chunks=500))


MOST_DEPTHS = (127, 512, 1024)


def _deep(depth: int, config: str) -> Probed:
    """A loop whose stacks have about as many frames as are kept."""
    loop = Loop(depth=depth - 7, calls=50, chunks=200, config=f"max_stack_depth = {depth}{config}")
    return Probed(loop=loop)


def _memory(depth: int) -> Callable[[Row, Plan], list[Line]]:
    """Kernel memory of the maps of a run, with scratch memory and the chunks of deep stacks."""

    def once() -> float:
        config = f"config = {{ max_stack_depth = {depth} }} "
        script = f"{config}tracepoint:syscalls:sys_enter_getsid {{ @[ustack] = count(); }}"
        words = [*PYTRACE.command, "-q", "-e", f'{script} interval:ms:100 {{ printf("attached\\n"); }}']
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as tracer:
            try:
                while tracer.stdout is not None and "attached" not in tracer.stdout.readline():
                    pass
                folder = Path(f"/proc/{tracer.pid}/fdinfo")
                maps = {}
                for file in folder.iterdir():
                    lines = dict(line.split(":\t", 1) for line in file.read_text().splitlines() if ":\t" in line)
                    if "map_id" in lines:
                        maps[lines["map_id"]] = int(lines["memlock"])
                return sum(maps.values()) / (1 << 20)
            finally:
                tracer.kill()

    return lambda row, plan: [against_limit(row, plan, Measure("maps", "MiB"), None, once, runs=plan.of(3))]


def _by_tables(config: str) -> Probed:
    return Probed(loop=replace(_user(30).loop, config=config))


ROWS = [
    Row("stacks.kernel.3", "count() by kstack, a system call's", added_by("@[kstack] = count();", GOAL)),
    Row("stacks.kernel.deep", "count() by kstack, open()'s allocations", added_by("@[kstack] = count();", GOAL, DEEP)),
    Row("stacks.kernel.known", "the same by rawtracepoint", added_by("@[kstack] = count();", GOAL, KNOWN)),
    *(
        Row(
            f"stacks.user.{depth}",
            f"count() by ustack, about {depth} frames",
            added_by("@[ustack] = count();", GOAL, _user(depth)),
        )
        for depth in DEPTHS
    ),
    *(
        Row(
            f"stacks.both.{depth}",
            f"count() by kstack and ustack, about {depth} frames",
            added_by("@[kstack, ustack] = count();", GOAL, _user(depth)),
        )
        for depth in DEPTHS
    ),
    Row(
        "stacks.tables.chosen",
        "count() by ustack with stack_unwinding = auto, about 30 frames (bpftrace: by ustack)",
        added_by("@[ustack] = count();", None, _by_tables("stack_unwinding = auto")),
    ),
    *(
        Row(
            f"stacks.depth.{depth}{suffix}",
            f"count() by ustack of {depth} frames{text}, max_stack_depth = {depth} (bpftrace: 127 frames)",
            added_by("@[ustack] = count();", None, _deep(depth, config)),
        )
        for depth in MOST_DEPTHS
        for suffix, text, config in (("", "", ""), (".tables", " by unwind tables", "; stack_unwinding = auto"))
    ),
    *(
        Row(f"stacks.depth.{depth}.memory", f"count() by ustack, max_stack_depth = {depth}", _memory(depth))
        for depth in MOST_DEPTHS
    ),
    Row(
        "stacks.tables.all",
        "count() by dw_ustack, about 30 frames (bpftrace: by ustack)",
        added_by("@[dw_ustack] = count();", None, _by_tables("unstable_dw_ustack = enable")),
    ),
    Row(
        "stacks.python.alone",
        "count() by pystack, 30 functions of Python (bpftrace: by ustack)",
        added_by("@[pystack] = count();", None, Probed(loop=PYTHON)),
    ),
    Row(
        "stacks.python.mixed",
        "count() by ustack with python_frames, 30 functions of Python (bpftrace: by ustack)",
        added_by("@[ustack] = count();", None, Probed(loop=replace(PYTHON, config="python_frames = true"))),
    ),
    Row("stacks.python.py-spy", "a sample of py-spy, 30 functions of Python", _py_spy, slow=True),
]
