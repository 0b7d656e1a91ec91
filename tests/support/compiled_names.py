"""Names of functions that were compiled at run time, as tests ask for them."""

from __future__ import annotations

from pytrace.runtime.stacks.compiled_code import JitDump, PerfMap


def last(names: JitDump | PerfMap, address: int) -> tuple[str, int] | None:
    """The last function at an address, and how far into it that is."""
    found = names.find(address)
    assert len(found) < 2
    return found[0] if found else None
