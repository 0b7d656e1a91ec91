"""pytrace.runtime.abi.uevents: which messages are about CPUs, and what is refused."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from pytrace.runtime.abi import uevents


def test_messages_of_cpus_and_modules() -> None:
    kernel, descriptor = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with kernel, descriptor:
        descriptor.setblocking(False)
        assert uevents.read(descriptor.fileno()) == ([], [])
        for text in (
            b"offline@/devices/system/cpu/cpu1\0ACTION=offline\0", b"add@/devices/virtual/bdi/0:50\0ACTION=add\0",
            b"online@/devices/system/cpu/cpu12\0ACTION=online\0", b"online@/devices/system/memory/memory3\0", b"",
            b"online@/devices/system/cpu/cpu12/thermal_throttle\0", b"libudev\0\xfe\xed\xca\xfe",
            b"remove@/module/dummy\0ACTION=remove\0", b"add@/module/nf_tables\0", b"add@/module/x/holders\0",
        ):  # fmt: skip
            kernel.send(text)
        assert uevents.read(descriptor.fileno()) == (
            [(1, False), (12, True)], [("dummy", False), ("nf_tables", True)],
        )  # fmt: skip


def test_the_kernel_is_asked() -> None:
    descriptor = uevents.subscribe()
    try:
        with socket.socket(fileno=os.dup(descriptor)) as same:
            assert same.family == socket.AF_NETLINK
            assert same.getsockname()[1] == 1, "the group of the kernel's messages"
        assert not os.get_blocking(descriptor)
        assert not os.get_inheritable(descriptor)
        uevents.read(descriptor)
    finally:
        os.close(descriptor)


def test_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uevents, "_NETLINK_KOBJECT_UEVENT", 99)
    with pytest.raises(OSError, match="socket: ") as caught:
        uevents.subscribe()
    assert caught.value.errno == errno.EPROTONOSUPPORT
    before = os.listdir("/proc/self/fd")
    monkeypatch.undo()
    monkeypatch.setattr(uevents, "_AF_NETLINK", 16 | 1 << 14)
    with pytest.raises(OSError):
        uevents.subscribe()
    assert len(os.listdir("/proc/self/fd")) == len(before)
