"""Builtins that read the probe's context: their types, and where there is no such thing."""


from __future__ import annotations

import pytest

from tests.frontend.checking import refused, value
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


@pytest.mark.parametrize(("script", "place", "message"), REFUSED)
def test_refused(script: str, place: str, message: str) -> None:
    assert refused(script) == (place, message)


@pytest.mark.parametrize(("script", "type_", "constant"), VALUES)
def test_values(script: str, type_: str, constant: object) -> None:
    assert value(script) == (type_, constant)


def arm() -> Facts:
    kernel = Facts()
    kernel.arch = "aarch64"
    return kernel


def test_other_machines_do_not_tell_user_mode() -> None:
    assert refused("begin { print(usermode); }", kernel=arm()) == ("1:15-23", "usermode is not available on aarch64")
