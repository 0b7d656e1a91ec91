"""Fields that programs of raw tracepoints read from the arguments."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.codegen.running import machine
from tests.codegen.services.test_system_call_dispatch import Calls
from tests.frontend.attach.test_raw_tracepoints import KERNEL


def printed(body: str) -> list[Any]:
    found = machine(f"t:sched:sched_waking {{ {body} }}", KERNEL)
    (spec,) = found.script.manifest.programs
    assert spec.multi == "raw_tracepoint"
    task = found.region(struct.pack("<ii16si", 1234, 120, b"short\0garbage", -1).ljust(64, b"\0"))
    found.run(spec.symbol, struct.pack("<Q", task))
    return found.printed()


def test_members_and_text() -> None:
    assert printed("print(args.pid); print(args.target_cpu); print(args.comm);") == [1234, -1, b"short"]


def test_the_name_of_the_probe_is_that_of_the_tracepoint() -> None:
    assert printed("print(probe);") == [b"tracepoint:sched:sched_waking"]


@pytest.mark.parametrize(
    ("arguments", "printed"), [((0xFFFFFFFF_FFFFFF9C, 0x1000), (-100, 0x1000)), ((1 << 32 | 5, 2**63), (5, 2**63))]
)
def test_arguments_have_the_width_of_their_types(arguments: tuple[int, int], printed: tuple[int, int]) -> None:
    """The upper half of a register is not part of an ``int``."""
    calls = Calls("t:syscalls:sys_enter_openat { print(args.dfd); print((uint64)args.filename); }")
    signed = tuple(value - (1 << 64) if value >= 1 << 63 else value for value in arguments)
    assert calls.enter(257, *signed) == list(printed)


def test_fields_in_the_body_of_a_loop() -> None:
    calls = Calls("t:syscalls:sys_enter_openat { for ($i : 0..2) { print(args.dfd + $i); } }")
    assert calls.enter(257, 10) == [10, 11]


def test_results_are_64_bits_wide() -> None:
    calls = Calls("t:syscalls:sys_exit_openat { print(args.ret); }")
    assert [calls.leave(257, result) for result in (-1, 2**40)] == [[-1], [2**40]]


def test_the_name_of_the_probe_is_that_of_the_call() -> None:
    calls = Calls("t:syscalls:sys_enter_* { print(probe); }")
    found = {number: calls.enter(number) for number in (0, 257, 322, 437)}
    assert found == {
        0: [b"tracepoint:syscalls:sys_enter_read"],
        257: [b"tracepoint:syscalls:sys_enter_openat"],
        322: [b"tracepoint:syscalls:sys_enter_execveat"],
        437: [b"tracepoint:syscalls:sys_enter_openat2"],
    }
