"""What the code generator makes of a fixed set of scripts does not grow unnoticed."""

from __future__ import annotations

import pytest

from tests.support import costs


def test_programs_are_not_larger_than_recorded() -> None:
    part = costs.llvm()
    if not costs.recorded(part):
        pytest.skip(f"nothing is recorded of programs {part}")
    costs.check(part, costs.of_all_programs())


def test_growth_and_savings_are_told() -> None:
    expected = {"a": {"instructions": 10, "stack": 32}, "b": {"instructions": 100}}
    found = {"a": {"instructions": 11, "stack": 31}, "b": {"instructions": 101}, "c": {"instructions": 1}}
    grown, shrunk = costs.changes(found, expected)
    assert grown == [
        "a: instructions grew from 10 to 11",
        "b: instructions grew from 100 to 101",
        "c: instructions grew from 0 to 1",
    ]
    assert shrunk == ["a: stack fell from 32 to 31"]
    assert costs.changes(found, expected, 0.02)[0] == [grown[0], grown[2]]


def test_instructions_are_counted_as_they_are() -> None:
    """An empty program is `r0 = 0; exit`, and one more helper call is one more."""
    assert costs.costs(costs.compiled("empty")) == {"instructions": 2, "stack": 32, "helper calls": 0}
    pid, both = costs.costs(costs.compiled("count by pid")), costs.costs(costs.compiled("sum by pid and comm"))
    assert both["helper calls"] > pid["helper calls"] > 0
    assert both["instructions"] > pid["instructions"]


def test_executed_instructions_are_those_of_the_path() -> None:
    false, empty = costs.compiled("two conditions"), costs.compiled("empty")
    assert costs.executed(empty) == 2
    assert 2 < costs.executed(false) < costs.costs(false)["instructions"] / 4
