"""Slots during type inference: accepted types, locks, first assignments."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from pytrace.core.source import Source, Span
from pytrace.core.types import INT8, INT16, INT32, INT64, UINT8, UINT64, Count, Pointer, String, Struct, Type
from pytrace.frontend.check.checker import SETTLE_AFTER, MapState, Slot, flexible_string
from pytrace.frontend.check.conversions import UNKNOWN, literal
from pytrace.frontend.syntax import nodes
from tests.frontend.checking import refusals, warnings
from tests.support.front import analyse

HERE, THERE = (Span(Source("stdin", "@a @b"), at, at + 2) for at in (0, 3))
TASK = Struct("struct", "task_struct", 8, (), origin="vmlinux", alignment=8)


def slot(*types: Type, **state: Type) -> Slot:
    found = Slot(**state)
    assert all(found.takes(type_, HERE) for type_ in types)
    return found


def test_types_join_within_a_pass() -> None:
    assert slot(INT8, INT32).type == INT32
    assert slot(literal(1), UINT64).type == UINT64
    assert slot(String(3), String(9)).type == String(9)
    assert not slot(INT8).takes(String(3), HERE)


def test_a_declared_type_stays() -> None:
    found = slot(INT8, fixed=INT16)
    assert found.type == INT16
    assert not found.takes(INT64, HERE)
    assert not found.takes(literal(40000), HERE)


def test_a_pass_collects_anew() -> None:
    found = slot(INT32)
    assert found.begin(2)
    assert (found.known, found.inferred, found.changed) == (INT32, UNKNOWN, 2)
    found.takes(INT32, HERE)
    assert not found.begin(3)
    found.takes(INT8, HERE)
    assert found.begin(4)
    assert found.known == INT8


def test_types_only_grow_in_the_end() -> None:
    found = slot(INT32, known=INT64)
    assert not found.begin(SETTLE_AFTER + 1)
    assert found.known == INT64


def test_what_a_question_relied_on_may_not_change() -> None:
    found = slot(INT8, known=INT8)
    found.lock_now(HERE)
    assert found.takes(literal(100), THERE)
    assert not found.takes(INT32, THERE)
    assert found.lock == HERE


def test_removed_code_offers_types() -> None:
    found = slot(INT8)
    found.offer(INT32, spare=False)
    found.begin(2)
    assert found.known == INT32
    left_out = Slot()
    left_out.offer(INT16, spare=True)
    left_out.begin(2)
    assert left_out.known == INT16
    taken = slot(String(3))
    taken.offer(INT16, spare=False)
    taken.offer(INT16, spare=True)
    taken.begin(2)
    assert taken.known == String(3)


def test_stored_pointers_are_not_trusted() -> None:
    assert slot(Pointer(TASK, trusted=True)).type == Pointer(TASK)


def test_signs() -> None:
    assert slot(UINT64).mixes_signs(INT8)
    assert not slot(UINT8).mixes_signs(INT64)
    assert Slot(fixed=INT16).other_sign(UINT8)
    assert not Slot(fixed=INT16).other_sign(UINT64)
    assert not Slot(fixed=INT16).other_sign(INT8)


def test_the_first_place_is_remembered() -> None:
    found = slot(INT8)
    found.takes(INT8, THERE)
    assert found.first == HERE


def test_declared_maps_that_nothing_is_stored_in() -> None:
    for kind, value in (("hash", INT64), ("percpuhash", Count())):
        ref = nodes.MapRef(HERE, "@a")
        state = MapState("@a", declaration=nodes.MapDecl(HERE, ref, kind, nodes.IntLiteral(HERE, 5)))
        assert state.incomplete
        state.make_empty()
        for item in state.slots:
            item.begin(2)
        assert (state.keyed, state.key.type, state.value.type, state.incomplete) == (True, INT64, value, False)


def test_names_and_strings() -> None:
    assert nodes.Variable(HERE, "x#3").shown == nodes.Variable(HERE, "x").shown == "x"
    assert flexible_string(String(0))
    assert not flexible_string(String(1))


# fmt: off
REFUSED = [
    ("begin { $x = 1; { let $x = 2; } }", "1:19-25", "$x would hide a variable of an outer block"),
    ("begin { $i = 1; for ($i : 0..5) { } }", "1:22-24", "$i would hide a variable of an outer block"),
    ("begin { let $x = 1; let $x = 2; }", "1:21-27", "$x is already declared"),
    ("begin { for ($i : 0..2) { for ($i : 0..2) { } } }", "1:32-34", "$i would hide a variable of an outer block"),
    ("begin { { $x = 1; } print($x); }", "1:27-29", "undefined variable $x"),
    ("macro m() { $x + 1 } begin { $x = 1; print(m()); }", "1:13-15", "undefined variable $x"),
]
WARNED = [
    ("begin { let $x; }", "1:9-15", "$x is never assigned"),
]
# fmt: on

test_refused = refusals(REFUSED)
test_warned = warnings(WARNED)


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("begin { if (pid) { $b = 1; } print($b); }", "declare it before the block: let $b;"),
        ("macro m() { $x + 1 } begin { $x = 1; print(m()); }", "a macro sees only its own variables: add $x to its parameters"),
        ("begin { $counter = 1; print($countr); }", "did you mean '$counter'?"),
    ],
)
def test_hints(script: str, hint: str) -> None:
    assert analyse(script).diagnostics.errors[0].hints == (hint,)


def test_a_name_may_be_used_again_after_its_block() -> None:
    script = 'begin { { $x = 1; print($x); } { $x = "text"; print($x); } }'
    types = [str(info.type) for info in analyse(script).checked().variables.values()]
    assert set(types) == {"int8", "string[5]"}
