"""Calls of the builder of instructions that mypy has to tell apart: numbers, truth values and addresses.

Nothing runs this. ``scripts/check`` fails where mypy takes a wrong one (an ignored error that is none) or refuses a
right one.
"""

from __future__ import annotations

from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block, Builder
from pytrace.codegen.ir.values import I64, Ptr


def right(b: Builder, n: I64, p: Ptr, block: Block) -> None:
    """Values where they belong."""
    b.branch(b.truth(b.load(p)), block, block)
    b.store(b.number(b.truth(n)), b.offset(p, n))
    b.load(b.helper(helpers.MAP_LOOKUP_ELEM, p, b.offset(p, 8)))
    b.call("f", [p], [n, 1])


def wrong(b: Builder, n: I64, p: Ptr, block: Block) -> None:
    """Values of another kind."""
    b.branch(b.load(p), block, block)  # type: ignore[arg-type]
    b.branch(p, block, block)  # type: ignore[arg-type]
    b.branch("true", block, block)  # type: ignore[arg-type]
    b.load(b.truth(n))  # type: ignore[arg-type]
    b.load(n)  # type: ignore[arg-type]
    b.store(b.truth(n), p)  # type: ignore[arg-type]
    b.store("0", p)  # type: ignore[arg-type]
    b.offset(n, 8)  # type: ignore[arg-type]
    b.offset(p, p)  # type: ignore[arg-type]
    b.add(n, "1")  # type: ignore[arg-type]
    b.number(n)  # type: ignore[arg-type]
    b.select(n, 1, 2)  # type: ignore[arg-type]
    b.icmp("lt", n, 0)  # type: ignore[arg-type]
    b.op("sdiv", n, 2)  # type: ignore[arg-type]
    b.helper(helpers.MAP_LOOKUP_ELEM, p, n)  # type: ignore[arg-type]
    b.helper(helpers.GET_CURRENT_COMM, p)  # type: ignore[call-arg]
    b.load(b.helper(helpers.GET_CURRENT_TASK))  # type: ignore[arg-type]
    b.call("f", [n])  # type: ignore[list-item]
