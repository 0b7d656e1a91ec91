"""Builtins about the current process: types, namespaces, and kernels that lack what they need."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from pytrace.core.event_layout import CurrentTime
from pytrace.core.kernel_info import FunctionPrototype
from pytrace.core.options import CompileOptions
from pytrace.core.types import INT32, VOID, Pointer
from pytrace.frontend.syntax.typed_program import CgroupFilter, DateFormat, PidNamespace
from tests.frontend.checking import last_value, refusals, refused, value, values
from tests.support.front import analyse
from tests.support.recorded import Facts

# fmt: off
REFUSED = [
    ("begin { $a = pid(foo); }", "1:14-22", "pid() takes curr_ns or init"),
    ("begin { print(comm(\"x\")); }", "1:15-24", "the process id must be an integer, not string[2]"),
    ("begin { print(ppid(1)); }", "1:15-22", "ppid() takes a struct task_struct *, not int8"),
    ("begin { print(pcomm(comm)); }", "1:15-26", "pcomm() takes a struct task_struct *, not string[16]"),
    ("begin { print(leader_tid(5)); }", "1:15-28", "leader_tid() takes a struct task_struct *, not int8"),
    ("begin { print(cgroup_path(\"x\")); }", "1:15-31", "the cgroup id must be an integer, not string[2]"),
    ("begin { print(cgroup_path(1, 2)); }", "1:30-31", "the filter of cgroup_path() must be a string literal"),
    ("begin { print(cgroupid(5)); }", "1:24-25", "the path of cgroupid() must be a string literal"),
    ("begin { print(cgroupid(\"/no/such\")); }", "1:15-35", "there is no cgroup at '/no/such'"),
    ("begin { print(tid(foo)); }", "1:15-23", "tid() takes curr_ns or init"),
]
VALUES = [
    ("begin { print(pid); }", "uint32", None),
    ("begin { print(tid); }", "uint32", None),
    ("begin { print(pid(init)); }", "uint32", None),
    ("begin { print(tid(curr_ns)); }", "uint32", None),
    ("begin { print(comm); }", "string[16]", None),
    ("begin { print(cpu); }", "uint32", None),
    ("begin { print(uid); }", "uint64", None),
    ("begin { print(gid); }", "uint64", None),
    ("begin { print(cgroup); }", "uint64", None),
    ("begin { print(numaid); }", "uint32", None),
    ("begin { print(rand); }", "uint32", None),
    ("begin { print(cpid); }", "uint32", None),
    ("begin { print(has_cpid); }", "bool", False),
    ("begin { print(ncpus); }", "uint64", 4),
    ("begin { print(curtask); }", "struct task_struct *", None),
    ("begin { print(username); }", "username", None),
    ("begin { print(netns); }", "netns_t", None),
    ("begin { print(pcomm); }", "string[16]", None),
    ("begin { print(leader_comm(curtask)); }", "string[16]", None),
    ("begin { print(ppid); }", "int32", None),
    ("begin { print(leader_tid); }", "int32", None),
    ("begin { print(cgroupid(\"/sys/fs/cgroup\")); }", "uint64", 42),
    ("begin { print(cgroup_path(1)); }", "cgroup_path_t", None),
]
# fmt: on

test_refused = refusals(REFUSED)
test_values = values(VALUES)


class WithTasks(Facts):
    """A kernel that finds tasks by their number for some programs."""

    def function(self, name: str, module: str = "") -> FunctionPrototype | None:
        found = FunctionPrototype("bpf_task_from_pid", "vmlinux", (("pid", INT32),), Pointer(VOID))
        return found if name == found.name else super().function(name, module)


def test_names_of_other_processes() -> None:
    script = "kprobe:vfs_read { print(comm(1)); }"
    assert refused(script)[1] == "comm() of another process needs a kernel with bpf_task_from_pid (6.2)"
    assert value(script, WithTasks()) == ("string[64]", None)
    some = WithTasks(missing=frozenset({"kfunc_kprobe"}))
    (error,) = analyse(script, kernel=some).diagnostics.errors
    assert error.message.startswith("comm() of another process is not possible in kprobe probes")
    assert "fentry" in error.hints[0]
    assert "kprobe" not in error.hints[0]


def test_numbers_in_both_namespaces() -> None:
    for call, namespace in (("pid", "tracer"), ("tid(curr_ns)", "tracer"), ("pid(init)", "init")):
        program, node = last_value(f"begin {{ print({call}); }}")
        assert program.fact(node, PidNamespace).name == namespace


def test_filters_of_cgroup_paths_are_in_the_string_table() -> None:
    program, node = last_value('begin { print(strftime("%F", 1)); print(cgroup_path(1, "a*")); }')
    assert program.fact(node, CgroupFilter).string == 1


def test_files_compiled_ahead_ask_the_machine_that_runs_them() -> None:
    program = analyse("begin { print((ncpus, has_cpid)); }", CompileOptions(ahead=True)).checked()
    assert {item.what for item in program.loaded.values()} == {"cpus", "child"}


@pytest.mark.parametrize("name", ["netns", "ppid", "pcomm"])
def test_kernels_without_types(name: str) -> None:
    message = f"{name} needs the kernel's type information (BTF)"
    assert refused(f"begin {{ print({name}); }}", kernel=Facts(has_btf=False))[1] == message


def test_curtask_is_a_number_without_types() -> None:
    assert value("begin { print(curtask); }", Facts(has_btf=False)) == ("uint64", None)


# fmt: off
REFUSED_time = [
    ("begin { print(strftime(\"%F\", nsecs(monotonic))); }",
     "1:30-46", "the monotonic clock cannot be turned into a date"),
    ("begin { print(nsecs(\"boot\")); }", "1:15-28", "nsecs() takes monotonic, boot, tai, sw_tai"),
    ("begin { print(strftime(5, nsecs)); }", "1:24-25", "the format of strftime() must be a string literal"),
    ("begin { print(strftime(\"%Y\", \"x\")); }",
     "1:15-34", "the time of strftime() must be an integer, not string[2]"),
    ("begin { print(strftime(comm, nsecs)); }", "1:24-28", "the format of strftime() must be a string literal"),
    ("begin { time(5); }", "1:14-15", "the format of time() must be a string literal"),
]
VALUES_time = [
    ("begin { print(nsecs); }", "uint64", None),
    ("begin { print(nsecs(sw_tai)); }", "uint64", None),
    ("begin { print(elapsed); }", "uint64", None),
    ("begin { print(jiffies); }", "uint64", None),
    ("begin { print(strftime(\"%F\", nsecs)); }", "timestamp", None),
]
# fmt: on

test_refused_time = refusals(REFUSED_time)
test_values_time = values(VALUES_time)


@pytest.mark.parametrize(("time", "clock"), [("nsecs", 0), ("5", 0), ("nsecs(boot)", 0), ("nsecs(tai)", 1), ("nsecs(sw_tai)", 2)])
def test_dates_know_their_clock(time: str, clock: int) -> None:
    program, node = last_value(f'begin {{ print(strftime("%F", {time})); }}')
    assert program.fact(node, DateFormat).clock == clock
    assert program.strings == ["%F"]


def test_the_time_of_day() -> None:
    first, second = analyse('begin { time(); time("%H"); }').checked().event_list
    assert (first.static, second.static) == (CurrentTime("%H:%M:%S\n"), CurrentTime("%H"))


def test_kernels_without_the_atomic_clock() -> None:
    kernel = Facts(missing=frozenset({"tai_clock"}))
    assert refused("begin { print(nsecs(tai)); }", kernel=kernel)[1] == "the kernel has no helper for the tai clock"
    assert value("begin { print(nsecs(sw_tai)); }", kernel) == ("uint64", None)
