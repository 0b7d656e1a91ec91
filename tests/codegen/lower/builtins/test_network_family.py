"""Builtins about networks: bytes of addresses."""

from __future__ import annotations

import struct

import pytest

from tests.codegen.running import machine, printed, ran

V4 = bytes((1, 2, 3, 4))
V6 = bytes(range(16))


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("ntop(0x04030201 + pid - 4321)", (2, V4)), ('ntop(pton("1.2.3.4"))', (2, V4)),
        ("ntop(2, 0x04030201)", (2, V4)), ('ntop(10, pton("1.2.3.4"))', (10, V4)),
        ("ntop(pid - 4319, 0x04030201)", (2, V4)),
        ('ntop(pton("1:203:405:607:809:a0b:c0d:e0f"))', (10, V6)),
    ],
)  # fmt: skip
def test_addresses(call: str, wanted: tuple[int, bytes]) -> None:
    (value,) = printed(f"print({call});")
    assert value == struct.pack("<I16s", wanted[0], wanted[1])


@pytest.mark.parametrize(("family", "length"), [(2, 4), (10, 16)])
def test_the_family_decides_how_much_is_read(family: int, length: int) -> None:
    found = machine(f"kprobe:vfs_read {{ print(ntop({family} + pid - 4321, (uint8 *)arg0)); }}")
    context = bytearray(168)
    context[112:120] = found.region(V6).to_bytes(8, "little")
    found.run(context=bytes(context))
    assert found.printed() == [struct.pack("<I16s", family, V6[:length])]


def test_hardware_addresses() -> None:
    found = machine("kprobe:vfs_read { print(macaddr(arg0)); }")
    context = bytearray(168)
    context[112:120] = found.region(V6).to_bytes(8, "little")
    found.run(context=bytes(context))
    assert found.printed()[0][:6] == V6[:6]


def test_interfaces_and_sockets() -> None:
    assert printed("print(ifname(pid));")[0][:8] == (4321).to_bytes(8, "little")
    assert ran("fentry:tcp_sendmsg { print(socket_cookie(args.sk)); }").printed() == [77]
