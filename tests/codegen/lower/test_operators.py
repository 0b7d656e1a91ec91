"""Operators, as a program computes them."""

from __future__ import annotations

import pytest

from tests.codegen.running import printed, ran

VALUES = [
    ("print(pid + 1);", 4322),
    ("print(pid - 5000);", -679),
    ("print(pid * pid);", 18671041),
    ("print(pid / 100);", 43),
    ("print((int32)pid / -100);", -43),
    ("print((int64)0 - pid % 100);", -21),
    ("print(((int64)0 - pid) / 100);", -43),
    ("print(((int64)0 - pid) % 100);", -21),
    ("print((uint64)(0 - pid) / 2);", 9223372036854773647),
    ("print(pid & 15);", 1),
    ("print(pid | 4096);", 4321),
    ("print(pid ^ 1);", 4320),
    ("print(pid << 3);", 34568),
    ("print(pid >> 2);", 1080),
    ("print(((int64)0 - pid) >> 1);", -2161),
    ("print(~pid);", 18446744073709547294),
    ("print(!pid);", False),
    ("print(-pid);", -4321),
    ("print(pid < 5000);", True),
    ("print(((int64)0 - pid) < 5);", True),
    ("print((uint64)(0 - pid) < 5);", False),
    ("print(pid == 4321 && tid == 4322);", True),
    ("print(pid == 1 || tid == 4322);", True),
    ("print(pid == 1 && { @x = 1; true });", False),
    ("$x = (uint8)255; print(++$x);", 256),
    ("let $x: uint8 = 255; print(++$x);", 0),
    ("let $x: int8 = 127; $x++; print($x);", -128),
    ("@x = 5; print(@x++); ", 5),
    ("@x = 5; print(--@x);", 4),
    ("$p = (int32 *)100; $p++; print((uint64)$p);", 104),
    ("$p = (int32 *)100; print((uint64)($p + 3));", 112),
    ("$p = (int32 *)100; print((uint64)($p - 3));", 88),
    ("print(pid > 1 ? 7 : 8);", 7),
    ("print((pid - 4321) ?: 9);", 9),
    ("$x = 10; $x -= pid; print($x);", -4311),
    ("$x = pid; $x <<= 2; print($x);", 17284),
    ("@m[1] = 6; @m[1] *= 7; print(@m[1]);", 42),
]


@pytest.mark.parametrize(("body", "wanted"), VALUES)
def test_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


@pytest.mark.parametrize("operator", ["/", "%"])
@pytest.mark.parametrize("type_", ["int64", "uint64"])
def test_division_by_zero_gives_1_and_is_reported(operator: str, type_: str) -> None:
    found = ran(f"begin {{ $z = ({type_})(pid - 4321); @ = ({type_})pid {operator} $z; }}")
    assert found.slot("@") == 1
    assert [kind for kind, _ in found.values()] == ["runtime_error"]


def test_the_least_number_divided_by_minus_1() -> None:
    assert printed("$x = (int64)pid - 4322; $m = (int64)9223372036854775807 * $x - 1; print($m / $x);") == [-(2**63)]
    assert printed("$x = (int64)pid - 4322; $m = (int64)9223372036854775807 * $x - 1; print($m % $x);") == [0]
