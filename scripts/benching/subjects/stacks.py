"""Stacks as keys, shallow and deep."""

from __future__ import annotations

from benching.loops import Loop, Probed, added_by
from benching.rows import Row

GOAL = 0.7
DEPTHS = (3, 30, 100)
DEEP = Probed("tracepoint:kmem:kmem_cache_alloc", Loop("open", calls=50, chunks=600))
"""Allocations of open(): a dozen frames, more than once a call."""


def _user(depth: int) -> Probed:
    return Probed(loop=Loop(depth=depth, calls=100, chunks=500))


ROWS = [
    Row("stacks.kernel.3", "count() by kstack, a system call's", added_by("@[kstack] = count();", GOAL)),
    Row("stacks.kernel.deep", "count() by kstack, open()'s allocations", added_by("@[kstack] = count();", GOAL, DEEP)),
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
]
