"""tracepoint and rawtracepoint: fields, categories, suggestions."""

from __future__ import annotations

import pytest

from pytrace.core.kernel_info import DefinedEvent
from pytrace.core.options import Config
from pytrace.core.probe_kinds import (
    ITERATORS_OF_ONE_OBJECT,
    IteratorTarget,
    KernelFunctionTarget,
    RawTracepointTarget,
    UserTarget,
)
from pytrace.core.types import INT8, INT32, UINT64, AddressSpace, Pointer, String
from pytrace.frontend.syntax.typed_program import ContextField, DataLoc, RegisterLocation, ReturnValue, Slot
from tests.frontend.expanding import Expanded
from tests.support.facts import TASK, RecordedKernel


def test_tracepoint_context() -> None:
    context = Expanded("tracepoint:sched:sched_switch { print(args.prev_pid) }").unit.context
    assert [(item.name, item.type, item.place) for item in context.arguments] == [
        ("prev_comm", String(16), ContextField(8)),
        ("prev_pid", INT32, ContextField(24)),
    ]


def test_tracepoint_strings_of_any_length() -> None:
    context = Expanded("tracepoint:sched:sched_process_exec { print(args.filename) }").unit.context
    assert (context.arguments[0].type, context.arguments[0].place) == (String(1024), DataLoc(8))


def test_tracepoint_pattern_alone_means_any_category() -> None:
    assert len(Expanded("tracepoint:sched_wakeup* { }").names) == 2


def test_tracepoint_suggestions() -> None:
    assert "tracepoint:sched:sched_switch" in Expanded("tracepoint:sched:sched_swtich { }").hints[0]
    assert "tracepoint:sched:sched_switch" in Expanded("tracepoint:shed:sched_switch { }").hints[0]
    assert "tracepoint:sched:sched_switch" in Expanded("tracepoint:sched_switch { }").hints[0]
    assert "tracefs" in Expanded("tracepoint:a:b { }", RecordedKernel(events={})).hints[0]


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


def test_raw_tracepoint_errors() -> None:
    assert "rawtracepoint:sched_switch" in Expanded("rawtracepoint:sched_swtich { }").hints[0]
    assert "in module nomod" in Expanded("rawtracepoint:nomod:sched_switch { }").errors[0]
    assert "BTF" in Expanded("rawtracepoint:sched_switch { }", RecordedKernel(has_btf=False)).errors[0]


def test_iterator() -> None:
    unit = Expanded("iter:task { }").unit
    assert unit.targets[0].place == IteratorTarget("task")
    assert str(unit.context.ctx_type) == "struct bpf_iter__task *"


@pytest.mark.parametrize(("pin", "path"), [("list", "/sys/fs/bpf/list"), ("/sys/fs/bpf/x/y", "/sys/fs/bpf/x/y")])
def test_iterator_pins(pin: str, path: str) -> None:
    assert Expanded(f"iter:task:{pin} {{ }}").unit.targets[0].of(IteratorTarget).pin == path


def test_iterator_errors() -> None:
    assert "iter:task" in Expanded("iter:tsk { }").hints[0]
    assert "pattern" in Expanded("iter:* { }").errors[0]
    assert "cannot share its block" in Expanded("iter:task, begin { }").errors[0]
    assert "cannot share its block" in Expanded("iter:task, iter:task { }").errors[0]


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
