"""System call tracepoints by way of the raw ones: which places, and what their programs consist of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytrace.core.options import Config
from pytrace.core.types import INT8, INT32, INT64, UINT32, AddressSpace, Field, Pointer, String, Struct
from pytrace.frontend.probes import raw_tracepoints
from pytrace.frontend.syntax.typed_program import CallRegister, CallResult, ContextField
from tests.frontend.expanding import Expanded
from tests.support.facts import FEATURES, RecordedKernel, event, tracepoint_field

_TEXT = Pointer(INT8, AddressSpace.USER)
_NUMBER = tracepoint_field("__syscall_nr", INT32, 8)
_ARGUMENTS = (tracepoint_field("dfd", INT32, 16, size=8), tracepoint_field("filename", _TEXT, 24))
ENTRIES = ("openat", "openat2", "read", "execve", "execveat", "made_up")
EVENTS = {
    **{("syscalls", f"sys_enter_{name}"): event(_NUMBER, *_ARGUMENTS) for name in ENTRIES},
    **{("syscalls", f"sys_exit_{name}"): event(_NUMBER, tracepoint_field("ret", INT64, 16)) for name in ENTRIES},
    ("syscalls", "sys_enter_write"): event(
        _NUMBER, *_ARGUMENTS, tracepoint_field("__buf_val", String(0), 32, data_loc=True)
    ),
    ("sched", "sched_switch"): event(tracepoint_field("prev_pid", INT32, 24)),
}
_THREAD = Struct("struct", "thread_info", 24, (Field("flags", INT64, 0), Field("status", UINT32, 16)), origin="vmlinux")
_TASK = Struct("struct", "task_struct", 64, (Field("thread_info", _THREAD, 0),), origin="vmlinux")
_OFFSETS = {"r10": 56, "r9": 64, "di": 112, "orig_ax": 120, "orig_x0": 272, "syscallno": 280}
"""Of both machines, as the tests of the code generator use them too."""


def registers(**offsets: int) -> Struct:
    members = tuple(Field(name, INT64, offset) for name, offset in (_OFFSETS | offsets).items())
    return Struct("struct", "pt_regs", 400, members, origin="vmlinux")


_PLAIN = RecordedKernel()
KERNEL = replace(
    _PLAIN,
    features=FEATURES | {"raw_syscalls"},
    events=EVENTS,
    structs={**_PLAIN.structs, **{("struct", item.name): item for item in (_THREAD, _TASK, registers())}},
)


def ways(
    text: str, kernel: RecordedKernel = KERNEL, mode: str = "auto", **options: object
) -> list[tuple[str, str, int]]:
    """Multi link, owner and number of targets of each unit."""
    found = Expanded(text, kernel, Config(syscall_tracepoints=mode), **options)  # type: ignore[arg-type]
    assert not found.errors
    return [(unit.multi, unit.part_of, len(unit.targets)) for unit in found.units]


def test_one_program_has_all_units_of_a_raw_tracepoint() -> None:
    text = "t:syscalls:sys_enter_openat { } t:syscalls:sys_exit_openat { } t:syscalls:sys_enter_read { }"
    first, leaving, second = Expanded(text, KERNEL).units
    assert (first.multi, first.part_of, first.calls) == ("system_calls", "", (257,))
    assert (leaving.multi, leaving.part_of, leaving.calls) == ("system_calls", "", (257,))
    assert (second.multi, second.part_of, second.calls) == ("system_calls", first.symbol, (0,))


def test_a_pattern_has_one_body_for_each_raw_tracepoint() -> None:
    found = Expanded("t:syscalls:sys_*_openat*, t:sched:sched_switch { @ = count(); }", KERNEL)
    assert [(unit.multi, [target.cookie for target in unit.targets], unit.calls) for unit in found.units] == [
        ("system_calls", [0, 1], (257, 437)),
        ("system_calls", [0, 1], (257, 437)),
        ("", [0], ()),
    ]
    assert found.names == [
        "tracepoint:syscalls:sys_enter_openat", "tracepoint:syscalls:sys_enter_openat2",
        "tracepoint:syscalls:sys_exit_openat", "tracepoint:syscalls:sys_exit_openat2", "tracepoint:sched:sched_switch",
    ]  # fmt: skip


def test_fields_are_read_from_registers() -> None:
    enter, leave = Expanded(
        "t:syscalls:sys_enter_openat { print(args); } t:syscalls:sys_exit_openat { print(args); }", KERNEL
    ).units
    assert [(item.name, item.type, item.place) for item in enter.context.arguments] == [
        ("__syscall_nr", INT32, CallRegister(120, 4, True)),
        ("dfd", INT32, CallRegister(112)),
        ("filename", _TEXT, CallRegister(104)),
    ]
    assert [item.place for item in leave.context.arguments] == [CallRegister(120, 4, True), CallResult()]


def test_a_call_without_number_is_traced_as_before() -> None:
    text = "t:syscalls:sys_enter_openat, t:syscalls:sys_enter_made_up { print(args.dfd); }"
    raw, plain = Expanded(text, KERNEL).units
    assert (raw.multi, raw.calls) == ("system_calls", (257,))
    assert (plain.multi, plain.calls) == ("", ())
    assert plain.context.arguments[1].place == ContextField(16)


@pytest.mark.parametrize("body", ["print(kstack);", "@[kstack(3)] = count();", "f();", "kernel_function(1);"])
def test_bodies_that_would_mean_something_else(body: str) -> None:
    text = f"fn f() : void {{ print(kstack); }} t:syscalls:sys_enter_openat {{ {body} }}"
    assert ways(text) == [("", "", 1)]


def test_all_bodies_of_a_place_go_the_same_way() -> None:
    """So that they run in the order of the script."""
    text = "t:syscalls:sys_enter_openat, t:syscalls:sys_enter_read { } t:syscalls:sys_enter_openat { print(kstack); }"
    assert ways(text) == [("", "", 1), ("system_calls", "", 1), ("", "", 1)]


def test_only_fields_that_are_in_registers() -> None:
    assert ways("t:syscalls:sys_enter_write { print(args.dfd); }") == [("system_calls", "", 1)]
    assert ways("t:syscalls:sys_enter_write { print(args.__buf_val); }") == [("", "", 1)]
    assert ways("t:syscalls:sys_enter_write { print(args); }") == [("", "", 1)]


def test_rare_calls_have_plain_tracepoints() -> None:
    text = "t:syscalls:sys_enter_execve { } t:syscalls:sys_exit_execve { } t:syscalls:sys_exit_read { }"
    assert [multi for multi, _, _ in ways(text)] == ["", "system_calls", "system_calls"]
    assert [multi for multi, _, _ in ways(text, mode="raw")] == ["system_calls"] * 3


def test_many_rare_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "t:syscalls:sys_enter_execve* { }"
    assert ways(text) == [("", "", 2)]
    monkeypatch.setattr(raw_tracepoints, "FEW", 1)
    assert ways(text) == [("system_calls", "", 2)]


@pytest.mark.parametrize(
    "other",
    [
        {"mode": "plain"},
        {"ahead": True},
        {"disabled": frozenset({"raw_syscalls"})},
        {"kernel": replace(KERNEL, features=FEATURES)},
        {"kernel": replace(KERNEL, has_btf=False)},
        {"kernel": replace(KERNEL, arch="s390x")},
        {"kernel": replace(KERNEL, structs=_PLAIN.structs)},
        {"kernel": replace(KERNEL, structs={**KERNEL.structs, ("struct", "pt_regs"): registers(orig_ax=128)})},
    ],
)
def test_where_plain_ones_are_used(other: dict[str, object]) -> None:
    assert ways("t:syscalls:sys_enter_openat { }", **other) == [("", "", 1)]  # type: ignore[arg-type]


def test_programs_that_the_verifier_could_not_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "t:syscalls:sys_enter_openat { } t:syscalls:sys_enter_read { print(1); } t:syscalls:sys_exit_read { }"
    monkeypatch.setattr(raw_tracepoints, "MOST_BODIES", 1)
    assert [multi for multi, _, _ in ways(text)] == ["", "", "system_calls"]
    monkeypatch.undo()
    assert [multi for multi, _, _ in ways(text)] == ["system_calls"] * 3
    monkeypatch.setattr(raw_tracepoints, "MOST_NODES", 3)
    assert [multi for multi, _, _ in ways(text)] == ["", "", "system_calls"]


def test_verbose_tells_the_way() -> None:
    text = "t:syscalls:sys_enter_openat* { } t:syscalls:sys_enter_execve { print(kstack); }"
    found = Expanded(text, KERNEL, verbose=True)
    (note,) = found.diagnostics.notes
    assert note.message == (
        "tracepoints sys_enter_*: 2 by one program of the raw tracepoint, 1 by programs of their own "
        "(config syscall_tracepoints)"
    )
    assert not Expanded(text, KERNEL).diagnostics.notes
