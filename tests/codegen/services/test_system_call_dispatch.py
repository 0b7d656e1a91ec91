"""The program of a raw tracepoint calls the code of the units that want the system call, and of no others."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pytrace.core.system_calls import ABIS
from tests.codegen.running import compiled, helpers
from tests.frontend.attach.test_system_calls import EVENTS, KERNEL
from tests.support.bpf_machine import Machine

GET_CURRENT_TASK_BTF = 158
COMPAT = 2


@dataclass
class Calls:
    """A script's programs of raw tracepoints, run for system calls."""

    text: str
    arch: str = "x86_64"

    def __post_init__(self) -> None:
        self.machine = Machine(compiled(self.text, replace(KERNEL, arch=self.arch)))
        self.abi = ABIS[self.arch]

    def enter(self, number: int, *arguments: int, compat: bool = False) -> list[Any]:
        """The texts that the system call prints at its entry."""
        return self._run("enter", number, number, arguments, compat)

    def leave(self, number: int, result: int, *, compat: bool = False) -> list[Any]:
        """The texts that it prints at its exit."""
        return self._run("exit", number, result, (), compat)

    def _run(self, way: str, number: int, second: int, arguments: tuple[int, ...], compat: bool) -> list[Any]:
        registers = bytearray(400)
        struct.pack_into("<i", registers, self.abi.number, number)
        for value, offset in zip(arguments, self.abi.arguments, strict=False):
            struct.pack_into("<q", registers, offset, value)
        place = self.machine.region(bytes(registers))
        flags = self.abi.compat[1] if compat else 0
        self.machine.write(self.machine.current, struct.pack("<QQI", flags if self.arch == "aarch64" else 0, 0, flags))
        owner = next(
            spec.symbol
            for spec in self.machine.script.manifest.programs
            if not spec.part_of and spec.multi and f"sys_{way}_" in spec.targets[0].probe
        )
        before = len(self.machine.events)
        self.machine.run(owner, struct.pack("<Qq", place, second))
        return self.machine.printed()[before:]


BOTH = """
t:syscalls:sys_enter_openat { print(args.dfd); }
t:syscalls:sys_enter_read, t:syscalls:sys_enter_openat { print(probe); }
t:syscalls:sys_exit_openat { print(args.ret); print(args.__syscall_nr); }
"""


def test_units_of_a_call_run_in_the_order_of_the_script() -> None:
    calls = Calls(BOTH)
    assert calls.enter(257, -100) == [-100, b"tracepoint:syscalls:sys_enter_openat"]
    assert calls.enter(0) == [b"tracepoint:syscalls:sys_enter_read"]
    assert calls.leave(257, -2) == [-2, 257]


@pytest.mark.parametrize("number", [1, 256, 258, -1, 257 | 1 << 30, 257 | 1 << 32])
def test_other_calls_leave_at_once(number: int) -> None:
    calls = Calls(BOTH)
    if -(1 << 31) <= number < 1 << 31:
        assert calls.enter(number) == []
    assert helpers(calls.machine) == []
    assert calls.machine.steps <= 10


@pytest.mark.parametrize("arch", ABIS)
def test_32_bit_calls_are_left_out(arch: str) -> None:
    number = {"x86_64": 257, "aarch64": 56}[arch]
    calls = Calls(BOTH, arch)
    assert calls.enter(number, 7) == [7, b"tracepoint:syscalls:sys_enter_openat"]
    assert calls.enter(number, 7, compat=True) == []
    assert calls.leave(number, 3) == [3, number]
    assert calls.leave(number, 3, compat=True) == []


def test_the_first_test_is_the_number() -> None:
    calls = Calls("t:syscalls:sys_enter_openat /pid == 1/ { @ = count(); }")
    calls.enter(0)
    assert calls.machine.steps == 4
    calls.enter(257)
    assert helpers(calls.machine)[0] == GET_CURRENT_TASK_BTF


def test_a_block_that_names_a_call_twice_runs_twice() -> None:
    calls = Calls("t:syscalls:sys_enter_openat, t:syscalls:sys_enter_openat { print(5); }")
    assert calls.enter(257) == [5, 5]


def test_many_calls_with_one_body() -> None:
    calls = Calls("t:syscalls:sys_enter_* { print(args.__syscall_nr); }")
    wanted = {257, 437, 0, 59, 322, 1}
    assert {number for number in range(-1, 600) if calls.enter(number) == [number]} == wanted
    assert len(EVENTS) > len(wanted)
