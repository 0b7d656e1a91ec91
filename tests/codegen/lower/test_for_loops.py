"""The loops of the language."""

from __future__ import annotations

import pytest

from tests.codegen.running import ran


def test_pairs_of_a_map() -> None:
    found = ran('begin { @m["a", 1] = 5; @m["b", 2] = 6; for ($kv : @m) { print($kv); } }')
    assert found.printed() == [((b"a", 1), 5), ((b"b", 2), 6)]


@pytest.mark.parametrize(
    ("call", "value"), [("count()", 2), ("sum(5)", 10), ("max(7)", 7), ("min(7)", 7), ("avg(3)", 3), ("(int8)-1", -1)]
)
def test_values_of_all_kinds(call: str, value: int) -> None:
    found = ran(f"begin {{ @m[1] = {call}; @m[1] = {call}; for ($kv : @m) {{ print($kv.1); }} }}")
    assert found.printed() == [value]


@pytest.mark.parametrize(("body", "rounds"), [("break;", 1), ("continue; @n++;", 3), ("return;", 1)])
def test_jumps(body: str, rounds: int) -> None:
    found = ran(f"begin {{ @m[1] = 1; @m[2] = 2; @m[3] = 3; for ($kv : @m) {{ @r++; if (pid) {{ {body} }} }} }}")
    assert found.slot("@r") == rounds


def test_bounds_are_evaluated_once() -> None:
    found = ran("begin { $n = 3; for ($i : 0..$n) { $n = 10; print($i); } }")
    assert found.printed() == [0, 1, 2]


def test_the_condition_of_a_while_is_evaluated_each_time() -> None:
    assert ran("begin { $n = 0; while ($n++ < 3) { @ = $n; } print($n); }").printed() == [4]


def test_bodies_share_variables_with_what_is_around() -> None:
    assert ran('begin { $s = "a"; @m[1] = 1; for ($kv : @m) { $s = "bc"; } print($s); }').printed() == [b"bc"]
