"""Builtins that read the probe's context."""

from __future__ import annotations

import pytest

from pytrace.core.kernel_info import UserSymbol
from pytrace.core.options import CompileOptions
from tests.codegen.running import machine, ran
from tests.support.facts import RecordedKernel


@pytest.mark.parametrize(
    ("cookie", "name"), [(0, b"kprobe:vfs_read"), (1, b"kprobe:tcp_sendmsg"), (9, b"kprobe:tcp_sendmsg")]
)
def test_the_attach_cookie_says_which_probe_it_is(cookie: int, name: bytes) -> None:
    found = ran("kprobe:vfs_read, kprobe:tcp_sendmsg { print(probe); }", helpers={174: lambda *_: cookie})
    assert found.printed() == [name]


@pytest.mark.parametrize(("cookie", "ip"), [(0, 0x7001), (1, 0x7009)])
def test_the_function_at_a_return_instruction(cookie: int, ip: int) -> None:
    """Wherever it is left, it is the same function."""
    kernel = RecordedKernel(
        symbols={"/bin/app": (UserSymbol("main.work", 0x401000, 0x1000, 10, go=True),)},
        code_at={0x1000: bytes.fromhex("90c348c7c0c3909090c3")},
    )
    helpers = {173: lambda *_: ip, 174: lambda *_: cookie}
    found = ran("uretprobe:/bin/app:main.work { print(func); }", kernel, CompileOptions(), helpers=helpers)
    (event,) = found.events
    assert (0x7000).to_bytes(8, "little") in event


@pytest.mark.parametrize(("cs", "user"), [(0x33, True), (0x10, False)])
def test_the_privilege_level(cs: int, user: bool) -> None:
    found = machine("kprobe:vfs_read { print((bool)usermode); }")
    context = bytearray(168)
    context[136:144] = cs.to_bytes(8, "little")
    found.run(context=bytes(context))
    assert found.printed() == [user]


def test_probes_of_the_tracer_run_by_its_own_call() -> None:
    assert ran("begin { print((bool)usermode); }").printed() == [True]


def test_the_context_as_an_address() -> None:
    found = machine("kprobe:vfs_read { print((uint64)ctx); }")
    found.run()
    assert found.printed() == [found._context]
