"""Tracepoints, raw tracepoints and system calls."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pytrace.core.kernel_info import DefinedEvent, FunctionPrototype
from pytrace.core.options import Config
from pytrace.core.probe_kinds import (
    ITERATORS_OF_ONE_OBJECT,
    IteratorTarget,
    KernelFunctionTarget,
    RawTracepointTarget,
    UserTarget,
)
from pytrace.core.types import (
    INT8,
    INT32,
    INT64,
    UINT32,
    UINT64,
    VOID,
    AddressSpace,
    Field,
    Pointer,
    String,
    Struct,
    Type,
)
from pytrace.frontend.probes import raw_tracepoints
from pytrace.frontend.probes.tracepoints import FORMULAS, STRUCTS, TABLE, raw_places, shape
from pytrace.frontend.syntax.typed_program import (
    CallRegister,
    CallResult,
    ContextField,
    DataLoc,
    RawField,
    RawRead,
    RegisterLocation,
    ReturnValue,
    Slot,
)
from tests.frontend.expanding import Expanded
from tests.support.facts import FEATURES, TASK, RecordedKernel, event, tracepoint_field


def test_fields_of_tracepoints() -> None:
    context = Expanded("tracepoint:sched:sched_switch { print(args.prev_pid) }").unit.context
    assert [(item.name, item.type, item.place) for item in context.arguments] == [
        ("prev_comm", String(16), ContextField(8)),
        ("prev_pid", INT32, ContextField(24)),
    ]
    context = Expanded("tracepoint:sched:sched_process_exec { print(args.filename) }").unit.context
    assert (context.arguments[0].type, context.arguments[0].place) == (String(1024), DataLoc(8))


def test_names_of_tracepoints() -> None:
    assert len(Expanded("tracepoint:sched_wakeup* { }").names) == 2
    assert "tracepoint:sched:sched_switch" in Expanded("tracepoint:sched:sched_swtich { }").hints[0]
    assert "tracepoint:sched:sched_switch" in Expanded("tracepoint:shed:sched_switch { }").hints[0]
    assert "tracepoint:sched:sched_switch" in Expanded("tracepoint:sched_switch { }").hints[0]
    assert "tracefs" in Expanded("tracepoint:a:b { }", RecordedKernel(events={})).hints[0]
    assert "rawtracepoint:sched_switch" in Expanded("rawtracepoint:sched_swtich { }").hints[0]
    assert "in module nomod" in Expanded("rawtracepoint:nomod:sched_switch { }").errors[0]
    assert "BTF" in Expanded("rawtracepoint:sched_switch { }", RecordedKernel(has_btf=False)).errors[0]


def test_raw_tracepoint() -> None:
    unit = Expanded("rt:sched_switch { print(args.prev.comm) }").unit
    assert unit.targets[0].probe == "rawtracepoint:vmlinux:sched_switch"
    assert unit.targets[0].place == RawTracepointTarget("sched_switch", "vmlinux")
    previous = unit.context.argument("prev")
    assert previous is not None
    assert (previous.type, previous.place) == (Pointer(TASK, AddressSpace.KERNEL, trusted=True), Slot(1))


def test_raw_tracepoint_arguments_that_may_be_null_are_not_trusted() -> None:
    item = Expanded("rawtracepoint:vmlinux:kfree_skb { }").unit.context.argument("skb")
    assert item is not None
    assert isinstance(item.type, Pointer)
    assert not item.type.trusted


def test_iterators() -> None:
    unit = Expanded("iter:task { }").unit
    assert unit.targets[0].place == IteratorTarget("task")
    assert str(unit.context.ctx_type) == "struct bpf_iter__task *"
    assert "iter:task" in Expanded("iter:tsk { }").hints[0]
    assert "pattern" in Expanded("iter:* { }").errors[0]
    assert "cannot share its block" in Expanded("iter:task, begin { }").errors[0]
    assert "cannot share its block" in Expanded("iter:task, iter:task { }").errors[0]


@pytest.mark.parametrize(("pin", "path"), [("list", "/sys/fs/bpf/list"), ("/sys/fs/bpf/x/y", "/sys/fs/bpf/x/y")])
def test_iterator_pins(pin: str, path: str) -> None:
    assert Expanded(f"iter:task:{pin} {{ }}").unit.targets[0].of(IteratorTarget).pin == path


@pytest.mark.parametrize("name", sorted(ITERATORS_OF_ONE_OBJECT))
def test_iterators_of_an_object_that_a_probe_cannot_name(name: str) -> None:
    message = f"iter:{name} iterates over one map or cgroup, which a probe cannot name"
    assert Expanded(f"iter:{name} {{ }}").errors == [message]
    skipped = Expanded(f"iter:{name} {{ }} begin {{ }}", config=Config(missing_probes="warn"))
    assert skipped.warnings == [f"{message}; probe skipped"]


FETCHES = ("n=%di:s32", "text=+8(%si):string", "deep=+0(+8(%si)):u64", "count=-16(%sp):u64")
DEFINED = {
    ("probe_app", "work"): DefinedEvent("p:probe_app/work …", "p", "/bin/app", offset=0x1040, fetches=FETCHES),
    ("probe_app", "back"): DefinedEvent("r:…", "r", "/bin/app", offset=0x1040, fetches=("got=$retval",)),
    ("kprobes", "reads"): DefinedEvent("p:kprobes/reads vfs_read", "p", function="vfs_read"),
    ("eprobes", "odd"): DefinedEvent("e:eprobes/odd sched.sched_switch", ""),
}


def test_events_that_others_have_defined() -> None:
    """They are probed where they are: the kernel has no record of theirs for programs."""
    kernel = RecordedKernel(events=dict.fromkeys(DEFINED, ()), defined_events=DEFINED)
    unit = Expanded("tracepoint:probe_app:work { print(args) }", kernel).unit
    assert (unit.kind.name, unit.targets[0].probe) == ("uprobe", "tracepoint:probe_app:work")
    assert unit.targets[0].place == UserTarget("/bin/app", 0x1040)
    assert [(item.name, item.type, item.place) for item in unit.context.arguments] == [
        ("n", INT32, RegisterLocation("di", size=4, signed=True)),
        ("text", Pointer(INT8, AddressSpace.USER), RegisterLocation("si", 8)),
        ("count", UINT64, RegisterLocation("sp", -16, True)),
    ]
    back = Expanded("tracepoint:probe_app:back { print(args.got) }", kernel).unit
    assert (back.kind.name, back.context.arguments[0].place) == ("uretprobe", ReturnValue())
    reads = Expanded("tracepoint:kprobes:reads { }", kernel).unit
    assert (reads.kind.name, reads.targets[0].place) == ("kprobe", KernelFunctionTarget("vfs_read"))
    (error,) = Expanded("tracepoint:eprobes:odd { }", kernel).errors
    assert "defined as 'e:eprobes/odd sched.sched_switch'" in error
    assert len(Expanded("tracepoint:*o*:* { }", kernel).names) == 3


# ----------------------------------------------------------------------------------------------------------- raw fields

RAW_FIELDS_TASK = Struct(
    "struct", "task_struct", 64,
    (Field("pid", INT32, 0), Field("prio", INT32, 4), Field("comm", String(16), 8), Field("cpu", INT32, 24)),
    origin="vmlinux", alignment=8,
)  # fmt: skip
FIELDS = event(
    tracepoint_field("comm", String(16), 8), tracepoint_field("pid", INT32, 24), tracepoint_field("prio", INT32, 28),
    tracepoint_field("target_cpu", INT32, 32), tracepoint_field("success", INT32, 36),
)  # fmt: skip


def kernel(argument: Type, name: str = "p", module: str = "vmlinux") -> RecordedKernel:
    prototype = FunctionPrototype("sched_waking", module, ((name, argument),), VOID)
    return replace(RecordedKernel(), raw={"sched_waking": prototype})


def known(facts: RecordedKernel, *, trusted: bool = True) -> dict[str, object]:
    return dict(raw_places("sched", "sched_waking", FIELDS, facts, trusted))


def test_members_of_an_argument() -> None:
    assert known(kernel(Pointer(RAW_FIELDS_TASK))) == {
        "comm": RawField("text", (RawRead(0, (8,), 0, direct=True),)),
        "pid": RawField("value", (RawRead(0, (0,), 4, True, True),)),
        "prio": RawField("value", (RawRead(0, (4,), 4, True, True),)),
        "target_cpu": RawField("value", (RawRead(0, (24,), 4, True, True),)),
    }
    place = known(kernel(Pointer(RAW_FIELDS_TASK)), trusted=False)["pid"]
    assert place == RawField("value", (RawRead(0, (0,), 4, True, False),))


def test_arguments_that_do_not_fit() -> None:
    other = Struct("struct", "file", 64, RAW_FIELDS_TASK.fields, origin="vmlinux", alignment=8)
    assert known(kernel(Pointer(RAW_FIELDS_TASK), "task")) == {}
    assert known(kernel(Pointer(other))) == {}
    assert known(kernel(UINT64)) == {}
    assert known(kernel(Pointer(RAW_FIELDS_TASK), module="other")) == {}
    wide = Struct("struct", "task_struct", 64, (Field("pid", INT64, 0), Field("comm", String(32), 8)), origin="vmlinux")
    assert known(kernel(Pointer(wide))) == {}
    assert raw_places("sched", "made_up", FIELDS, kernel(Pointer(RAW_FIELDS_TASK)), True) == {}
    assert (shape(INT32), shape(UINT64), shape(RAW_FIELDS_TASK)) == ((4, True), (8, False), None)


def test_expressions() -> None:
    for place, row in TABLE.items():
        for name, sources in row.items():
            for source in sources:
                match = re.fullmatch(r"(?:(\w+)\()?([^()]+)\)?", source)
                assert match is not None, (place, name)
                paths = match[2].split(", ")
                if match[1]:
                    assert len(paths) == len(FORMULAS[match[1]].operands), (place, name)
                for path in paths:
                    root = re.split(r"->|\.", path)[0]
                    assert root in STRUCTS or root == path, (place, name)


def test_a_state_that_a_function_computes_is_not_in_it() -> None:
    assert "prev_state" not in TABLE["sched", "sched_switch"]


# ------------------------------------------------------------------------------------------------------ raw tracepoints

_FACTS = kernel(Pointer(RAW_FIELDS_TASK))
KERNEL = replace(
    _FACTS,
    events={("sched", "sched_waking"): FIELDS, ("sched", "other"): event(tracepoint_field("pid", INT32, 8))},
    structs=_FACTS.structs
    | dict.fromkeys([("struct", "task_struct"), ("typedef", "btf_trace_sched_waking")], RAW_FIELDS_TASK),
)


def ways(text: str, facts: RecordedKernel = KERNEL, mode: str = "auto", **options: object) -> list[str]:
    found = Expanded(text, facts, Config(raw_tracepoints=mode), **options)  # type: ignore[arg-type]
    assert not found.errors
    return [unit.multi for unit in found.units]


def test_which_tracepoints_are_raw() -> None:
    text = 't:sched:sched_waking /args.pid == 1 && args.comm == "a"/ { @[probe] = count(); }'
    assert ways(text) == ["raw_tracepoint"]
    assert ways("t:sched:sched_waking { print(args.success); }") == [""]
    assert ways("t:sched:sched_waking { print(args); }") == [""]
    text = "t:sched:sched_waking, t:sched:sched_waking, t:sched:other { print(args.pid); }"
    assert ways(text) == ["raw_tracepoint", "raw_tracepoint", ""]
    text = "t:sched:sched_waking { print(args.pid); } t:sched:sched_waking { print(kstack); }"
    assert ways(text) == ["", ""]


@pytest.mark.parametrize(
    "body",
    ["print(kstack);", "f();", "kernel_function(1);", "print(args.comm[1]);", "print(buf(args.comm, 16));"],
)
def test_bodies_that_would_mean_something_else(body: str) -> None:
    assert ways(f"fn f() : void {{ print(kstack); }} t:sched:sched_waking {{ {body} }}") == [""]


@pytest.mark.parametrize(
    "other",
    [
        {"mode": "plain"},
        {"ahead": True},
        {"no_features": frozenset({"rawtracepoint"})},
        {"facts": replace(KERNEL, has_btf=False)},
        {"facts": replace(KERNEL, arch="s390x")},
        {"facts": replace(KERNEL, structs=_FACTS.structs)},
    ],
)
def test_where_plain_ones_are_used(other: dict[str, object]) -> None:
    assert ways("t:sched:sched_waking { print(args.pid); }", **other) == [""]  # type: ignore[arg-type]


def test_verbose_tells_the_way() -> None:
    found = Expanded("t:sched:sched_waking { print(args.success); }", KERNEL, verbose=True)
    (note,) = found.diagnostics.notes
    assert note.message == (
        "tracepoints by way of perf events: sched:sched_waking (args.success) (config raw_tracepoints)"
    )


# --------------------------------------------------------------------------------------------------------- system calls

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
SYSTEM_CALLS_KERNEL = replace(
    _PLAIN,
    features=FEATURES | {"raw_syscalls"},
    events=EVENTS,
    structs={**_PLAIN.structs, **{("struct", item.name): item for item in (_THREAD, _TASK, registers())}},
)


def system_calls_ways(
    text: str, kernel: RecordedKernel = SYSTEM_CALLS_KERNEL, mode: str = "auto", **options: object
) -> list[tuple[str, str, int]]:
    """Multi link, owner and number of targets of each unit."""
    found = Expanded(text, kernel, Config(syscall_tracepoints=mode), **options)  # type: ignore[arg-type]
    assert not found.errors
    return [(unit.multi, unit.part_of, len(unit.targets)) for unit in found.units]


def test_one_program_has_all_units_of_a_raw_tracepoint() -> None:
    text = "t:syscalls:sys_enter_openat { } t:syscalls:sys_exit_openat { } t:syscalls:sys_enter_read { }"
    first, leaving, second = Expanded(text, SYSTEM_CALLS_KERNEL).units
    assert (first.multi, first.part_of, first.calls) == ("system_calls", "", (257,))
    assert (leaving.multi, leaving.part_of, leaving.calls) == ("system_calls", "", (257,))
    assert (second.multi, second.part_of, second.calls) == ("system_calls", first.symbol, (0,))


def test_a_pattern_has_one_body_for_each_raw_tracepoint() -> None:
    found = Expanded("t:syscalls:sys_*_openat*, t:sched:sched_switch { @ = count(); }", SYSTEM_CALLS_KERNEL)
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
        "t:syscalls:sys_enter_openat { print(args); } t:syscalls:sys_exit_openat { print(args); }", SYSTEM_CALLS_KERNEL
    ).units
    assert [(item.name, item.type, item.place) for item in enter.context.arguments] == [
        ("__syscall_nr", INT32, CallRegister(120, 4, True)),
        ("dfd", INT32, CallRegister(112)),
        ("filename", _TEXT, CallRegister(104)),
    ]
    assert [item.place for item in leave.context.arguments] == [CallRegister(120, 4, True), CallResult()]


def test_a_call_without_number_is_traced_as_before() -> None:
    text = "t:syscalls:sys_enter_openat, t:syscalls:sys_enter_made_up { print(args.dfd); }"
    raw, plain = Expanded(text, SYSTEM_CALLS_KERNEL).units
    assert (raw.multi, raw.calls) == ("system_calls", (257,))
    assert (plain.multi, plain.calls) == ("", ())
    assert plain.context.arguments[1].place == ContextField(16)


@pytest.mark.parametrize("body", ["print(kstack);", "@[kstack(3)] = count();", "f();", "kernel_function(1);"])
def test_system_calls_bodies_that_would_mean_something_else(body: str) -> None:
    text = f"fn f() : void {{ print(kstack); }} t:syscalls:sys_enter_openat {{ {body} }}"
    assert system_calls_ways(text) == [("", "", 1)]


def test_which_calls_share_a_program() -> None:
    assert system_calls_ways("t:syscalls:sys_enter_write { print(args.dfd); }") == [("system_calls", "", 1)]
    assert system_calls_ways("t:syscalls:sys_enter_write { print(args.__buf_val); }") == [("", "", 1)]
    assert system_calls_ways("t:syscalls:sys_enter_write { print(args); }") == [("", "", 1)]
    text = "t:syscalls:sys_enter_execve { } t:syscalls:sys_exit_execve { } t:syscalls:sys_exit_read { }"
    assert [multi for multi, _, _ in system_calls_ways(text)] == ["", "system_calls", "system_calls"]
    assert [multi for multi, _, _ in system_calls_ways(text, mode="raw")] == ["system_calls"] * 3
    # So that they run in the order of the script.
    text = "t:syscalls:sys_enter_openat, t:syscalls:sys_enter_read { } t:syscalls:sys_enter_openat { print(kstack); }"
    assert system_calls_ways(text) == [("", "", 1), ("system_calls", "", 1), ("", "", 1)]


def test_many_rare_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "t:syscalls:sys_enter_execve* { }"
    assert system_calls_ways(text) == [("", "", 2)]
    monkeypatch.setattr(raw_tracepoints, "FEW", 1)
    assert system_calls_ways(text) == [("system_calls", "", 2)]


@pytest.mark.parametrize(
    "other",
    [
        {"mode": "plain"},
        {"ahead": True},
        {"no_features": frozenset({"raw_syscalls"})},
        {"kernel": replace(SYSTEM_CALLS_KERNEL, features=FEATURES)},
        {"kernel": replace(SYSTEM_CALLS_KERNEL, has_btf=False)},
        {"kernel": replace(SYSTEM_CALLS_KERNEL, arch="s390x")},
        {"kernel": replace(SYSTEM_CALLS_KERNEL, structs=_PLAIN.structs)},
        {
            "kernel": replace(
                SYSTEM_CALLS_KERNEL,
                structs={**SYSTEM_CALLS_KERNEL.structs, ("struct", "pt_regs"): registers(orig_ax=128)},
            )
        },
    ],
)
def test_system_calls_where_plain_ones_are_used(other: dict[str, object]) -> None:
    assert system_calls_ways("t:syscalls:sys_enter_openat { }", **other) == [("", "", 1)]  # type: ignore[arg-type]


def test_programs_that_the_verifier_could_not_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "t:syscalls:sys_enter_openat { } t:syscalls:sys_enter_read { print(1); } t:syscalls:sys_exit_read { }"
    monkeypatch.setattr(raw_tracepoints, "MOST_BODIES", 1)
    assert [multi for multi, _, _ in system_calls_ways(text)] == ["", "", "system_calls"]
    monkeypatch.undo()
    assert [multi for multi, _, _ in system_calls_ways(text)] == ["system_calls"] * 3
    monkeypatch.setattr(raw_tracepoints, "MOST_NODES", 3)
    assert [multi for multi, _, _ in system_calls_ways(text)] == ["", "", "system_calls"]


def test_system_calls_verbose_tells_the_way() -> None:
    text = "t:syscalls:sys_enter_openat* { } t:syscalls:sys_enter_execve { print(kstack); }"
    found = Expanded(text, SYSTEM_CALLS_KERNEL, verbose=True)
    (note,) = found.diagnostics.notes
    assert note.message == (
        "tracepoints sys_enter_*: 2 by one program of the raw tracepoint, 1 by programs of their own "
        "(config syscall_tracepoints)"
    )
    assert not Expanded(text, SYSTEM_CALLS_KERNEL).diagnostics.notes
