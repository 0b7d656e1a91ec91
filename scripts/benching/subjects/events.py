"""What one event costs: each aggregation, key and output, and predicates that are false."""

from __future__ import annotations

from benching.loops import Loop, Probed, added, added_by
from benching.rows import Line, Plan, Row

GOAL = 0.7
GOAL_OF_PREDICATES = 0.5

NAMED = Probed("tracepoint:syscalls:sys_enter_memfd_create", Loop("named"))
PRINTED = Probed(loop=Loop(calls=300, chunks=60, pause=4000))
"""Slow enough that no buffer is full: an event that is lost costs little."""

_BODIES = {
    "count": ("count()", "@ = count();"),
    "comm": ("count() by comm", "@[comm] = count();"),
    "pid": ("count() by pid", "@[pid] = count();"),
    "pid_comm_sum": ("sum() by pid and comm", "@[pid, comm] = sum(args->pid + 5);"),
    "hist": ("hist() of nsecs", "@ = hist(nsecs);"),
    "lhist": ("lhist()", "@ = lhist(nsecs & 1023, 0, 1000, 10);"),
    "keyed_hist": ("hist() by comm", "@[comm] = hist(nsecs);"),
    "avg": ("avg()", "@ = avg(nsecs & 1023);"),
    "stats": ("stats()", "@ = stats(nsecs & 1023);"),
    "increment": ("@x++", "@x++;"),
}

PAIR = """tracepoint:syscalls:sys_enter_getsid { @start[tid] = nsecs; }
tracepoint:syscalls:sys_exit_getsid /@start[tid]/ { @ns = hist(nsecs - @start[tid]); delete(@start[tid]); }"""


def _pair(row: Row, plan: Plan) -> list[Line]:
    return added(row, plan, PAIR, Probed(), GOAL, beyond=False, by_hand="pair")


def _call(row: Row, plan: Plan) -> list[Line]:
    """As a call: the other tracer has the pair by hand, which :func:`_pair` measures for both."""
    script = "syscall:getsid { @ns = hist(duration); }"
    return added(row, plan, script, Probed(), GOAL, beyond=False, by_hand="pair", of_peer=PAIR)


BY_HAND = ("count", "comm", "pid", "hist")
"""Rows of which ``programs/floor.bpf.c`` has programs of the same name."""


_PREDICATES = {
    "false_pid": ("pid == 1, false", "/pid == 1/ { @ = count(); }"),
    "false_comm": ("comm == \"x\", false", '/comm == "x"/ { @ = count(); }'),
    "false_both": ("two conditions, false", '/pid == 1 && comm == "x"/ { @[comm, pid] = hist(nsecs); }'),
}

ROWS = [
    *(
        Row(f"events.{name}", title, added_by(body, GOAL, by_hand=name if name in BY_HAND else ""))
        for name, (title, body) in _BODIES.items()
    ),
    Row("events.str", "count() by str()", added_by("@[str(args->uname)] = count();", GOAL, NAMED)),
    Row("events.str_64", "count() by str() of 64 bytes", added_by("@[str(args->uname, 64)] = count();", GOAL, NAMED)),
    Row("events.pair", "entry and return, start[tid], hist()", _pair),
    Row("events.call", "the same, syscall: and duration (bpftrace: the pair)", _call),
    Row("events.printf", "printf of 3 fields", added_by('printf("%s %d %lu\\n", comm, pid, nsecs);', GOAL, PRINTED)),
    *(
        Row(f"predicates.{name}", title, added_by(body, GOAL_OF_PREDICATES))
        for name, (title, body) in _PREDICATES.items()
    ),
]
