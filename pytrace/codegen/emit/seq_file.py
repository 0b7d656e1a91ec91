"""printf in pinned iterators: the kernel formats the text into the pinned file.

A pinned iterator is read after the tracer has exited, so events have no receiver. ``bpf_seq_printf``
(kernel/trace/bpf_trace.c, ``bpf_bprintf_prepare`` in kernel/bpf/helpers.c) formats integers, characters and strings, at
most twelve of them.
"""

from __future__ import annotations

from pytrace.codegen.emit import memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.ir_values import NULL, Number
from pytrace.core import formats
from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import Formatted
from pytrace.core.formats import Conversion, Format
from pytrace.core.types import String
from pytrace.frontend.ast import nodes

MOST = 12

_KERNEL_NAMES = frozenset("diuxXpcs")


def write(e: Emitter, node: nodes.Expr) -> None:
    """Emit a ``printf`` into the pinned file.

    Raises:
        TraceError: the call is not a printf, or the kernel cannot format it.
    """
    spec = e.checked.events[node]
    arguments = e.checked.event_arguments.get(node, ())
    if spec.kind != "printf":
        raise TraceError(
            f"line {spec.location.line}: {spec.kind.replace('_', ' ')} is not possible in a pinned iterator",
            hints=("what is read from the pin is what printf() writes",),
        )
    format_ = formats.parse(spec.static_part(Formatted).format.encode("utf-8", "surrogateescape"))
    text = _format(format_, spec.location.line)
    data = e.b.alloca(8 * len(arguments)) if arguments else NULL
    with e.temporaries():
        for index, (item, conversion) in enumerate(zip(arguments, format_.conversions, strict=True)):
            e.b.store(_value(e, item, conversion.name == "s", spec.location.line), e.b.offset(data, 8 * index))
        state = e.b.load(e.context)
        file = e.b.load(e.b.pointer(state))
        e.b.helper(helpers.SEQ_PRINTF, file, e.module.constant(text), len(text), data, 8 * len(arguments))


def _format(format_: Format, line: int) -> bytes:
    """The kernel's format string: every integer is 64 bits wide."""
    conversions = format_.conversions
    if len(conversions) > MOST or not all(_possible(item) for item in conversions):
        text = format_.text.decode("utf-8", "surrogateescape")
        what = f"more than {MOST} values" if len(conversions) > MOST else f"format {text!r}"
        raise TraceError(
            f"line {line}: the kernel cannot print {what} in a pinned iterator",
            hints=("%d %i %u %x %X %p %c and %s with a width are there",),
        )
    parts = (_widen(part) if isinstance(part, Conversion) else part.replace(b"%", b"%%") for part in format_.parts)
    return b"".join(parts) + b"\0"


def _possible(conversion: Conversion) -> bool:
    plain = "#" not in conversion.flags and conversion.width != "*" and not conversion.precision
    return plain and conversion.name in _KERNEL_NAMES


def _widen(conversion: Conversion) -> bytes:
    head, name = conversion.flags + conversion.width, conversion.name
    if name == "p":
        return f"0x%{head}llx".encode()
    return (f"%{head}{name}" if name in "cs" else f"%{head}ll{name}").encode()


def _value(e: Emitter, item: nodes.Expr, string: bool, line: int) -> Number:
    operand = e.value(item)
    if operand.type.scalar and not string:
        return memory.number(e, operand)
    if not (isinstance(operand.type, String) and string):
        raise TraceError(
            f"line {line}: a value of type {operand.type} cannot be printed so in a pinned iterator",
            hints=("integers and strings can, %s is for strings only",),
        )
    size = operand.type.capacity
    pointer = e.temporary(size + 8)
    # A string that fills its buffer has no NUL.
    e.b.store(0, e.b.offset(pointer, size), 64, align=1)
    memory.write(e, operand, pointer, operand.type)
    return e.b.address(pointer)
