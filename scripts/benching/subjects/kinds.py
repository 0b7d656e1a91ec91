"""Each probe kind: what an empty program and ``count()`` add to what is probed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benching.loops import Loop, Probed, added
from benching.rows import Line, Measure, Numbers, Plan, Row, against_limit, paired
from benching.runs import PYTRACE, RunError, Tracer

EMPTY_GOAL = 1.0
COUNT_GOAL = 0.8

HERE = {
    "tracepoint": Probed(),
    "rawtracepoint": Probed("rawtracepoint:sys_enter"),
    "uprobe": Probed("uprobe:LOOP:traced", Loop("function", calls=50, chunks=500)),
    "uretprobe": Probed("uretprobe:LOOP:traced", Loop("function", calls=50, chunks=500)),
    "usdt": Probed("usdt:LOOP:bench:mark", Loop("marker", calls=50, chunks=500)),
}
CALLS = Probed("uprobe:LOOP:traced,uretprobe:LOOP:traced", Loop("function", calls=50, chunks=500))
"""Entry and return of a function: two breakpoints, where the peer's kernel replaces the return address."""
CALLS_GOAL = 2.1
PAIR = """uprobe:LOOP:traced { @start[tid] = nsecs; }
uretprobe:LOOP:traced /@start[tid]/ { @ns = hist(nsecs - @start[tid]); delete(@start[tid]); }"""
IN_VM = {
    "kprobe": Probed("kprobe:__x64_sys_getsid", Loop(calls=100, chunks=300)),
    "kretprobe": Probed("kretprobe:__x64_sys_getsid", Loop(calls=100, chunks=300)),
    "fentry": Probed("fentry:__x64_sys_getsid", Loop(calls=100, chunks=300)),
    "fexit": Probed("fexit:__x64_sys_getsid", Loop(calls=100, chunks=300)),
}


def _probe(probed: Probed, body: str, goal: float) -> Callable[[Row, Plan], list[Line]]:
    def measure(row: Row, plan: Plan) -> list[Line]:
        return added(row, plan, probed.script(body), probed, goal, beyond=bool(body))

    return measure


def _call(row: Row, plan: Plan) -> list[Line]:
    """As a call: the other tracer has the pair by hand."""
    script = "call:LOOP:traced { @ns = hist(duration); }"
    return added(row, plan, script, CALLS, CALLS_GOAL, beyond=False, of_peer=PAIR)


SAMPLED_EVERY = 200_000
"""Nanoseconds between two samples; many more would keep both processors from everything else."""
SPIN = Loop("spin", calls=10_000, chunks=150)


def _profile(body: str, goal: float) -> Callable[[Row, Plan], list[Line]]:
    """A sample's cost: by how much the same work takes longer, shared by the samples taken meanwhile."""

    def measure(row: Row, plan: Plan) -> list[Line]:
        base = 0.0

        def prepare() -> None:
            nonlocal base
            base = SPIN.alone()

        def once(tracer: Tracer) -> Numbers:
            cost = SPIN.under(tracer, f"profile:us:{SAMPLED_EVERY // 1000} {{ {body} }}")
            return {"added": (cost - base) / (cost / SAMPLED_EVERY)}

        prepare()
        return paired(row, plan, (Measure("added", "ns", goal),), once, prepare=prepare)

    return measure


UNMATCHED = "{ @[comm] = count(); }"
"""Of a script with ``-p``, whose process does not run."""


def _unmatched(row: Row, plan: Plan) -> list[Line]:
    """The run time of a program for a sample of another process, as the kernel measures it (``-v`` prints it)."""

    def once() -> float:
        words = ("-v", "-p", str(os.getpid()), "--duration", "2", "-e", f"profile:hz:997 {UNMATCHED}")
        match = re.search(r"^profile:hz:997 +\S+ +([\d,]+) ", PYTRACE.run(*words).stderr, re.MULTILINE)
        if match is None:
            raise RunError("-v prints no cost of the probe")
        return float(match[1].replace(",", ""))

    return [against_limit(row, plan, Measure("run time", "ns"), 300, once)]


def _lost(frequency: int) -> Callable[[Row, Plan], list[Line]]:
    """By how much a busy loop on each CPU takes longer while samples are taken of which none matches."""

    def busy() -> int:
        """Nanoseconds of a piece of 50 ms that little else disturbed: one in fifty is cheaper."""
        loop = Loop("spin", calls=125_000, chunks=60)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            cpus = sorted(os.sched_getaffinity(0))
            running = [
                subprocess.Popen(["taskset", "-c", str(cpu), *loop.command(f"{folder}/{cpu}")]) for cpu in cpus
            ]
            if sum(process.wait() != 0 for process in running):
                raise RunError("a loop has failed")
            taken = [int(line) for cpu in cpus for line in Path(folder, str(cpu)).read_text().split()]
        return sorted(taken)[len(taken) // 50]

    def once() -> float:
        before = busy()
        words = ("-q", "-p", str(os.getpid()), "-e", f"profile:hz:{frequency} {UNMATCHED}")
        with subprocess.Popen([*PYTRACE.command, *words], stdout=subprocess.DEVNULL) as tracer:
            try:
                time.sleep(2)
                while_sampled = busy()
            finally:
                tracer.send_signal(signal.SIGINT)
        return 100 * (while_sampled / ((before + busy()) / 2) - 1)

    def measure(row: Row, plan: Plan) -> list[Line]:
        return [against_limit(row, plan, Measure("lost", "%"), 1, once)]

    return measure


OF_ALL = "profile:hz:99 { @[ustack] = count(); }"
"""A profile of all processes, whose stacks have images (``codegen.walkers.memory_images``)."""


def _call_under_profile(row: Row, plan: Plan) -> list[Line]:
    """What a system call that maps nothing takes longer while user stacks are taken: unmapping is traced."""
    loop = Loop()

    def once() -> float:
        return loop.under(PYTRACE, OF_ALL) - loop.alone()

    return [against_limit(row, plan, Measure("added", "ns"), 100, once)]


def _stack_of_a_quiet_process(row: Row, plan: Plan) -> list[Line]:
    """A sample with a user stack, as the kernel measures it, and one without images beside it."""

    def once() -> float:
        costs = []
        for words in ((), ("--no-feature", "raw_syscalls")):
            script = "profile:hz:997 /pid == cpid/ { @[ustack(3)] = count(); }"
            command = " ".join(SPIN.command("/dev/null"))
            text = PYTRACE.run("-v", *words, "-e", script, "-c", command).stderr
            match = re.search(r"^profile:hz:997 +\S+ +([\d,]+) ", text, re.MULTILINE)
            if match is None:
                raise RunError("-v prints no cost of the probe")
            costs.append(float(match[1].replace(",", "")))
        return costs[0] / costs[1]

    return [against_limit(row, plan, Measure("ratio", ""), 1.1, once)]


def _rows(kinds: dict[str, Probed], vm: bool) -> list[Row]:
    rows = []
    for name, probed in kinds.items():
        rows.append(Row(f"kinds.{name}.empty", f"{name}, empty", _probe(probed, "", EMPTY_GOAL), vm=vm))
        rows.append(Row(f"kinds.{name}.count", f"{name}, count()", _probe(probed, "@ = count();", COUNT_GOAL), vm=vm))
    return rows


ROWS = [
    *_rows(HERE, vm=False),
    Row("kinds.calls.count", "uprobe and uretprobe of a function, count()", _probe(CALLS, "@ = count();", CALLS_GOAL)),
    Row("kinds.calls.pair", "call: of a function, hist(duration) (bpftrace: the pair)", _call),
    Row("kinds.profile.empty", "profile, empty, a sample", _profile("", EMPTY_GOAL)),
    Row("kinds.profile.count", "profile, count(), a sample", _profile("@ = count();", COUNT_GOAL)),
    Row("kinds.profile.unmatched", "profile with -p, a sample of another process", _unmatched),
    Row("kinds.profile.images", "profile with user stacks of all processes, a system call", _call_under_profile),
    Row("kinds.profile.quiet", "a user stack of a process with quiet mappings", _stack_of_a_quiet_process),
    *(
        Row(
            f"kinds.profile.busy.{frequency}",
            f"busy loops on all CPUs, profile:hz:{frequency} of another process",
            _lost(frequency),
            slow=True,
        )
        for frequency in (99, 997)
    ),
    *_rows(IN_VM, vm=True),
]
