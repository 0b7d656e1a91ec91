"""Events that are completed when their system call returns. tests/cases/unreadable.case runs them in kernels."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pytrace.codegen.emit.events import ENTRIES, PLACES, RETURNING
from pytrace.core.manifest import CompiledScript, MapType
from pytrace.core.options import CompileOptions
from tests.codegen.running import compiled
from tests.support.bpf_machine import FAULT, BpfMap, Machine
from tests.support.recorded import Facts

NEITHER = Facts(missing=frozenset({"task_work", "call_return"}))
KERNEL = Facts(missing=frozenset({"task_work"}))
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
    script = compiled(f"{OPENS} {{ {body} }}", KERNEL)
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
        (f"{OPENS} {{ @[str(uptr(args.filename))] = jiffies; }}", KERNEL),
        (f'{OPENS} {{ printf("%s", comm); }}', KERNEL),
        ('tracepoint:sched:sched_switch { printf("%s", str(uptr(8))); }', KERNEL),
        ('kprobe:vfs_read { printf("%s", str(uptr(arg0))); }', KERNEL),
    ],
)
def test_scripts_without_such_events_have_no_program(script: str, kernel: Facts) -> None:
    assert programs(compiled(script, kernel)) == []


def test_files_that_run_elsewhere_have_no_program() -> None:
    script = f'{OPENS} {{ printf("%s", str(uptr(args.filename))); }}'
    assert programs(compiled(script, KERNEL)) == ["rawtracepoint:sys_exit"]
    assert programs(compiled(script, KERNEL, CompileOptions(ahead=True))) == []


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
