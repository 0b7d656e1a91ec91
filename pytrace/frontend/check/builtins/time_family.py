"""Builtins about time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.event_layout import CurrentTime
from pytrace.core.types import UINT64, VOID, Timestamp, Type
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.compile_time_facts import Clock, DateFormat
from pytrace.frontend.check.inference.argument_checks import Arguments, Node, expression, integer_argument
from pytrace.frontend.check.inference.conversions import UNKNOWN
from pytrace.frontend.check.inference.resources import send, string_index, text_of

if TYPE_CHECKING:
    from pytrace.frontend.check.inference.checker import Checker

CLOCKS = ("monotonic", "boot", "tai", "sw_tai")
TIMESTAMP_CLOCKS = {"boot": 0, "tai": 1, "sw_tai": 2}
DEFAULT_TIME = b"%H:%M:%S\n"


def plain(_checker: Checker, _node: Node, _arguments: Arguments) -> Type:
    """elapsed, jiffies."""
    return UINT64


def nsecs(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``nsecs`` and ``nsecs(clock)``."""
    clock = "boot"
    if arguments:
        word = arguments[0]
        clock = word.name if isinstance(word, nodes.Identifier) else ""
        if clock not in CLOCKS:
            return checker.error(f"nsecs() takes {', '.join(CLOCKS)}", node.span)
        if clock == "tai" and not checker.kernel.feature("tai_clock"):
            hints = ["sw_tai computes it in the tracer"]
            return checker.error("the kernel has no helper for the tai clock", node.span, hints=hints)
    checker.program.facts[node] = Clock(clock)
    return UINT64


def strftime(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``strftime(fmt, ns)``."""
    text = checker.constant_text(arguments[0], "the format of strftime()")
    value = expression(checker, node, arguments[1])
    integer_argument(checker, node, value, "the time of strftime()")
    source = checker.program.find_fact(value, Clock)
    clock = source.name if source is not None else "boot"
    if clock == "monotonic":
        hints = ["use nsecs or nsecs(boot)"]
        return checker.error("the monotonic clock cannot be turned into a date", value.span, hints=hints)
    known = checker.constant(value)
    if isinstance(known, int) and known < 0:
        return checker.error(f"strftime() takes no time before 1970, and this is {known} ns", value.span)
    if text is None:
        return UNKNOWN
    checker.program.facts[node] = DateFormat(string_index(checker, text), TIMESTAMP_CLOCKS[clock])
    return Timestamp()


def time(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``time([fmt])``."""
    text: bytes | None = DEFAULT_TIME
    if arguments:
        text = checker.constant_text(arguments[0], "the format of time()")
    if text is not None:
        send(checker, node, "time", CurrentTime(text_of(text)))
    return VOID
