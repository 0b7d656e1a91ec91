"""Builtins that read the probe's context: their types, and where there is no such thing."""

from __future__ import annotations

import pytest

from pytrace.core.types import INT32, Field, Stack, StackMode, Struct
from tests.frontend.checking import last_value, refusals, refused, values, warnings
from tests.support.recorded import Facts

# fmt: off
REFUSED = [
    ("fn f(): uint64 { return args.x; } begin { print(f()); }", "1:25-29", "a function has no args"),
    ("begin { print(args); }", "1:15-19", "begin probes have no args here"),
    ("fn f(): uint64 { print(probe); return 1; } begin { print(f()); }",
     "1:24-29", "a function does not know which probe called it"),
    ("fn f(): uint64 { print(probetype); return 1; } begin { print(f()); }",
     "1:24-33", "a function does not know which probe called it"),
    ("rawtracepoint:consume_skb { print(arg1); }", "1:35-39", "the probe has 1 argument, so there is no arg1"),
]
VALUES = [
    ("kprobe:vfs_read { print(arg3); }", "uint64", None),
    ("rawtracepoint:sched_switch { print(arg2); }", "uint64", None),
    ("kprobe:vfs_read { print(ctx); }", "void *", None),
    ("kprobe:vfs_read { print(func); }", "ksym_t", None),
    ("uprobe:/bin/true:main { print(func); }", "usym_t", None),
    ("begin { print(probe); }", "string[6]", b"begin"),
    ("kprobe:vfs_read, kprobe:tcp_sendmsg { print(probe); }", "string[19]", None),
    ("begin { print(probetype); }", "string[8]", b"special"),
    ("kprobe:vfs_read { print(probetype); }", "string[7]", b"kprobe"),
    ("kretprobe:vfs_read { print(retval); }", "int64", None),
    ("uretprobe:/bin/true:main { print(retval); }", "uint64", None),
    ("begin { print(usermode); }", "uint8", None),
    ("tracepoint:sched:sched_switch { print(args); }", "struct args(tracepoint:sched:sched_switch)", None),
]
# fmt: on

test_refused = refusals(REFUSED)
test_values = values(VALUES)


def arm() -> Facts:
    kernel = Facts()
    kernel.arch = "aarch64"
    return kernel


def test_other_machines_do_not_tell_user_mode() -> None:
    assert refused("begin { print(usermode); }", kernel=arm()) == ("1:15-23", "usermode is not available on aarch64")


# fmt: off
REFUSED_stack = [
    ("begin { kstack(0); }", "1:9-18", "kstack() takes 1 to 127 frames, not 0"),
    ("begin { print(kstack(128)); }", "1:15-26", "kstack() takes 1 to 127 frames, not 128"),
    ("begin { print(kstack(3, perf)); }", "1:15-30", "kstack() takes a mode and then a number of frames"),
    ("begin { $n = 3; print(kstack($n)); }",
     "1:23-33", "the number of frames of kstack() must be an integer literal"),
    ("begin { print(ustack(\"perf\")); }", "1:15-29", "the number of frames of ustack() must be an integer literal"),
    ("begin { print(kstack(build_id)); }", "1:15-31", "build_id is a mode of user stacks only"),
    ("begin { print(dw_ustack(foo)); }", "1:15-29",
     "'foo' is not a stack mode: bpftrace, perf, raw, build_id, folded, annotated, inverted"),
    ("begin { print(kstack(0)); }", "1:15-24", "kstack() takes 1 to 127 frames, not 0"),
    ("begin { print(dw_ustack(build_id)); }", "1:15-34", "dw_ustack has no build_id mode"),
    ("begin { print(pystack(build_id)); }", "1:15-32", "pystack has no build_id mode"),
    ("begin { print(pystack(raw, 3)); }", "1:15-30", "pystack has no raw mode"),
    ("begin { print(pystack(200)); }", "1:15-27", "pystack() takes 1 to 127 frames, not 200"),
    ("begin { print(ustack(perf, 0)); }", "1:15-30", "ustack() takes 1 to 127 frames, not 0"),
    ("begin { print(kstack(true)); }", "1:15-27", "the number of frames of kstack() must be an integer literal"),
    ("config = { unstable_dw_ustack = \"error\" } begin { print(dw_ustack); }",
     "1:57-66", "dw_ustack is unstable and disabled"),
]
WARNED = [
    ("config = { stack_mode = \"build_id\" } begin { print(kstack); }",
     "1:52-58", "build_id is a mode of user stacks; this one uses the default mode"),
    ("begin { print(dw_ustack); }", "1:15-24", "dw_ustack is unstable: its behaviour may change"),
]
# fmt: on

test_refused_stack = refusals(REFUSED_stack)
test_warned = warnings(WARNED)


@pytest.mark.parametrize(
    ("call", "stack"),
    [
        ("kstack", Stack(False, 127, StackMode.BPFTRACE)),
        ("ustack", Stack(True, 127, StackMode.BPFTRACE)),
        ("kstack(127)", Stack(False, 127, StackMode.BPFTRACE)),
        ("kstack(raw)", Stack(False, 127, StackMode.RAW)),
        ("kstack(annotated, 5)", Stack(False, 5, StackMode.ANNOTATED)),
        ("ustack(folded)", Stack(True, 127, StackMode.FOLDED)),
        ("ustack(perf, 1)", Stack(True, 1, StackMode.PERF)),
        ("ustack(build_id)", Stack(True, 127, StackMode.BUILD_ID)),
    ],
)
def test_modes_and_frames(call: str, stack: Stack) -> None:
    program, node = last_value(f"begin {{ print({call}); }}")
    assert program.types[node] == stack


def test_the_mode_of_the_configuration() -> None:
    program, node = last_value('config = { stack_mode = "perf" } begin { print(ustack(5)); }')
    assert program.types[node] == Stack(True, 5, StackMode.PERF)


def test_unwinding_is_for_one_machine() -> None:
    assert refused("begin { print(dw_ustack); }", kernel=arm()) == ("1:15-24", "dw_ustack is not available on aarch64")
    assert refused("begin { print(pystack); }", kernel=arm()) == ("1:15-22", "pystack is not available on aarch64")


class Sleepers(Facts):
    """A kernel that knows whether a task is on a CPU."""

    def struct(self, kind: str, name: str) -> Struct | None:
        found = super().struct(kind, name)
        if name != "task_struct" or found is None:
            return found
        return Struct("struct", name, 112, (*found.fields, Field("on_cpu", INT32, 104)), origin="vmlinux")


@pytest.mark.parametrize(
    ("stack", "missing", "what"),
    [
        ("kstack", "", "kstack of the tasks that an iterator visits needs type information with task_struct.on_cpu"),
        ("kstack", "get_task_stack", "needs the helper bpf_get_task_stack, which this kernel does not have"),
        ("ustack", "task_memory", "needs bpf_copy_from_user_task_str in iterators that may sleep (Linux 6.15)"),
        ("pystack", "none", "pystack is not available in iterators: it is a stack of the current task"),
        ("ustack(build_id)", "none", "build_id is a mode of stacks of the current task"),
    ],
)
def test_stacks_of_visited_tasks(stack: str, missing: str, what: str) -> None:
    kernel = Sleepers(missing=frozenset({missing})) if missing else Facts()
    _, text = refused(f"iter:task {{ print({stack}); }}", kernel=kernel)
    assert what in text
