"""Values between registers, memory and other address spaces."""

from __future__ import annotations

import pytest

from tests.codegen.running import machine, printed, ran


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("(int8)(pid - 4321 - 1)", -1), ("(uint8)(pid - 4321 - 1)", 255),
        ("(int16)(pid * 100)", 432100 % 65536 - 65536), ("(uint32)(0 - pid)", 2**32 - 4321), ("(bool)pid", True),
        ("(bool)(pid - 4321)", False), ("(int8)pid", 4321 % 256 - 256),
    ],
)  # fmt: skip
def test_widths(expression: str, wanted: int) -> None:
    assert printed(f"print({expression});") == [wanted]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ('$t = (1, "a"); $t = (1000, "abc"); print($t);', (1000, b"abc")),
        ('$t = ((int64)1, "abc"); $t = ((int8)2, "d"); print($t);', (2, b"d")),
        ("$r = (a=1, b=2000); $r = (b=3, a=400); print($r);", (400, 3)),
        ('@t = (1, "abcdef"); @t = (2, "x"); print((@t.0, @t.1));', (2, b"x")),
        ('$s = "abcdef"; $s = "x"; @s[$s] = 1; @s["x"] = 2; print(len(@s));', 1),
        ("$a = (uint8[4])(uint32)0x04030201; print($a);", (1, 2, 3, 4)),
        ("print((uint32)(uint8[4])(uint32)0x04030201);", 0x04030201),
        ("print((string[2])comm);", b"ta"),
    ],
)
def test_conversions(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


def test_shorter_values_leave_nothing_of_longer_ones() -> None:
    """Equal values have equal bytes: keys are compared so."""
    found = ran('begin { $s = "longer text"; @m[$s] = 1; $s = "lo"; @m[$s] = 2; @m["lo"] = 3; }')
    assert found.entries("@m") == {b"longer text": 1, b"lo": 3}
    found = ran("begin { $t = ((int8)1, (int64)2); @m[$t] = 1; @m[((int8)1, 2)] = 2; }")
    assert found.entries("@m") == {(1, 2): 2}


@pytest.mark.parametrize(("kind", "size"), [("int8", 1), ("uint16", 2), ("int32", 4), ("uint64", 8)])
def test_reads_of_each_width(kind: str, size: int) -> None:
    found = machine(f"kprobe:vfs_read {{ print(*({kind} *)arg0); }}")
    context = bytearray(168)
    context[112:120] = found.region(b"\xfe" * 8).to_bytes(8, "little")
    found.run(context=bytes(context))
    wanted = int.from_bytes(b"\xfe" * size, "little", signed=kind.startswith("int"))
    assert found.printed() == [wanted]


def test_what_cannot_be_read_is_zero() -> None:
    assert printed("print(*(uint64 *)kptr(8)); print(str(kptr(8)));") == [0, b""]


def test_each_address_space_has_its_helpers() -> None:
    for call, number in (("kptr", 113), ("uptr", 112)):
        found = ran(f"begin {{ @ = *(uint64 *){call}(1); }}")
        assert [n for n, _ in found.calls if n in (4, 112, 113)] == [number]


def test_strings_in_full_arrays_have_no_nul() -> None:
    found = machine("begin { print(curtask.comm); }", task=bytes(8) + b"0123456789abcdef" + bytes(208))
    found.run()
    assert found.printed() == [b"0123456789abcdef"]
