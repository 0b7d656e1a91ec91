"""Starts: compiled and from the cache."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from benching.rows import Line, Measure, Numbers, Plan, Row, paired
from benching.runs import PYTRACE, RunError, Tracer

ENDS = "BEGIN { exit(); }"
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
END { clear(@open); clear(@name); clear(@us); clear(@switches); clear(@bytes); clear(@read); clear(@wanted);
      clear(@woken); clear(@closed); }
"""
OPENSNOOP = Path("/usr/sbin/opensnoop.bt")


def _words(name: str, tracer: Tracer) -> list[str]:
    if name == "opensnoop":
        return (["opensnoop"] if tracer is PYTRACE else [_peers_opensnoop()]) + ["-c", "/bin/true"]
    return ["-e", {"begin": ENDS, "ten": TEN}[name]]


def _peers_opensnoop() -> str:
    if not OPENSNOOP.exists():
        raise RunError(f"{OPENSNOOP} is not installed")
    return str(OPENSNOOP)


def _start(name: str, options: list[str], goals: tuple[float, float, float]) -> Callable[[Row, Plan], list[Line]]:
    measures = tuple(
        Measure(what, unit, goal)
        for what, unit, goal in zip(("wall", "processor", "memory"), ("ms", "ms", "MiB"), goals, strict=True)
    )

    def measure(row: Row, plan: Plan) -> list[Line]:
        with tempfile.TemporaryDirectory() as cache:

            def once(tracer: Tracer) -> Numbers:
                own = options if tracer is PYTRACE else []
                done = tracer.run(*own, *_words(name, tracer), environment={"XDG_CACHE_HOME": cache})
                return {"wall": done.wall * 1e3, "processor": done.processor * 1e3, "memory": done.memory / 1024}

            lines = paired(row, plan, measures, once)
        if row.name == "start.cached.begin":
            least = Measure("processor, the least of all", "ms")
            lines.append(Line(row.name, row.title, least, [min(lines[1].ours + lines[1].again)], limit=IDLE))
        return lines

    return measure


IDLE = 20.0
"""Milliseconds of processor time that a cached start may take on an idle machine."""
COLD = (0.4, 1.5, 1.0)
CACHED = (0.12, 0.8, 1.0)
_SCRIPTS = {"begin": "begin { exit() }", "ten": "a script of 10 probes", "opensnoop": "opensnoop"}

ROWS = [
    *(
        Row(f"start.cold.{name}", f"start of {title}, compiled", _start(name, ["--no-cache"], COLD))
        for name, title in _SCRIPTS.items()
    ),
    *(
        Row(f"start.cached.{name}", f"start of {title}, cached", _start(name, [], CACHED))
        for name, title in _SCRIPTS.items()
    ),
]
