"""Builtins that change what the system does; all need ``--unsafe``."""

from __future__ import annotations

from signal import Signals
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import did_you_mean
from pytrace.core.types import BOOL, VOID, Array, String, Struct, Type
from pytrace.frontend.ast.compile_time_facts import SignalNumber
from pytrace.frontend.check.inference.argument_checks import (
    Arguments,
    Node,
    expression,
    integer_argument,
    pointer_argument,
)
from pytrace.frontend.check.inference.conversions import UNKNOWN

if TYPE_CHECKING:
    from pytrace.frontend.check.inference.checker import Checker

MAX_SIGNAL = 64


def override(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``override(rc)``."""
    integer_argument(checker, node, arguments[0], "the result of override()")
    if not checker.kernel.feature("override_return"):
        message = "this kernel does not let programs replace what a function returns (CONFIG_BPF_KPROBE_OVERRIDE)"
        return checker.error(message, node.span)
    return VOID


def signal(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``signal(n)`` and ``signal_thread(n)``, by number or name."""
    value = expression(checker, node, arguments[0])
    type_ = checker.value(value)
    constant = checker.constant(value)
    number: int | None = None
    if isinstance(constant, bytes):
        number = _by_name(checker, node, constant.decode(errors="replace"))
        if number is None:
            return UNKNOWN
    elif isinstance(constant, int):
        number = int(constant)
    else:
        integer_argument(checker, node, value, f"the argument of {node.name}()")
    if number is not None and not 1 <= number <= MAX_SIGNAL:
        return checker.error(f"there is no signal {number}", node.span)
    checker.program.facts[node] = SignalNumber(number)
    return VOID if type_ is not UNKNOWN else UNKNOWN


def _by_name(checker: Checker, node: Node, name: str) -> int | None:
    known = {item.name: int(item) for item in Signals}
    number = known.get(name.upper()) or known.get("SIG" + name.upper())
    if number is None:
        checker.error(f"there is no signal {name!r}", node.span, hints=did_you_mean(name, known))
    return number


def write_user(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``write_user(target, source, length)``; *source* is an address or a value in memory."""
    pointer_argument(checker, node, arguments[0], "the target of write_user()")
    source = checker.value(expression(checker, node, arguments[1]))
    if not isinstance(source, String | Array | Struct):
        pointer_argument(checker, node, arguments[1], "the source of write_user()")
    integer_argument(checker, node, arguments[2], "the length of write_user()")
    if not checker.kernel.feature("probe_write_user"):
        hint = "that needs CAP_SYS_ADMIN, or root, and a kernel that allows it (no lockdown)"
        return checker.error("programs may not write to user memory here", node.span, hints=[hint])
    return BOOL
