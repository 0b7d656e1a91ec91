"""Each probe kind: what an empty program and ``count()`` add to what is probed."""

from __future__ import annotations

from collections.abc import Callable

from benching.loops import Loop, Probed, added
from benching.rows import Line, Measure, Numbers, Plan, Row, paired
from benching.runs import Tracer

EMPTY_GOAL = 1.0
COUNT_GOAL = 0.8

HERE = {
    "tracepoint": Probed(),
    "rawtracepoint": Probed("rawtracepoint:sys_enter"),
    "uprobe": Probed("uprobe:LOOP:traced", Loop("function", calls=50, chunks=500)),
    "uretprobe": Probed("uretprobe:LOOP:traced", Loop("function", calls=50, chunks=500)),
    "usdt": Probed("usdt:LOOP:bench:mark", Loop("marker", calls=50, chunks=500)),
}
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


def _rows(kinds: dict[str, Probed], vm: bool) -> list[Row]:
    rows = []
    for name, probed in kinds.items():
        rows.append(Row(f"kinds.{name}.empty", f"{name}, empty", _probe(probed, "", EMPTY_GOAL), vm=vm))
        rows.append(Row(f"kinds.{name}.count", f"{name}, count()", _probe(probed, "@ = count();", COUNT_GOAL), vm=vm))
    return rows


ROWS = [
    *_rows(HERE, vm=False),
    Row("kinds.profile.empty", "profile, empty, a sample", _profile("", EMPTY_GOAL)),
    Row("kinds.profile.count", "profile, count(), a sample", _profile("@ = count();", COUNT_GOAL)),
    *_rows(IN_VM, vm=True),
]
