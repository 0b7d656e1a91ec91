"""Builtins that change the system."""

from __future__ import annotations

import pytest

from pytrace.codegen.lower.control_family import WRITE_MOST
from tests.codegen.running import machine, ran
from tests.support.bpf_machine import Machine


@pytest.mark.parametrize(
    ("call", "number"), [("signal(9)", 109), ('signal("KILL")', 109), ("signal_thread(pid - 4312)", 117)]
)
def test_signals(call: str, number: int) -> None:
    assert (number, 9) in [(helper, given[0]) for helper, given in ran(f"kprobe:vfs_read {{ {call}; }}").calls]


def test_results_are_replaced() -> None:
    (given,) = [given for number, given in ran("kprobe:vfs_read { override(pid); }").calls if number == 58]
    assert given[1] == 4321


def writing(arguments: str, source: bytes = bytes(16)) -> tuple[Machine, bytes]:
    found = machine(f"kprobe:vfs_read {{ print(write_user(arg0, {arguments})); }}")
    target = found.region(b"." * 16)
    context = bytearray(168)
    context[112:120], context[104:112] = target.to_bytes(8, "little"), found.region(source).to_bytes(8, "little")
    found.run(context=bytes(context))
    return found, found.read(target, 16)


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ("kptr(arg1), 4", b"abcd............"),
        ('"xyz", 3', b"xyz............."),
        ('"xyz", 100', b"xyz\0............"),
        ("kptr(arg1), 0", b"." * 16),
    ],
)
def test_user_memory_is_changed(arguments: str, written: bytes) -> None:
    found, after = writing(arguments, b"abcdefgh" + bytes(8))
    assert (found.printed(), after) == ([True], written)


def test_one_call_moves_so_many_bytes() -> None:
    found, _ = writing(f"kptr(arg1), {WRITE_MOST + 5}", bytes(WRITE_MOST + 5))
    assert found.printed()[-1] is False, "the target is shorter"
    assert [given[2] for number, given in found.calls if number == 36] == [WRITE_MOST]
