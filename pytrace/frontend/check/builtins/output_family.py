"""Builtins that print, request another action from the runtime, or (with ``--unsafe``) change the system."""

from __future__ import annotations

from signal import Signals

from pytrace.core.diagnostics import did_you_mean
from pytrace.core.event_layout import (
    EXIT_STATUSES,
    Exit,
    Formatted,
    Joined,
    NoStaticPart,
    PacketFile,
    PrintedMap,
    Quantiles,
    cut_exit_status,
)
from pytrace.core.formats import Conversion
from pytrace.core.probes.kinds import INTERVAL, PROFILE
from pytrace.core.types import (
    BOOL,
    INT64,
    UINT32,
    UINT64,
    VOID,
    Array,
    Buffer,
    Hist,
    Stats,
    String,
    Struct,
    Type,
    Void,
)
from pytrace.frontend.check.inference import argument_checks
from pytrace.frontend.check.inference.argument_checks import (
    expression,
    expressions,
    integer_argument,
    is_text,
    is_text_pointer,
    literal_integer,
    pointer_argument,
    struct_argument,
)
from pytrace.frontend.check.inference.checker import Arguments, Checker, Node
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, settle
from pytrace.frontend.check.inference.removed_code import undefined_map
from pytrace.frontend.check.inference.resources import send, text_of
from pytrace.frontend.check.inference.slots import MapState
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import LIBRARY_PREFIX, DebugFormat, SignalNumber

JOIN_STRINGS = 16
"""Maximum number of strings that join() prints."""

PACKET_BYTES = 1024
"""Maximum number of bytes of a packet that skboutput() writes."""

ORDERS = ("key", "-key", "value", "-value")
DEFAULT_PERCENTS = (50.0, 90.0, 99.0, 99.9)


# ---------------------------------------------------------------------------------------------- formatted


def formatted(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """printf, heading, errorf, warnf, cat, system."""
    format_, values = argument_checks.formatted(checker, node, arguments)
    if format_ is not None:
        assertion = node.name == "errorf" and node.span.source.name.startswith(LIBRARY_PREFIX)
        send(checker, node, node.name, Formatted(text_of(format_.text), assertion), values)
    return VOID


def debugf(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``debugf(fmt, …)``, within the limits of bpf_trace_printk (kernel/trace/bpf_trace.c)."""
    format_, values = argument_checks.formatted(checker, node, arguments)
    if format_ is None:
        return VOID
    for conversion, value in zip(format_.conversions, values, strict=True):
        type_ = checker.program.types[value]
        if not _kernel_formats(conversion):
            checker.error(f"debugf() does not know {conversion.text}", node.span, hints=["%d %u %x %p %s are there"])
        elif conversion.name == "s" and not (is_text(type_) or is_text_pointer(type_) or isinstance(type_, Unknown)):
            what = f"the kernel writes {conversion.text} of strings only, not {settle(type_)}"
            checker.error(f"debugf(): {what}", node.span)
    checker.warn("debugf() is for debugging: it writes to a file that the whole system shares", node.span)
    checker.program.facts[node] = DebugFormat(text_of(format_.text))
    return VOID


def _kernel_formats(conversion: Conversion) -> bool:
    """Whether the kernel supports a conversion (``bpf_bprintf_prepare`` in kernel/bpf/helpers.c)."""
    lengths = ("", "l", "ll") if conversion.name in "dux" else ("",)
    plain = conversion.name in "duxps" and conversion.length in lengths
    return plain and "#" not in conversion.flags and conversion.width != "*" and not conversion.precision


# ---------------------------------------------------------------------------------------------- print


def print_(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``print(value)`` and ``print(@map[, top[, div[, order]]])``."""
    first = expression(checker, arguments[0])
    if isinstance(first, nodes.MapRef):
        return _print_map(checker, node, first, arguments[1:], clear=False)
    type_ = checker.value(first)
    if len(arguments) > 1:
        checker.error("only a map takes more arguments of print()", node.span)
    elif type_.aggregate and not isinstance(type_, Stats):
        checker.error(f"print() cannot print {type_}", first.span)
    elif isinstance(type_, Void):
        checker.error("there is no value to print", first.span)
    else:
        send(checker, node, "print_value", NoStaticPart(), (first,))
    return VOID


def print_clear(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``print_clear(@map[, top[, div[, order]]])``."""
    first = expression(checker, arguments[0])
    if not isinstance(first, nodes.MapRef):
        return checker.error("print_clear() takes a map", node.span)
    return _print_map(checker, node, first, arguments[1:], clear=True)


def _print_map(checker: Checker, node: Node, target: nodes.MapRef, rest: Arguments, *, clear: bool) -> Type:
    state = checker.map(target)
    value = require_map(checker, target, state)
    top, div, order = 0, 1, ""
    for word in rest:
        if isinstance(word, nodes.Identifier):
            checker.word_hints[word] = f"print({target.name}, 10) prints the 10 largest entries"
    if rest:
        top = literal_integer(checker, node, rest[0], "the number of entries", 0, (1 << 32) - 1) or 0
    if len(rest) > 1:
        div = literal_integer(checker, node, rest[1], "the divisor", 0, (1 << 63) - 1) or 1
    if len(rest) > 2:
        text = checker.constant_text(rest[2], "the order")
        order = text_of(text or b"")
        if text is not None and order not in ORDERS:
            checker.error(f"the order must be {', '.join(ORDERS)}", node.span)
    if rest and isinstance(value, Stats):
        if not order or (top, div) != (0, 1):
            checker.warn("number of entries and divisor have no effect on stats", node.span)
        top, div = 0, 1
    if checker.loops and checker.map_loops:
        checker.warn(
            f"{target.name} is printed after the loop, as it is at that time; each iteration sends another request",
            node.span,
        )
    checker.program.types[target] = value
    send(checker, node, "print_map", PrintedMap(target.name, top, div, order, clear))
    return VOID


def require_map(checker: Checker, node: nodes.MapRef, state: MapState) -> Type:
    """Type of a map's values, for a call that takes the map itself; reports a map that is never assigned."""
    type_ = state.value.type
    if isinstance(type_, Unknown) and checker.final:
        undefined_map(checker, state, node.span)
    return type_


def quantiles(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``quantiles(@hist[, percent…])``."""
    first = expression(checker, arguments[0])
    if not isinstance(first, nodes.MapRef):
        return checker.error("quantiles() takes a map", node.span)
    type_ = require_map(checker, first, checker.map(first))
    if not isinstance(type_, Hist | Unknown):
        return checker.error(f"quantiles() takes a map of hist(), {first.name} holds {settle(type_)}", node.span)
    percents = [_percent(checker, node, arg) for arg in arguments[1:]] or list(DEFAULT_PERCENTS)
    checker.program.types[first] = type_
    send(checker, node, "quantiles", Quantiles(first.name, percents))
    return VOID


def _percent(checker: Checker, node: Node, arg: nodes.Expr | nodes.TypeExpr) -> float:
    value = expression(checker, arg)
    type_ = checker.value(value)
    constant = checker.constant(value)
    text = constant.decode(errors="replace") if isinstance(constant, bytes) else str(constant)
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < 100:
        if not isinstance(type_, Unknown):
            checker.error('a percentile must be a literal between 0 and 100, such as 90 or "99.9"', node.span)
        return 50.0
    return number


# ---------------------------------------------------------------------------------------------- others


def join(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``join(argv[, separator])``."""
    value = expression(checker, arguments[0])
    pointer_argument(checker, node, value, "the argument of join()")
    separator: bytes | None = b" "
    if len(arguments) > 1:
        separator = checker.constant_text(arguments[1], "the separator of join()")
    if separator is not None:
        types = (UINT32, *(String(checker.config.max_strlen),) * JOIN_STRINGS)
        send(checker, node, "join", Joined(text_of(separator)), (value,), types)
    return VOID


def exit_(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``exit([code])``."""
    if checker.map_loops:
        hints = ["set a variable, leave the loop by break and call exit() after it"]
        checker.error("exit() cannot be called inside a for loop", node.span, hints=hints)
    values = expressions(checker, arguments)
    for value in values:
        integer_argument(checker, node, value, "the exit status")
    known = [checker.constant(value) for value in values]
    for number in known:
        if isinstance(number, int) and number not in EXIT_STATUSES:
            checker.warn(cut_exit_status(number), node.span)
    timed = checker.unit is not None and checker.unit.kind.name in (INTERVAL, PROFILE)
    send(checker, node, "exit", Exit(None not in known, timed), values, (INT64,) * len(values))
    return VOID


def skboutput(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``skboutput(path, skb, length, offset)``."""
    path = checker.constant_text(arguments[0], "the path of skboutput()")
    skb, length, offset = expressions(checker, arguments[1:])
    struct_argument(checker, node, skb, "sk_buff")
    integer_argument(checker, node, length, "the length")
    integer_argument(checker, node, offset, "the offset")
    struct = checker.kernel.struct("struct", "sk_buff")
    if struct is None or struct.find("data") is None:
        # Scripts can define a struct of that name.
        return checker.error("skboutput() needs struct sk_buff among the kernel's types", node.span)
    if path is not None:
        types = (UINT64, UINT32, Buffer(PACKET_BYTES))
        send(checker, node, "skboutput", PacketFile(text_of(path)), (skb, length, offset), types)
    return INT64


def unwatch(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``unwatch(address)``."""
    address = expression(checker, arguments[0])
    pointer_argument(checker, node, address, "the address")
    send(checker, node, "unwatch", NoStaticPart(), (address,), (UINT64,))
    return VOID


# ---------------------------------------------------------------------------------------------- control of the system

MAX_SIGNAL = 64


def override(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``override(rc)``."""
    integer_argument(checker, node, arguments[0], "the result of override()")
    if not checker.kernel.feature("override_return"):
        message = "this kernel does not let programs replace what a function returns (CONFIG_BPF_KPROBE_OVERRIDE)"
        return checker.error(message, node.span, kernel=True)
    return VOID


def signal(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``signal(n)`` and ``signal_thread(n)``, by number or name."""
    value = expression(checker, arguments[0])
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
    source = checker.value(expression(checker, arguments[1]))
    if not isinstance(source, String | Array | Struct):
        pointer_argument(checker, node, arguments[1], "the source of write_user()")
    integer_argument(checker, node, arguments[2], "the length of write_user()")
    if not checker.kernel.feature("probe_write_user"):
        hint = "that needs CAP_SYS_ADMIN, or root, and a kernel that allows it (no lockdown)"
        return checker.error("programs may not write to user memory here", node.span, hints=[hint])
    return BOOL
