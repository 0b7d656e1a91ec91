"""Starts: from the cache, compiled, and with an empty cache."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benching.rows import FLOOR, Line, Measure, Numbers, Plan, Row, paired
from benching.runs import PROGRAMS, PYTRACE, RunError, Tracer

ENDS = "begin { exit(); }"
TEN = """
tracepoint:syscalls:sys_enter_openat { @open[tid] = nsecs; @name[tid] = args->filename; }
tracepoint:syscalls:sys_exit_openat /@open[tid]/ {
  $took = (nsecs - @open[tid]) / 1000;
  @us[comm] = hist($took);
  if ($took > 100000) { printf("%-6d %-16s %d %s\\n", pid, comm, $took, str(@name[tid])); }
  delete(@open[tid]); delete(@name[tid]);
}
tracepoint:syscalls:sys_enter_read { @wanted = lhist(args->count, 0, 10000, 100); @read[tid] = args->count; }
tracepoint:syscalls:sys_exit_read /args->ret > 0/ { @bytes[comm, pid] = sum(args->ret); delete(@read[tid]); }
tracepoint:syscalls:sys_enter_close { @closed[comm] = count(); }
tracepoint:sched:sched_switch { @switches[cpu] = count(); }
tracepoint:sched:sched_wakeup { @woken[args->comm] = count(); }
tracepoint:sched:sched_process_exit /pid == tid/ { @lives = count(); }
interval:ms:1 { exit(); }
end { clear(@open); clear(@name); clear(@us); clear(@switches); clear(@bytes); clear(@read); clear(@wanted);
      clear(@woken); clear(@closed); }
"""


def _words(name: str, tracer: Tracer) -> list[str]:
    if name == "opensnoop":
        return (["opensnoop"] if tracer is PYTRACE else [_opensnoop_of(tracer)]) + ["-c", "/bin/true"]
    return ["-e", {"begin": ENDS, "ten": TEN}[name]]


def _opensnoop_of(peer: Tracer) -> str:
    """The tool that is installed with the peer's program."""
    script = Path(peer.command[-1]).resolve().parent.parent / "sbin" / "opensnoop.bt"
    if not script.exists():
        raise RunError(f"{script} is not installed")
    return str(script)


Goals = tuple[float | None, float | None, float]


def _start(
    name: str, options: list[str], goals: Goals, *, fresh: bool, compiles: bool
) -> Callable[[Row, Plan], list[Line]]:
    """The measurement of a start; beside that of the shortest script, what Python and the packages take alone."""
    packages = replace(FLOOR, command=(sys.executable, str(PROGRAMS / "packages.py")))
    measures = tuple(
        Measure(what, unit, goal)
        for what, unit, goal in zip(("wall", "processor", "memory"), ("ms", "ms", "MiB"), goals, strict=True)
    )

    def measure(row: Row, plan: Plan) -> list[Line]:
        with tempfile.TemporaryDirectory() as kept:

            def once(tracer: Tracer) -> Numbers:
                if tracer is FLOOR:
                    tracer, words = packages, ["compiled"] if compiles else []
                else:
                    words = [*(options if tracer is PYTRACE else []), *_words(name, tracer)]
                with tempfile.TemporaryDirectory() as empty:
                    cache = {"XDG_CACHE_HOME": empty if fresh else kept}
                    done = tracer.run(*words, environment=cache)
                return {"wall": done.wall * 1e3, "processor": done.processor * 1e3, "memory": done.memory / 1024}

            return paired(row, plan, measures, once, floor=name == "begin")

    return measure


MEMORY = 0.6
COMPILED: Goals = (0.4, 0.8, MEMORY)
CACHED: Goals = (0.2, None, MEMORY)
WAYS = {
    "cached": ("cached", [], CACHED, False),
    "compiled": ("compiled", ["--no-cache"], COMPILED, False),
    "empty": ("in an empty cache", [], COMPILED, True),
}
"""Of each way to start: its words, pytrace's options, the goals, and whether each run has a cache of its own.

``--no-cache`` compiles the script each time, from what else the cache has (the kernel's types); a first start on a
machine has an empty one.
"""
_SCRIPTS = {"begin": "begin { exit() }", "ten": "a script of 10 probes", "opensnoop": "opensnoop"}

ROWS = [
    Row(
        f"start.{way}.{name}",
        f"start of {title}, {words}",
        _start(name, options, goals, fresh=fresh, compiles=way != "cached"),
    )
    for way, (words, options, goals, fresh) in WAYS.items()
    for name, title in _SCRIPTS.items()
]
