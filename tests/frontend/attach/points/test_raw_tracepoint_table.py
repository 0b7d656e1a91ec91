"""The table of expressions: each can be read, and names arguments and formulas that are known."""

from __future__ import annotations

import re

from pytrace.frontend.attach.points.raw_tracepoint_table import FORMULAS, STRUCTS, TABLE


def test_expressions() -> None:
    for place, row in TABLE.items():
        for name, sources in row.items():
            for source in sources:
                match = re.fullmatch(r"(?:(\w+)\()?([^()]+)\)?", source)
                assert match is not None, (place, name)
                paths = match[2].split(", ")
                if match[1]:
                    assert len(paths) == len(FORMULAS[match[1]].operands), (place, name)
                for path in paths:
                    root = re.split(r"->|\.", path)[0]
                    assert root in STRUCTS or root == path, (place, name)


def test_a_state_that_a_function_computes_is_not_in_it() -> None:
    assert "prev_state" not in TABLE["sched", "sched_switch"]
