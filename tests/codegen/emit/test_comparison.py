"""Equality of values in memory, of every size."""

from __future__ import annotations

import pytest

from pytrace.codegen.emit.comparison import FOLLOWED_BYTES, UNROLLED
from tests.codegen.running import printed


@pytest.mark.parametrize("length", [1, 7, 8, 9, UNROLLED - 1, UNROLLED, UNROLLED + 1, 3 * UNROLLED, 5 * UNROLLED + 3])
def test_strings_of_all_lengths(length: int) -> None:
    text = "x" * length
    for at in {0, length // 2, length - 1}:
        other = text[:at] + "y" + text[at + 1 :]
        body = f'$a = "{text}"; $b = "{other}"; $c = "{text}"; if (pid == 0) {{ $a = "z"; $b = "z"; $c = "z"; }}'
        assert printed(f"{body} print(($a == $b, $a != $b, $a == $c, $a != $c));") == [(False, True, True, False)]


def test_strings_of_different_capacity() -> None:
    body = '$a = "abc"; $b = "abcdefgh"; $b = comm; if (pid == 0) { $a = "q"; }'
    assert printed(f"{body} print(($a == $b, $b == $a));", comm=b"abc") == [(True, True)]
    assert printed(f"{body} print(($a == $b, $b == $a));", comm=b"abd") == [(False, False)]


def test_what_is_longer_than_the_verifier_follows() -> None:
    size = FOLLOWED_BYTES + 64
    config = f"config = {{ max_strlen = {size} }} "
    from tests.codegen.running import machine

    for changed in (None, 0, FOLLOWED_BYTES, size - 2):
        found = machine(f"{config}kprobe:vfs_read {{ print(str(kptr(arg0)) == str(kptr(arg1))); }}")
        text = bytearray(b"x" * (size - 1) + b"\0")
        other = bytearray(text)
        if changed is not None:
            other[changed] = ord("y")
        # rdi and rsi in struct pt_regs of x86-64.
        registers = bytearray(168)
        registers[112:120] = found.region(text).to_bytes(8, "little")
        registers[104:112] = found.region(other).to_bytes(8, "little")
        found.run(context=bytes(registers))
        assert found.printed() == [changed is None], changed


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("(1, 2)", "(1, 2)", True), ("(1, 2)", "(1, 3)", False), ('(1, "a")', '(1, "a")', True),
        ('(1, "a")', '(1, "b")', False), ('(2, "a")', '(1, "a")', False), ("(1, (2, 3))", "(1, (2, 4))", False),
        ("(1, (2, 3))", "(1, (2, 3))", True), ('("a", "b", 1)', '("a", "c", 1)', False),
        ("(a=1, b=2)", "(b=2, a=1)", True), ("(a=1, b=2)", "(b=1, a=2)", False), ("(true, -1)", "(true, -1)", True),
    ],
)  # fmt: skip
def test_tuples_and_records(one: str, other: str, same: bool) -> None:
    assert printed(f"$a = {one}; $b = {other}; if (pid == 0) {{ $a = $b; }} print($a == $b);") == [same]


def test_arrays() -> None:
    body = "$a = (uint8[4])(uint32)5; $b = (uint8[4])(uint32)pid; print(($a == $b, $a == $a));"
    assert printed(body) == [(False, True)]
