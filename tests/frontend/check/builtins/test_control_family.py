"""Builtins that change the system: numbers and names of signals, and what the kernel must allow."""


from __future__ import annotations

import pytest

from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.compile_time_facts import SignalNumber
from pytrace.frontend.ast.visitor import walk
from tests.frontend.checking import UNSAFE, refused
from tests.support.front import analyse
from tests.support.recorded import Facts

# fmt: off
REFUSED = [
    ("kprobe:vfs_read { signal(0); }", "1:19-28", "there is no signal 0"),
    ("kprobe:vfs_read { signal(65); }", "1:19-29", "there is no signal 65"),
    ("kprobe:vfs_read { signal(\"SIGKIL\"); }", "1:19-35", "there is no signal 'SIGKIL'"),
    ("kprobe:vfs_read { signal((1, 2)); }",
     "1:19-33", "the argument of signal() must be an integer, not (int8,int8)"),
    ("kprobe:vfs_read { override(\"x\"); }", "1:19-32", "the result of override() must be an integer, not string[2]"),
    ("kprobe:vfs_read { write_user(\"x\", 0, 1); }",
     "1:19-40", "the target of write_user() must be a pointer or an integer, not string[2]"),
    ("kprobe:vfs_read { write_user(0, 0, \"x\"); }",
     "1:19-40", "the length of write_user() must be an integer, not string[2]"),
    ("kprobe:vfs_read { write_user(0, (1, 2), 1); }",
     "1:19-43", "the source of write_user() must be a pointer or an integer, not (int8,int8)"),
]
# fmt: on


@pytest.mark.parametrize(("script", "place", "message"), REFUSED)
def test_refused(script: str, place: str, message: str) -> None:
    assert refused(script) == (place, message)


@pytest.mark.parametrize(
    ("argument", "number"), [("1", 1), ("64", 64), ('"SIGKILL"', 9), ('"kill"', 9), ('"Usr1"', 10), ("pid", None)]
)
@pytest.mark.parametrize("name", ["signal", "signal_thread"])
def test_signals_by_number_and_name(name: str, argument: str, number: int | None) -> None:
    program = analyse(f"kprobe:vfs_read {{ {name}({argument}); }}", UNSAFE).checked()
    (call,) = (node for node in walk(program.units[0].body) if isinstance(node, nodes.Call))
    assert program.fact(call, SignalNumber).number == number


@pytest.mark.parametrize(
    ("call", "feature", "message"),
    [
        ("override(1)", "override_return", "CONFIG_BPF_KPROBE_OVERRIDE"),
        ("write_user(0, 0, 1)", "probe_write_user", "may not write to user memory"),
    ],
)
def test_what_the_kernel_does_not_allow(call: str, feature: str, message: str) -> None:
    script = f"kprobe:vfs_read {{ {call}; }}"
    assert not analyse(script, UNSAFE).errors
    assert message in refused(script, kernel=Facts(missing=frozenset({feature})))[1]


def test_values_of_several_bytes_may_be_written() -> None:
    assert not analyse('kprobe:vfs_read { write_user(arg0, "abc", 3); }', UNSAFE).errors
