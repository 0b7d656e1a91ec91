"""Walks over trees, and the side tables of a checked program."""

from __future__ import annotations

import inspect
import sys

import pytest
from msgspec.structs import replace

from pytrace.core.diagnostics import Diagnostics, InternalError
from pytrace.core.event_layout import Exit, HelperFailure, NoStaticPart, RuntimeFailure
from pytrace.core.source import ExpandedSpan, Source, Span
from pytrace.frontend.check.checker import user_span
from pytrace.frontend.expand import parameters
from pytrace.frontend.syntax import nodes, parser, typed_program
from pytrace.frontend.syntax.nodes import RECURSION_LIMIT, run_deep
from pytrace.frontend.syntax.typed_program import (
    LIBRARY_PREFIX,
    ArgumentIndex,
    CheckedProgram,
    Clock,
    Fact,
    locate,
    location,
)
from tests.support.rows import each_row

TEXT = """config = { a = 1 }
macro m($v, x) { x + 1 }
kprobe:f /a > b/ { let $x: int8[4] = (int8[4])@m[1, "s"]; if (c) { f(struct x, 2) } else { } for $i : 0..3 { } }
"""


def parse(text: str) -> nodes.Program:
    return parser.parse(Source("t", text), Diagnostics())


def test_walk_visits_every_node_once_parents_first() -> None:
    program = parse(TEXT)
    found = list(nodes.walk(program))
    assert found[0] is program
    assert len({id(node) for node in found}) == len(found)
    seen = {id(program)}
    for node in found:
        assert id(node) in seen
        seen.update(id(child) for child in nodes.children(node))
    kinds = {type(node) for node in found}
    assert {
        nodes.Range,
        nodes.StructTypeExpr,
        nodes.IntLiteral,
        nodes.AttachPoint,
        nodes.ConfigEntry,
        nodes.Identifier,
    } <= kinds


def test_children_and_copies() -> None:
    node = parser.parse_expression(Source("t", "f(1, $b, @c[2])"), Diagnostics())
    assert node is not None
    assert [child.span.text for child in nodes.children(node)] == ["1", "$b", "@c[2]"]
    program = parse(TEXT)
    twin = nodes.copy(program)
    assert nodes.same(program, twin)
    assert not {id(node) for node in nodes.walk(program)} & {id(node) for node in nodes.walk(twin)}
    assert [node.span for node in nodes.walk(program)] == [node.span for node in nodes.walk(twin)]


def test_rebuild_shares_what_did_not_change() -> None:
    program = parse("begin { print(1); print($a); }")
    assert nodes.rebuild(program, lambda node: node) is program

    def rename(node: nodes.Node) -> nodes.Node:
        return replace(node, name="b") if isinstance(node, nodes.Variable) else node

    changed = nodes.rebuild(program, rename)
    assert isinstance(changed, nodes.Program)
    assert [node.name for node in nodes.walk(changed) if isinstance(node, nodes.Variable)] == ["b"]
    old, new = program.probes[0].body, changed.probes[0].body
    assert old.statements[0] is new.statements[0]
    assert old.statements[1] is not new.statements[1]
    assert [node.name for node in nodes.walk(program) if isinstance(node, nodes.Variable)] == ["a"]


def test_rebuild_goes_from_the_leaves_up() -> None:
    order: list[str] = []
    node = parser.parse_expression(Source("t", "a + b * c"), Diagnostics())
    assert node is not None
    nodes.rebuild(node, lambda found: order.append(found.span.text) or found)  # type: ignore[func-returns-value]
    assert order == ["a", "b", "c", "b * c", "a + b * c"]


def test_same() -> None:
    assert nodes.same(parse("k:f < $a = 1 >"), parse("k:f { $a  =  1 }"))
    assert nodes.same(parse("k:f { args->x }"), parse("k:f { args.x }"))
    assert not nodes.same(parse("k:f { $a = 1 }"), parse("k:f { $a = 2 }"))
    assert not nodes.same(parse("k:f { 1; }"), parse("k:f { 1 }"))
    assert not nodes.same(parse("k:f { f(1) }"), parse("k:f { f(1, 2) }"))


def test_deep_trees() -> None:
    node = parser.parse_expression(Source("t", "1" + " + 1" * 5000), Diagnostics())
    assert node is not None
    assert sum(1 for _ in nodes.walk(nodes.copy(node))) == 10001
    assert parser.deeper_than(node, 4000) is not None
    assert parser.deeper_than(node, 6000) is None


SPAN = Span(Source("stdin", "begin"), 0, 5)


def depth(levels: int) -> int:
    return 0 if levels == 0 else 1 + depth(levels - 1)


def test_room_of_passes() -> None:
    before, found = sys.getrecursionlimit(), Diagnostics()
    assert run_deep(lambda: depth(5 * before), -1, found, SPAN) == 5 * before
    assert sys.getrecursionlimit() == before
    assert not found.failed
    before, found = sys.getrecursionlimit(), Diagnostics()
    assert run_deep(lambda: depth(2 * RECURSION_LIMIT), -1, found, SPAN) == -1
    assert [(item.message, item.span) for item in found.errors] == [("the script is nested too deeply", SPAN)]
    assert sys.getrecursionlimit() == before


# ------------------------------------------------------------------------------------------------------------- literals


@each_row(
    ("text", "value"),
    [
        ("3 > 2", True),
        ("-3 > 2", False),
        ('"a" == "b"', False),
        ('"a" != "b"', True),
        ("!true", False),
        ("!0", True),
        ("pid && false", False),
        ("false && pid", False),
        ("pid || 1", True),
        ("true && pid", None),
        ("1 < pid", None),
        ('"a" && false', False),
        ('"a" || false', None),
        ('!"a"', None),
        ("true == 1", True),
        ("2 + 1", None),
    ],
)
def test_values(text: str, value: object) -> None:
    diagnostics = Diagnostics()
    found = nodes.literal_value(parser.parse_expression(Source("x", text), diagnostics))
    assert not diagnostics.items
    assert (type(found), found) == (type(value), value)
    assert parameters.is_false_literal(parser.parse_expression(Source("x", text), diagnostics)) == (value is False)


def test_texts_are_not_false() -> None:
    assert not parameters.is_false_literal(parser.parse_expression(Source("x", '""'), Diagnostics()))
    assert parameters.is_false_literal(parser.parse_expression(Source("x", "0"), Diagnostics()))
    assert not parameters.is_false_literal(None)


# -------------------------------------------------------------------------------------------------------- typed program

SOURCE = Source("x.bt", "begin {\n  exit(); }")
CALL = Span(SOURCE, 10, 16)
LIBRARY = Source(f"{LIBRARY_PREFIX}assert.bt", "macro m() { }")


def node(span: Span = CALL) -> nodes.Call:
    return nodes.Call(span, "exit", ())


def test_facts_are_of_the_class_that_is_asked_for() -> None:
    program, call = CheckedProgram(), node()
    program.facts[call] = ArgumentIndex(3)
    assert program.fact(call, ArgumentIndex) == program.find_fact(call, ArgumentIndex) == ArgumentIndex(3)
    assert program.find_fact(call, Clock) is program.find_fact(node(), Clock) is None
    with pytest.raises(InternalError, match=r"expected Clock for Call, found ArgumentIndex\(index=3\)"):
        program.fact(call, Clock)
    with pytest.raises(InternalError, match="expected Clock for Call, found None"):
        program.fact(node(), Clock)


def test_events_are_numbered_and_amended() -> None:
    program = CheckedProgram()
    found = [program.send(node(), "exit", (), Exit(True)) for _ in range(3)]
    assert [item.id for item in found] == [0, 1, 2]
    assert program.event_list == found
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


def test_every_fact_says_what_it_belongs_to() -> None:
    kinds = [item for item in vars(typed_program).values() if inspect.isclass(item) and issubclass(item, Fact)]
    assert len(kinds) > 15
    assert all(kind.__doc__ for kind in kinds)
