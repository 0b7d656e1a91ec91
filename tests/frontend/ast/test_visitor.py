"""Traversal, rewriting, copying and comparison of ASTs."""

from __future__ import annotations

import sys

from msgspec.structs import replace

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source, Span
from pytrace.frontend.syntax import nodes, parser
from pytrace.frontend.syntax.nodes import RECURSION_LIMIT, run_deep

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


def test_children_are_in_source_order() -> None:
    node = parser.parse_expression(Source("t", "f(1, $b, @c[2])"), Diagnostics())
    assert node is not None
    assert [child.span.text for child in nodes.children(node)] == ["1", "$b", "@c[2]"]


def test_copy_is_fresh_and_equal() -> None:
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
    assert nodes.deeper_than(node, 4000) is not None
    assert nodes.deeper_than(node, 6000) is None


SPAN = Span(Source("stdin", "begin"), 0, 5)


def depth(levels: int) -> int:
    return 0 if levels == 0 else 1 + depth(levels - 1)


def test_passes_have_room_while_they_run() -> None:
    before, found = sys.getrecursionlimit(), Diagnostics()
    assert run_deep(lambda: depth(5 * before), -1, found, SPAN) == 5 * before
    assert sys.getrecursionlimit() == before
    assert not found.failed


def test_what_is_too_deep_even_so_is_an_error() -> None:
    before, found = sys.getrecursionlimit(), Diagnostics()
    assert run_deep(lambda: depth(2 * RECURSION_LIMIT), -1, found, SPAN) == -1
    assert [(item.message, item.span) for item in found.errors] == [("the script is nested too deeply", SPAN)]
    assert sys.getrecursionlimit() == before
