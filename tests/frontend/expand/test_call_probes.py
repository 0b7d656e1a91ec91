"""Probes of calls: what they become, and where their words mean something."""

from __future__ import annotations

import pytest

from pytrace.cli.completion import attach_points
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.kernel_info import TracepointField
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import INT32, INT64
from pytrace.frontend.expand import call_probes
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.parser import parse
from pytrace.frontend.syntax.typed_program import CheckedProgram
from pytrace.runtime.load.listing import call_entry
from tests.support import front
from tests.support.recorded import COMMON, TRACEPOINTS, Facts

_NUMBER = TracepointField("__syscall_nr", INT32, 8, 4, "int __syscall_nr")
_RESULT = TracepointField("ret", INT64, 16, 8, "long ret")
_FD, _COUNT = (TracepointField(name, INT64, 16 + 8 * at, 8, f"int {name}") for at, name in enumerate(("fd", "count")))
_EVENTS = {
    **TRACEPOINTS,
    **{("syscalls", f"sys_enter_{name}"): (*COMMON, _NUMBER, _FD, _COUNT) for name in ("read", "write")},
    **{("syscalls", f"sys_exit_{name}"): (*COMMON, _NUMBER, _RESULT) for name in ("openat", "read", "write")},
}


def analyse(text: str, options: CompileOptions | None = None) -> front.Result:
    kernel = Facts()
    kernel.events = _EVENTS
    return front.analyse(text, options, kernel)


def probes(program: CheckedProgram) -> list[str]:
    return [target.probe for unit in program.units for target in unit.targets]


def test_a_call_is_an_entry_and_a_return() -> None:
    program = analyse("syscall:openat /retval < 0/ { print(args.dfd); @ = hist(duration); }").checked()
    assert probes(program) == ["tracepoint:syscalls:sys_enter_openat", "tracepoint:syscalls:sys_exit_openat"]
    assert [unit.role for unit in program.units] == ["entry", "return"]
    assert program.units[1].names == ["syscall:openat"]
    hidden = {name for name, info in program.maps.items() if info.hidden}
    assert hidden == {"@syscall:openat"}
    assert str(program.maps["@syscall:openat"].value) == "(uint64,uint64,int64)"


def test_arguments_are_kept_once_and_as_far_as_they_are_read() -> None:
    text = "call:syscall:read /args.fd == 3/ { print((args.fd, args.count, args.fd, entry(args.count + 1))); }"
    program = analyse(text).checked()
    kept = program.maps["@call:syscall:read"].value
    assert str(kept).count(",") == 4, kept


def test_a_live_view_has_a_record_with_the_name_of_each_call() -> None:
    text = "syscall:openat,read { @ = count(); } syscall:write { print((args.fd, depth, unfinished)); }"
    program = analyse(text, CompileOptions(live=True)).checked()
    assert [unit.role for unit in program.units[:2]] == ["entry", "return"], probes(program)
    kept = {name: str(info.value) for name, info in program.maps.items() if info.hidden and "#" not in name}
    assert kept["@syscall:openat,read"] == "(uint64,uint64,string[15])"
    assert kept["@syscall:write"].startswith("(uint64,uint64,string[14],"), "before other values"
    # Where the return has the arguments, too, and of a pattern.
    for text in ("call:kernel:vfs_read { @ = sum(args.count); }", "call:kernel:vfs_r* /arg2 > 1/ { @ = count(); }"):
        program = analyse(text, CompileOptions(live=True)).checked()
        assert [unit.role for unit in program.units[:2]] == ["entry", "return"], probes(program)
        (kept,) = [str(info.value) for info in program.maps.values() if info.hidden]
        assert kept.startswith("(uint64,uint64,string["), kept


def test_what_needs_nothing_of_the_entry_has_no_entry() -> None:
    program = analyse("syscall:openat /retval < 0/ { @[comm] = count(); }").checked()
    assert probes(program) == ["tracepoint:syscalls:sys_exit_openat"]
    assert set(program.maps) == {"@"}


def test_a_predicate_is_decided_as_early_as_possible() -> None:
    text = "syscall:read /args.fd == 3 && comm == \"x\" && retval > 0 && duration > 5/ { @ = count(); }"
    first, second = analyse(text).checked().units

    def names(body: nodes.Block) -> set[str]:
        return {node.name for node in nodes.walk(body) if isinstance(node, nodes.Identifier | nodes.FieldAccess)}

    assert {"fd", "comm"} <= names(first.body)
    assert "ret" not in names(first.body)
    assert "ret" in names(second.body)
    assert not {"fd", "comm"} & names(second.body)


def test_several_calls_share_a_block_with_other_probes() -> None:
    text = "begin, syscall:read,write, syscall:openat { @[probe] = count(); }"
    assert sorted(probes(analyse(text).checked())) == [
        "begin",
        *(f"tracepoint:syscalls:sys_exit_{name}" for name in ("openat", "read", "write")),
    ]


def test_functions_of_the_kernel_by_what_it_has() -> None:
    text = "call:kernel:vfs_read { @ = hist(duration); @n = sum(retval); }"
    assert probes(analyse(text).checked()) == ["fentry:vmlinux:vfs_read", "fexit:vmlinux:vfs_read"]
    program = analyse("call:kernel:vfs_read { @ = sum(args.count); }").checked()
    assert probes(program) == ["fexit:vmlinux:vfs_read"]
    options = CompileOptions(no_features=frozenset({"fentry"}))
    assert probes(analyse(text, options).checked()) == ["kprobe:vfs_read", "kretprobe:vfs_read"]
    # Numbers of arguments, which fentry does not have, at the entry, at the return and at the end.
    for text in (
        "call:kernel:vfs_read /arg2 > 4096/ { @ = sum(arg2); }",
        "call:kernel:vfs_read /arg2 > 4096 && retval < 0/ { print((arg2, unfinished, entry(arg1))); }",
    ):
        assert {probe.split(":")[0] for probe in probes(analyse(text).checked())} <= {"fentry", "fexit", "end"}


def test_several_functions_of_the_kernel_are_traced_by_kprobes() -> None:
    names = probes(analyse("call:kernel:vfs_r* { @[func] = hist(duration); @n = sum(arg2); }").checked())
    assert names == ["kprobe:vfs_read", "kretprobe:vfs_read"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("call:kernel:vfs_read", True), ("call:kernel:vfs_nothing", False), ("syscall:read", True),
        ("syscall:nothing", False), ("syscall:nothing,read", True), ("call:syscall:openat", True),
        ("call:tracepoint:syscalls:sys_enter_read,sys_exit_read", True),
        ("call:tracepoint:syscalls:sys_enter_read,sys_exit_nothing", False),
    ],
)  # fmt: skip
def test_probe_exist_knows_calls(text: str, answer: bool) -> None:
    """Of a call both probes have to exist."""
    program = analyse(f'begin {{ print(probe_exist("{text}")); }}').checked()
    (given,) = [
        value
        for node, value in program.constants.items()
        if isinstance(node, nodes.Call) and node.name == "probe_exist"
    ]
    assert given == answer


def test_a_list_of_functions_is_one_probe() -> None:
    """Also its depth: the outermost call of several functions is that of depth 0."""
    source = Source("script", "call:libc:malloc, call:libc:free /depth == 0/ { @ = sum(arg0); }")
    parsed = parse(source, Diagnostics())
    expanded = call_probes.expand(parsed, CompileOptions(), Facts(), Diagnostics())
    assert [len(probe.attach_points) for probe in expanded.probes] == [2, 2]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("syscall:openat /same(1)/ { }", "same() is for pairs of probes: this one knows which return belongs to"),
        ("syscall:read { print(args); }", "args as a whole is not kept until the call returns"),
        ("syscall:read { print(entry()); }", "entry() takes one expression"),
        ("call:tracepoint:sched:sched_switch { }", "call:tracepoint needs two probes with a comma between them"),
        ("call:tracepoint:sched:sched_switch,sched_wakeup { print(retval); }", "a pair of probes has no retval"),
        ("call: { }", "call: needs a target"),
        ("call:kernel:vfs_nothing { }", "there is no kernel function 'vfs_nothing'"),
        ("call:python:handlers { }", "'handlers' names no function of a module"),
        ("syscall:a:b { }", "'a:b' is no system call"),
    ],
)
def test_errors(text: str, error: str) -> None:
    errors = [message for _, message in analyse(text).errors]
    assert len(errors) == 1
    assert error in errors[0]


def test_words_of_calls_are_free_elsewhere() -> None:
    text = (
        "enum names { duration = 5, depth = 6, unfinished = 7 }; fn entry($x : int64) : int64 { return $x; } "
        "fn same($x : int64) : int64 { return $x; } "
        "begin { print((duration, depth, unfinished, entry(1), same(2))); }"
    )
    assert not analyse(text).errors
    assert analyse("begin { print(duration); }").errors


def test_attach_points_of_calls_are_completed() -> None:
    listed: list[str] = []

    def listing(pattern: str) -> list[str]:
        listed.append(pattern)
        return ["syscall:openat", "syscall:openat2"]

    assert attach_points("cal", listing) == ["call:"]
    assert attach_points("call:k", listing) == ["call:kernel:"]
    assert attach_points("syscall:open", listing) == ["syscall:openat", "syscall:openat2"]
    assert listed == ["syscall:open*"]


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("syscall:open*", "tracepoint:syscalls:sys_enter_open*"),
        ("call:syscall:read", "tracepoint:syscalls:sys_enter_read"),
        ("call:kernel:vfs_read", "fentry:vfs_read"),
        ("call:libc:getenv", "uprobe:libc:getenv"),
        ("call:./shop:Shop::*", 'uprobe:./shop:cpp:"Shop::*"'),
        ("call:python:app.handlers.get", "python:app.handlers:get"),
        ("call:python:app.py:*", "python:app.py:*"),
        ("call:usdt:./server:one", "usdt:./server:one"),
    ],
)
def test_where_calls_begin(text: str, entry: str) -> None:
    assert call_entry(text, typed=True) == entry


def test_the_call_of_a_thread_that_ends_is_forgotten() -> None:
    kernel = Facts()
    kernel.events = {**_EVENTS, ("sched", "sched_process_exit"): COMMON}
    units = front.analyse("syscall:read { @ = hist(duration); }", None, kernel).checked().units
    assert [unit.role for unit in units] == ["entry", "return", ""]
    assert units[2].targets[0].probe == "tracepoint:sched:sched_process_exit"
    asking = front.analyse("syscall:read { print((duration, unfinished)); }", None, kernel).checked().units
    assert [unit.kind.name for unit in asking] == ["tracepoint", "tracepoint", "end"]


def test_a_span_is_a_row_with_the_time_and_thread_of_the_call() -> None:
    program = analyse("syscall:openat { span((dfd = args.dfd)); }").checked()
    rows = [node for unit in program.units for node in nodes.walk(unit.body)
            if isinstance(node, nodes.Call) and node.name == "row"]  # fmt: skip
    assert len(rows) == 1
    record = rows[0].args[0]
    assert isinstance(record, nodes.RecordLiteral)
    assert record.names == ("start", "took_ns", "pid", "tid", "comm", "name", "dfd")
    for script, message in (
        ("syscall:openat { span(1); }", "span() takes nothing, or a record of columns"),
        ("syscall:openat { span((tid = 1)); }", "span() has a column tid already"),
    ):
        assert any(message in text for _, text in analyse(script).errors), script
