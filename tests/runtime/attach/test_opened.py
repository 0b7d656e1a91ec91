"""pytrace.runtime.attach.opened: who owns what was opened, and the order in which it is closed."""

from __future__ import annotations

import pytest

from pytrace.runtime.attach import opened
from pytrace.runtime.attach.opened import Opened


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is closed, in order."""
    order: list[object] = []
    monkeypatch.setattr(opened, "close_all", order.extend)
    monkeypatch.setattr(opened, "close_later", lambda items: order.extend(-item for item in items))
    return order


def filled(first: int, order: list[object]) -> Opened:
    made = Opened([first], [first + 1], [first + 2], traced={f"p{first}": f"program_{first}"})
    made.steps.append(lambda: order.append(f"step {first}"))
    return made


def assert_order(closed: list[object], *expected: object) -> None:
    places = [closed.index(item) for item in expected]
    assert places == sorted(places)


def test_programs_leave_before_their_events_go(closed: list[object]) -> None:
    made = filled(1, closed)
    made.steps.append(lambda: closed.append("last step"))
    made.close()
    assert_order(closed, 1, 2, "last step", "step 1")
    assert -3 in closed, "an idle event may go whenever there is time"
    made.close()
    assert len(closed) == 5, "only once"


def test_taking_over(closed: list[object]) -> None:
    one, other = filled(1, closed), filled(11, closed)
    other.watchpoint(0x1000).links.append(21)
    one.watchpoint(0x1000).links.append(22)
    one.take(other)
    other.close()
    assert closed == []
    assert other == Opened()
    assert one.traced == {"p1": "program_1", "p11": "program_11"}
    assert sorted(one.watchpoint(0x1000).links) == [21, 22]
    one.close()
    assert len(closed) == 10
    for link in (1, 11, 21, 22):
        for event in (2, 12):
            assert_order(closed, link, event, "step 11", "step 1")


def test_watchpoints_go_one_by_one(closed: list[object]) -> None:
    made = Opened()
    for address in (0x10, 0x20):
        made.watchpoint(address).links.append(address)
        made.watchpoint(address).events.append(address + 1)
    made.unwatch(0x10)
    assert set(closed) == {0x10, 0x11}
    made.unwatch(0x10)
    made.unwatch(0x30)
    assert len(closed) == 2
    made.close()
    assert_order(closed, 0x20, 0x21)
    assert len(closed) == 4


def test_a_step_that_fails_leaves_no_descriptor(closed: list[object]) -> None:
    made = filled(1, closed)
    made.steps.append(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        made.close()
    assert set(closed) == {1, 2, -3}
