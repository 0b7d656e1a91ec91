"""Functions of the script and of C."""

from __future__ import annotations

import pytest

from tests.codegen.running import ran


@pytest.mark.parametrize(
    ("function", "call", "wanted"),
    [
        ("fn f($a: int64): int64 { return $a * 2; }", "f(21)", 42),
        ("fn f($a: int64): int64 { $a + 1 }", "f(1)", 2),
        ("fn f($a: uint8, $b: int64): int64 { return $b - $a; }", "f((uint8)255, 5)", -250),
        ("fn f($a: int64): uint8 { return (uint8)$a; }", "f(300)", 44),
        ("fn f($a: int64): bool { return $a > 1; }", "f(5)", True),
        ("fn g($a: int64): int64 { return $a + 1; } fn f($a: int64): int64 { return g($a) * g($a + 1); }", "f(1)", 6),
        ("fn f(): int64 { @c++; return (int64)@c; }", "f() + f() * 10", 21),
    ],
)
def test_values(function: str, call: str, wanted: object) -> None:
    assert ran(f"{function} begin {{ print({call}); }}").printed() == [wanted]


def test_memory_of_a_function_is_its_own() -> None:
    script = """fn f($a: int64): int64 { $s = ("inner", $a); @[$s] = 1; return $a; }
    begin { $s = ("outer", f(1), f(2)); print($s); @k[f(3), "x", f(4)] = 1; }"""
    found = ran(script)
    assert found.printed() == [(b"outer", 1, 2)]
    assert found.entries("@") == {(b"inner", at): 1 for at in range(1, 5)}
    assert found.entries("@k") == {(3, b"x", 4): 1}


def test_functions_without_a_result() -> None:
    assert ran("fn f($a: int64) { print($a); } begin { f(5); f(6); }").printed() == [5, 6]
