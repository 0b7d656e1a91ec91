"""The question before probes that are hit very often: how many there are, and what they are likely to cost.

Before the script is loaded for its run, it is loaded once more, with maps of one key, and its probes are attached for a
tenth of a second. The watchdog's deadline is 0 then, so programs count their hits and return (:mod:`.heartbeat`);
nothing of the trial is left in what the run uses.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase

import msgspec

from pytrace.base import terminal
from pytrace.core.costs import entry_costs
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import CompiledScript, ProgramSpec
from pytrace.core.options import RunOptions
from pytrace.core.probe_kinds import ITER
from pytrace.runtime.load import attachments
from pytrace.runtime.load.loader import LoadOptions, load
from pytrace.runtime.load.probe_links import AttachOptions
from pytrace.runtime.session.services import SKIPPED, CounterReader

_HOT = {
    "the scheduler": (
        "tracepoint:sched:*", "rawtracepoint:sched*", "*probe:*schedule*", "f*:*:*schedule*", "*:try_to_wake_up",
        "*:finish_task_switch*", "*:update_curr*",
    ),
    "locks": (
        "tracepoint:lock:*", "rawtracepoint:lock*", "rawtracepoint:contention*", "k*probe:*lock*", "fe*:*lock*",
        "*:mutex_*", "*:*rcu_read_*",
    ),
    "memory allocation": ("tracepoint:kmem:*", "rawtracepoint:k*alloc*", "*:kmalloc*", "*:kfree*", "*:kmem_cache_*"),
    "all system calls": ("tracepoint:raw_syscalls:*", "rawtracepoint:sys_e*"),
    "interrupts and timers": (
        "tracepoint:irq*", "tracepoint:timer:*", "tracepoint:rcu:*", "rawtracepoint:irq*", "rawtracepoint:softirq*",
        "rawtracepoint:hrtimer*", "rawtracepoint:timer*",
    ),
}  # fmt: skip
"""Names of probes that are known to be hit very often, by their subject."""

MANY = 100
"""Number of probes that are tried whatever their names are."""
_TRIAL = 0.1
"""Seconds of the trial."""
BODY = 100
"""Nanoseconds that a program is taken to run: a count by a key."""
NOTABLE = 0.01
"""Part of one processor from which on the user is asked."""


class Estimate(msgspec.Struct, frozen=True):
    """Result of a trial: hits in a second, and the part of one processor that they are likely to cost."""

    rate: float
    share: float


def subjects(programs: Iterable[ProgramSpec]) -> list[str]:
    """The subjects of *programs* whose probes are known to be hit very often."""
    names = {target.probe for program in programs for target in program.targets}
    return [
        subject
        for subject, patterns in _HOT.items()
        if any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
    ]


def confirm(script: CompiledScript, options: RunOptions) -> None:
    """Ask at the terminal whether to trace what is hit very often.

    Raises:
        TraceError: the user does not want to.
    """
    programs = [program for program in script.manifest.programs if not program.service and program.kind != ITER]
    count = sum(len(program.targets) for program in programs)
    known = subjects(programs)
    if not known and count <= MANY:
        return
    with terminal.step("counting hits of the probes"):
        estimate = trial(script, programs, options)
    if estimate.share < NOTABLE:
        return
    what = f" ({', '.join(known)})" if known else ""
    sys.stderr.write(
        f"{count} probe{'' if count == 1 else 's'}{what}: {estimate.rate:,.0f} hits per second in a trial of "
        f"{_TRIAL} s, which cost about {100 * estimate.share:.0f}% of one processor.\nTrace them? [y/N] "
    )
    sys.stderr.flush()
    if not _agreed():
        raise TraceError("nothing was traced", hints=("--yes traces without this question",))


def trial(script: CompiledScript, programs: Sequence[ProgramSpec], options: RunOptions) -> Estimate:
    """Attach *programs* for :data:`_TRIAL` seconds; they count their hits."""
    manifest = script.manifest
    maps = {symbol: 1 for spec in manifest.maps for symbol in (spec.symbol, spec.keys) if symbol and not spec.inner}
    with ExitStack() as stack:
        loaded = load(script, options=LoadOptions(disabled=options.no_features, entries=maps), stack=stack)
        loaded.fill_session_data(options, None)
        if (data := manifest.session) is not None:
            loaded.section(data.section)[data.deadline : data.deadline + 8] = bytes(8)
        attach_options = AttachOptions(
            pids=options.filters.pids, missing_probes="ignore", disabled=options.no_features,
            file_activation=options.usdt_file_activation,
        )  # fmt: skip
        attachments.attach_all(loaded, programs, attach_options, stack)
        reader = CounterReader(loaded)
        before, began = reader.totals(), time.monotonic()
        time.sleep(_TRIAL)
        after, seconds = reader.totals(), time.monotonic() - began
    hits = {
        index: count - before.get((kind, index), 0) for (kind, index), count in after.items() if kind == SKIPPED
    }
    entries = entry_costs(manifest.programs)
    busy = sum(count * (entries[index] + BODY) for index, count in hits.items())
    return Estimate(sum(hits.values()) / seconds, busy / 1e9 / seconds)


def _agreed() -> bool:
    """Read the answer; no answer is a no."""
    return sys.stdin.readline().strip().lower() in ("y", "yes")
