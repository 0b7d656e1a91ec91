"""Tables of the checked program."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import Exit, HelperFailure, NoStaticPart, RuntimeFailure
from pytrace.core.source import ExpandedSpan, Source, Span
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import (
    LIBRARY_PREFIX,
    CheckedProgram,
    Clock,
    Signedness,
    locate,
    location,
    user_span,
)

SOURCE = Source("x.bt", "begin {\n  exit(); }")
CALL = Span(SOURCE, 10, 16)
LIBRARY = Source(f"{LIBRARY_PREFIX}assert.bt", "macro m() { }")


def node(span: Span = CALL) -> nodes.Call:
    return nodes.Call(span, "exit", ())


def test_facts_are_of_the_class_that_is_asked_for() -> None:
    program, call = CheckedProgram(), node()
    program.facts[call] = Clock("boot")
    assert program.fact(call, Clock).name == "boot"
    assert program.find_fact(call, Signedness) is None
    assert program.find_fact(node(), Clock) is None
    for missing in (call, node()):
        with pytest.raises(InternalError):
            program.fact(missing, Signedness)


def test_events_are_numbered_in_their_order() -> None:
    program = CheckedProgram()
    found = [program.send(node(), "exit", (), Exit(True)) for _ in range(3)]
    assert [item.id for item in found] == [0, 1, 2]
    assert program.event_list == found


def test_an_event_may_be_amended() -> None:
    program, call = CheckedProgram(), node()
    program.events[call] = program.send(call, "exit", (), Exit(True))
    program.amend(call, Exit(False))
    assert program.events[call].static == program.event_list[0].static == Exit(False)


def test_one_report_for_each_place_and_failure() -> None:
    program = CheckedProgram()
    first = program.report(node(), RuntimeFailure("array_bounds"))
    assert first is not program.report(node(Span(SOURCE, 0, 5)), RuntimeFailure("array_bounds"))
    assert program.report(node(), HelperFailure("bpf_x")) is not first
    assert [item.kind for item in program.event_list] == ["runtime_error", "runtime_error", "helper_error"]


def test_places() -> None:
    place = location(CALL)
    assert (place.file, place.line, place.column) == ("x.bt", 2, 3)
    outer, chain = locate(ExpandedSpan(SOURCE, 0, 5, CALL))
    assert (outer.line, [item.line for item in chain]) == (1, [2])


def test_what_goes_wrong_in_the_library_went_wrong_at_the_call() -> None:
    inside = ExpandedSpan(LIBRARY, 0, 5, CALL)
    assert user_span(inside) is CALL
    assert user_span(CALL) is CALL
    own = ExpandedSpan(SOURCE, 0, 5, CALL)
    assert user_span(own) is own
    assert NoStaticPart() == NoStaticPart()
