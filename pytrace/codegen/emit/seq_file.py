"""printf in pinned iterators: the text goes to the file that is read, and the kernel makes it.

A pinned iterator is read when the tracer has long ended, so there is nobody to send events to. What
``bpf_seq_printf`` can format (kernel/trace/bpf_trace.c, ``bpf_bprintf_prepare`` in kernel/bpf/helpers.c) is integers,
characters and strings, at most twelve of them.
"""

from __future__ import annotations

import re

from pytrace.base.lazy_regex import late
from pytrace.codegen.emit import memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.builder import Value
from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import Formatted
from pytrace.core.types import String
from pytrace.frontend.ast import nodes

MOST = 12

_CONVERSION = late(r"%(?:%|(?P<head>[-+ 0]*\d*)(?:hh|h|ll|l|j|z|t|L)?(?P<letter>[diuxXpcs]))")


def write(e: Emitter, node: nodes.Expr) -> None:
    """Emit a ``printf`` into the file that is read.

    Raises:
        TraceError: the call is something else, or the kernel cannot format it.
    """
    spec = e.checked.events[node]
    arguments = e.checked.event_arguments.get(node, ())
    if spec.kind != "printf":
        raise TraceError(
            f"line {spec.location.line}: {spec.kind.replace('_', ' ')} is not possible in a pinned iterator",
            hints=("what is read from the pin is what printf() writes",),
        )
    layout = spec.static_part(Formatted).format
    text = _format(layout, len(arguments), spec.location.line)
    data = e.b.alloca(8 * len(arguments)) if arguments else "null"
    letters = [found["letter"] for found in _CONVERSION.finditer(layout) if found["letter"]]
    with e.temporaries():
        for at, (item, letter) in enumerate(zip(arguments, letters, strict=True)):
            e.b.store(_value(e, item, letter == "s", spec.location.line), e.b.offset(data, 8 * at))
        state = e.b.load(e.context)
        file = e.b.load(e.b.pointer(state))
        e.b.helper("seq_printf", file, e.module.constant(text), str(len(text)), data, str(8 * len(arguments)))


def _format(text: str, count: int, line: int) -> bytes:
    """The format as the kernel takes it: every integer is 64 bits wide."""
    rest = _CONVERSION.sub("", text)
    if "%" in rest or count > MOST:
        what = f"more than {MOST} values" if count > MOST else f"format {text!r}"
        raise TraceError(
            f"line {line}: the kernel cannot print {what} in a pinned iterator",
            hints=("%d %i %u %x %X %p %c and %s with a width are there",),
        )
    wide = _CONVERSION.sub(_widen, text)
    return wide.encode("utf-8", "surrogateescape") + b"\0"


def _widen(found: re.Match[str]) -> str:
    letter = found["letter"]
    if not letter:
        return found[0]
    if letter == "p":
        return f"0x%{found['head']}llx"
    return f"%{found['head']}{letter}" if letter in "cs" else f"%{found['head']}ll{letter}"


def _value(e: Emitter, item: nodes.Expr, string: bool, line: int) -> Value:
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
    # A string that fills its room has no end of its own.
    e.b.store("0", e.b.offset(pointer, size), 64, align=1)
    memory.write(e, operand, pointer, operand.type)
    return e.b.address(pointer)
