"""Builtins about networks: addresses of both families, in all forms."""


from __future__ import annotations

import pytest

from pytrace.frontend.syntax.typed_program import NetworkAddress
from tests.frontend.checking import last_value, refusals, values

# fmt: off
REFUSED = [
    ("begin { print(pton(\"300.1.1.1\")); }", "1:15-32", "'300.1.1.1' is not an IPv4 or IPv6 address"),
    ("begin { print(ifname(\"eth0\")); }",
     "1:15-29", "the interface index of ifname() must be an integer, not string[5]"),
    ("begin { print(macaddr(pton(\"1.2.3.4\"))); }", "1:15-39", "macaddr() takes an array of 6 bytes, not uint8[4]"),
    ("begin { print(macaddr((1, 2))); }", "1:15-30", "macaddr() takes an array of 6 bytes, not (int8,int8)"),
    ("begin { print(ntop(99, 5)); }", "1:15-26", "ntop() knows families 2 and 10, not 99"),
    ("begin { print(ntop(uint8[5])); }", "1:20-28", "a type cannot be an argument here"),
    ("begin { print(ntop((uint8*)0)); }", "1:15-30", "ntop() of a pointer needs the address family"),
    ("begin { print(ntop(\"x\", 5)); }", "1:15-27", "the address family of ntop() must be an integer, not string[2]"),
    ("begin { print(pton(5)); }", "1:20-21", "the address of pton() must be a string literal"),
    ("begin { print(pton(\"1.2.3\")); }", "1:15-28", "'1.2.3' is not an IPv4 or IPv6 address"),
    ("begin { print(ntop((1, 2))); }",
     "1:15-27", "ntop() takes an integer or an array of 4 or 16 bytes, not (int8,int8)"),
    ("fentry:tcp_sendmsg { print(socket_cookie(5)); }", "1:28-44", "socket_cookie() takes a struct sock *, not int8"),
]
VALUES = [
    ("begin { print(pton(\"127.0.0.1\")); }", "uint8[4]", b"\x7f\x00\x00\x01"),
    ("begin { print(pton(\"::1\")); }",
     "uint8[16]", b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"),
    ("begin { print(ntop(1)); }", "inet", None),
    ("begin { print(macaddr(curtask)); }", "macaddr_t", None),
    ("begin { print(macaddr(pid)); }", "macaddr_t", None),
    ("begin { print(ifname(1)); }", "ifname_t", None),
    ("kprobe:tcp_sendmsg { print(macaddr(arg0)); }", "macaddr_t", None),
]
# fmt: on

test_refused = refusals(REFUSED)
test_values = values(VALUES)


@pytest.mark.parametrize(
    ("call", "family"),
    [
        ("ntop(1)", 2), ("ntop(2, 1)", 2), ("ntop(10, curtask)", 10), ('ntop(pton("1.2.3.4"))', 2),
        ('ntop(pton("::1"))', 10), ('ntop(2, pton("1.2.3.4"))', 2), ("ntop(pid, 1)", None),
    ],
)  # fmt: skip
def test_families(call: str, family: int | None) -> None:
    program, node = last_value(f"begin {{ print({call}); }}")
    assert program.fact(node, NetworkAddress).family == family
