"""Large maps: filled, printed at the end; the whole run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from benching.loops import Loop
from benching.rows import Line, Measure, Numbers, Plan, Row, paired
from benching.runs import PYTRACE, RunError, Tracer, limit_of_keys

END = "tracepoint:syscalls:sys_enter_memfd_create /(uint64)args->uname == 0/ { exit(); }"
"""The loop's last call, after which it lingers."""
GETSID = "tracepoint:syscalls:sys_enter_getsid"
MEMFD = "tracepoint:syscalls:sys_enter_memfd_create"


@dataclass(frozen=True)
class Filled:
    """A map: what fills it, the loop whose calls do, the keys it has then."""

    script: str
    loop: Loop
    keys: int

    def whole_run(self, tracer: Tracer, *words: str) -> Numbers:
        """Seconds and MiB of a run that fills and prints the map.

        Raises:
            RunError: keys are missing. A peer may lose half of them: bpftrace does, of stacks with the same hash.
        """
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as out:
            command = f"{' '.join(self.loop.command('/dev/null'))} linger"
            limits = limit_of_keys(self.keys + self.keys // 10)
            script = f"{self.script} {END}"
            done = tracer.run("-o", out.name, *words, "-e", script, "-c", command, environment=limits)
            with open(out.name, "rb") as file:
                printed = sum(line.startswith((b"@[", b"@h[")) for line in file)
        least = 0.99 if tracer is PYTRACE else 0.5
        if printed < self.keys * least:
            raise RunError(f"{tracer.name} printed {printed:,} of {self.keys:,} keys")
        return {"wall": done.wall, "processor": done.processor, "memory": done.memory / 1024, "keys": float(printed)}


def chunked(kind: str, keys: int) -> Loop:
    """A loop of that many calls."""
    return Loop(kind, calls=keys // 100, chunks=100)


def _whole(filled: Filled, goal: float, memory: float) -> Callable[[Row, Plan], list[Line]]:
    measures = (Measure("wall", "s", goal), Measure("processor", "s", goal), Measure("memory", "MiB", memory),
                Measure("keys", "keys", less=False))  # fmt: skip

    def measure(row: Row, plan: Plan) -> list[Line]:
        return paired(row, plan, measures, filled.whole_run, runs=plan.of(2))

    return measure


INTEGERS = Filled(f"{GETSID} {{ @[args->pid] = count(); }}", chunked("numbered", 1_000_000), 1_000_000)
STACKS = Filled(f"{GETSID} /comm == \"loop\"/ {{ @[ustack] = count(); }}", chunked("stacks", 100_000), 100_000)
STRINGS = Filled(
    f"{MEMFD} /(uint64)args->uname != 0/ {{ @[str(args->uname)] = count(); }}", chunked("names", 100_000), 100_000
)
HISTS = Filled(f"{GETSID} {{ @[args->pid] = hist(args->pid & 1023); }}", chunked("numbered", 100_000), 100_000)

ROWS = [
    Row("maps.integers", "a map of 1,000,000 integer keys", _whole(INTEGERS, 0.25, 0.6), slow=True),
    Row("maps.stacks", "a map of 100,000 user stacks", _whole(STACKS, 0.3, 0.6), slow=True),
    Row("maps.strings", "a map of 100,000 strings", _whole(STRINGS, 0.3, 0.6), slow=True),
    Row("maps.hists", "a map of 100,000 hists", _whole(HISTS, 0.3, 0.6), slow=True),
]
