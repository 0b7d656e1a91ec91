"""Builtins about networks."""

from __future__ import annotations

import ipaddress

from pytrace.core.types import (
    AF_INET,
    AF_INET6,
    UINT8,
    UINT64,
    Array,
    Inet,
    InterfaceName,
    Mac,
    Pointer,
    String,
    Type,
)
from pytrace.frontend.check.inference.argument_checks import expression, integer_argument, struct_argument
from pytrace.frontend.check.inference.checker import Arguments, Checker, Node
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, is_integer, settle
from pytrace.frontend.syntax.typed_program import NetworkAddress

MAC_BYTES = 6


def macaddr(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``macaddr(address)``."""
    type_ = checker.value(expression(checker, arguments[0]))
    if isinstance(type_, Unknown | Pointer) or is_integer(type_):
        return Mac()
    if isinstance(type_, Array | String) and type_.size >= MAC_BYTES:
        return Mac()
    return checker.error(f"macaddr() takes an array of {MAC_BYTES} bytes, not {settle(type_)}", node.span)


def ifname(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``ifname(index)``."""
    integer_argument(checker, node, arguments[0], "the interface index of ifname()")
    return InterfaceName()


def ntop(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``ntop([family,] address)``."""
    family = None
    if len(arguments) > 1:
        integer_argument(checker, node, arguments[0], "the address family of ntop()")
        constant = checker.constant(expression(checker, arguments[0]))
        family = constant if isinstance(constant, int) else None
        if family is not None and family not in (AF_INET, AF_INET6):
            return checker.error(f"ntop() knows families {AF_INET} and {AF_INET6}, not {family}", node.span)
    address = expression(checker, arguments[-1])
    type_ = checker.value(address)
    if isinstance(type_, Array | String) and type_.size in (4, 16):
        if len(arguments) == 1:
            family = AF_INET if type_.size == 4 else AF_INET6
    elif is_integer(type_):
        family = AF_INET if len(arguments) == 1 else family
    elif not isinstance(type_, Unknown | Pointer):
        return checker.error(f"ntop() takes an integer or an array of 4 or 16 bytes, not {settle(type_)}", node.span)
    elif isinstance(type_, Pointer) and len(arguments) == 1:
        return checker.error("ntop() of a pointer needs the address family", node.span)
    checker.program.facts[node] = NetworkAddress(family, address)
    return Inet()


def pton(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``pton("address")``."""
    text = checker.constant_text(arguments[0], "the address of pton()")
    if text is None:
        return UNKNOWN
    try:
        parsed = ipaddress.ip_address(text.decode("ascii", "replace"))
        data = parsed.packed
    except ValueError:
        return checker.error(f"{text.decode(errors='replace')!r} is not an IPv4 or IPv6 address", node.span)
    scope = parsed.scope_id if isinstance(parsed, ipaddress.IPv6Address) else None
    if scope is not None:
        hints = [f"write {str(parsed).partition('%')[0]!r}, and compare the interface by itself"]
        message = f"{text.decode(errors='replace')!r} has a scope, which is no part of the address in memory"
        return checker.error(message, node.span, hints=hints)
    checker.set_constant(node, data)
    return Array(UINT8, len(data))


def socket_cookie(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``socket_cookie(sk)``."""
    if not checker.kernel.feature("socket_cookie"):
        hints = ["Linux 5.12 has it (bpf_get_socket_cookie)"]
        message = "this kernel does not tell tracing programs cookies of sockets"
        checker.error(message, node.span, hints=hints, kernel=True)
    type_ = struct_argument(checker, node, arguments[0], "sock", "socket")
    return UNKNOWN if type_ is UNKNOWN else UINT64
