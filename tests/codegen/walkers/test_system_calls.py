"""System calls: dispatch, and events completed when a call returns (in kernels: tests/cases/unreadable.case)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pytrace.codegen.emit.events import ENTRIES, PLACES, RETURNING
from pytrace.core.manifest import CompiledScript, MapType
from pytrace.core.options import CompileOptions
from pytrace.core.system_calls import ABIS
from tests.codegen.running import compiled, helpers
from tests.frontend.probes.test_tracepoints import EVENTS
from tests.frontend.probes.test_tracepoints import SYSTEM_CALLS_KERNEL as KERNEL
from tests.support.bpf_machine import FAULT, BpfMap, Machine
from tests.support.recorded import Facts

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


def test_blocks_of_several_calls() -> None:
    calls = Calls("t:syscalls:sys_enter_openat, t:syscalls:sys_enter_openat { print(5); }")
    assert calls.enter(257) == [5, 5]
    calls = Calls("t:syscalls:sys_enter_* { print(args.__syscall_nr); }")
    wanted = {257, 437, 0, 59, 322, 1}
    assert {number for number in range(-1, 600) if calls.enter(number) == [number]} == wanted
    assert len(EVENTS) > len(wanted)


# --------------------------------------------------------------------------------------------------------- call returns

NEITHER = Facts(missing=frozenset({"task_work", "call_return"}))
CALL_RETURNS_KERNEL = Facts(missing=frozenset({"task_work"}))
OPENS = "tracepoint:syscalls:sys_enter_openat"
READ_USER_STRING = 114
ADDRESS = 0x7000
COMPLETES = "complete_events"
MM = 32
"""Offset of ``mm`` in the task of the recorded kernel."""


class Cold(Machine):
    """A machine whose one string is in memory once :attr:`arrived` is set."""

    arrived = False

    def read_string(self, place: int, size: int, address: int, *_rest: int) -> int:
        if not self.arrived or address != ADDRESS:
            return FAULT
        text = b"/cold\0"[:size]
        self.write(place, text)
        return len(text)


def cold(body: str, **state: Any) -> Cold:
    task = bytearray(4096)
    task[MM] = 1
    script = compiled(f"{OPENS} {{ {body} }}", CALL_RETURNS_KERNEL)
    found = Cold(script, task=bytes(task), **state)
    found.helpers[READ_USER_STRING] = found.read_string
    for name, address in found.names.items():
        if name.startswith(RETURNING):
            found.maps[address] = BpfMap(MapType.HASH, 8, int(name.removeprefix(RETURNING)), ENTRIES)
    return found


RECORD = bytes(16) + struct.pack("<QQ", 0, ADDRESS) + bytes(64)


def programs(script: CompiledScript) -> list[str]:
    return [spec.targets[0].probe for spec in script.manifest.programs if spec.service]


def test_an_event_is_completed_when_its_call_returns() -> None:
    found = cold('printf("%s %d", str(uptr(args.filename)), args.dfd);')
    found.run("", RECORD)
    assert (found.events, found.counts()["unfinished"]) == ([], 1)
    found.arrived = True
    found.run(COMPLETES)
    assert [arguments for _, arguments in found.values()] == [[b"/cold", 0]]
    assert found.counts()["unfinished"] == 0
    found.run(COMPLETES)
    assert len(found.events) == 1


def test_what_is_in_memory_is_sent_at_once_and_its_return_looks_for_nothing() -> None:
    found = cold('printf("%s", str(uptr(args.filename)));')
    found.arrived = True
    found.run("", RECORD)
    assert found.printed() == [b"/cold"]
    found.calls.clear()
    found.run(COMPLETES)
    assert found.calls == []


def test_another_task_returns() -> None:
    found = cold('printf("%s", str(uptr(args.filename)));')
    found.run("", RECORD)
    found.arrived = True
    mine, found.current = found.current, found.region(4096)
    found.run(COMPLETES)
    assert found.events == []
    found.current = mine
    found.run(COMPLETES)
    assert found.printed() == [b"/cold"]


def test_each_place_has_an_event_of_a_call() -> None:
    found = cold('printf("%s 1", str(uptr(args.filename))); printf("%s 2", str(uptr(args.filename)));')
    found.run("", RECORD)
    assert found.counts()["unfinished"] == 2
    found.arrived = True
    found.run(COMPLETES)
    assert found.printed() == [b"/cold", b"/cold"]


def test_a_second_event_of_a_place_is_sent_as_it_is() -> None:
    found = cold('for ($i : 0..2) { printf("%s", str(uptr(args.filename))); }')
    found.run("", RECORD)
    assert (found.printed(), found.counts()["unfinished"]) == ([b""], 1)
    found.arrived = True
    found.run(COMPLETES)
    assert found.printed() == [b"", b"/cold"]


def test_memory_that_exec_replaced_is_not_read() -> None:
    found = cold('printf("%s", str(uptr(args.filename)));')
    found.run("", RECORD)
    found.arrived = True
    found.write(found.current + MM, struct.pack("<Q", 2))
    found.run(COMPLETES)
    assert (found.printed(), found.counts()["unfinished"]) == ([b""], 0)


@pytest.mark.parametrize(
    ("script", "kernel"),
    [
        (f'{OPENS} {{ printf("%s", str(uptr(args.filename))); }}', NEITHER),
        (f"{OPENS} {{ @[str(uptr(args.filename))] = jiffies; }}", CALL_RETURNS_KERNEL),
        (f'{OPENS} {{ printf("%s", comm); }}', CALL_RETURNS_KERNEL),
        ('tracepoint:sched:sched_switch { printf("%s", str(uptr(8))); }', CALL_RETURNS_KERNEL),
        ('kprobe:vfs_read { printf("%s", str(uptr(arg0))); }', CALL_RETURNS_KERNEL),
    ],
)
def test_scripts_without_such_events_have_no_program(script: str, kernel: Facts) -> None:
    assert programs(compiled(script, kernel)) == []


def test_files_that_run_elsewhere_have_no_program() -> None:
    script = f'{OPENS} {{ printf("%s", str(uptr(args.filename))); }}'
    assert programs(compiled(script, CALL_RETURNS_KERNEL)) == ["rawtracepoint:sys_exit"]
    assert programs(compiled(script, CALL_RETURNS_KERNEL, CompileOptions(ahead=True))) == []


NAMED = "str(uptr(args.filename))"


def test_a_body_runs_when_its_call_returns() -> None:
    found = cold(f'$f = {NAMED}; if ($f == "/cold") {{ print((1, args.dfd)); }} @n++; printf("%d", args.dfd);')
    found.run("", struct.pack("<QQqQ", 0, 0, 7, ADDRESS) + bytes(64))
    assert (found.events, found.counts()["unfinished"]) == ([], 1)
    found.arrived = True
    found.run(COMPLETES)
    assert [arguments for _, arguments in found.values()] == [[(1, 7)], [7]]
    assert found.counts()["unfinished"] == 0
    found.run(COMPLETES)
    assert len(found.events) == 2


def test_a_body_of_which_nothing_can_be_kept_runs_at_once() -> None:
    found = cold(f'if ({NAMED} == "/cold") {{ print(1); }} else {{ print(2); }}')
    for address in found.maps:
        found.maps[address] = BpfMap(MapType.HASH, 8, found.maps[address].value_size, 0)
    found.run("", RECORD)
    assert [arguments for _, arguments in found.values()] == [[2]]


def test_unreadable_keys_are_counted() -> None:
    found = cold(f"@[{NAMED}] = jiffies;")
    found.run("", RECORD)
    assert found.counts()["unreadable"] == 1


def test_a_body_beyond_the_last_place_keeps_its_place() -> None:
    """Its key would be that of another task: tasks are 64 bytes apart at least."""
    body = f'if ({NAMED} == "/cold") {{ print((1, args.dfd)); }}'
    found = cold(f"{body} }} " + f"{OPENS} {{ {body} }} " * (PLACES + 5) + f"{OPENS} {{ @n++;")
    for spec in found.script.manifest.programs:
        if not spec.service:
            found.run(spec.symbol, RECORD)
    keys = [int.from_bytes(key, "little") for map_ in found.maps.values() for key, _ in map_.entries]
    assert sorted(key - found.current for key in keys if key >= found.current) == list(range(PLACES))
    assert found.counts()["unfinished"] == PLACES
    found.arrived = True
    found.run(COMPLETES)
    assert (len(found.events), found.counts()["unfinished"]) == (PLACES, 0)
