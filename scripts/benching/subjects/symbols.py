"""10,000 different user addresses of a large binary as names, and as source lines."""

from __future__ import annotations

from dataclasses import replace

from benching.rows import Line, Measure, Plan, Row, paired
from benching.subjects.lists import library
from benching.subjects.maps import MEMFD, Filled, chunked

GOAL = 0.5
ADDRESSES = 10_000
MEASURES = (Measure("wall", "s", GOAL), Measure("processor", "s", GOAL), Measure("memory", "MiB"))


def _names(row: Row, plan: Plan) -> list[Line]:
    loop = replace(chunked("addresses", ADDRESSES), preloaded=library())
    script = f"{MEMFD} /(uint64)args->uname != 0/ {{ @[usym((uint64)args->uname)] = count(); }}"
    return paired(row, plan, MEASURES, Filled(script, loop, ADDRESSES // 4).whole_run, runs=plan.of(3))


ROWS = [Row("symbols.names", "10,000 addresses of a large library to names", _names, slow=True)]
