"""Decoding of ring buffer events by their layout, compiled once for each place that sends them.

Printing is the hot path of a tracer: millions of events go through here. So the work for each place is written out as
the source of a Python function and compiled, as ``collections.namedtuple`` does: one unpack of the fixed part by a
``struct.Struct``, one formatting operation, nothing that depends on the type of an argument.  Records come in runs of
equal length (:mod:`pytrace.runtime.ringbuffer`), which a fixed layout decodes by one iterator.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from pytrace.diagnostics import InternalError
from pytrace.events import CUT, HEADER, EventLayout
from pytrace.runtime.printf import Piece
from pytrace.runtime.values import Decoders
from pytrace.types import String

RunHandler = Callable[[bytes, int, int, int, int], None]
"""``handler(data, offset, length, stride, count)``: *count* events of *length* bytes in *data*, the first at *offset*,
each *stride* bytes after the one before.  An event starts with its header (id, tail length)."""

Reader = Callable[[bytes, int], Any]
"""``read(data, offset)``: what the event at *offset* holds."""

_RECORD_HEADER = 8
_LENGTH = CUT - 1

# A string ends at its first NUL; one of the greatest length without was cut, and gets the trailer.
_INLINE_STRING = "(p[0] if (p := {0}.partition(NUL))[1] else {0} + TRAILER)"
_INLINE_ARRAY = "{0}.partition(NUL)[0]"


def each(handle: Callable[[bytes, int], None]) -> RunHandler:
    """A run handler that calls *handle* for every event."""

    def run(data: bytes, offset: int, _length: int, stride: int, count: int) -> None:
        for place in range(offset, offset + stride * count, stride):
            handle(data, place)

    return run


class Plan:
    """Source text of expressions that decode the arguments of one layout, and the names they use."""

    def __init__(self, layout: EventLayout, decoders: Decoders, pieces: list[Piece] | None = None) -> None:
        self.layout = layout
        self.names: dict[str, Any] = {"NUL": b"\0", "TRAILER": decoders.trailer, "CUT": CUT, "LENGTH": _LENGTH}
        self.codes: list[str] = []
        self.values: list[str] = []
        self._tail = 0
        self.steps: list[str] = []
        """Statements that take the tail apart, in argument order."""
        at = 0
        for index in range(len(layout.args)):
            start = layout.offsets[index] - HEADER
            if start != at:
                self.codes.append(f"{start - at}x")
            at = start + layout.slots.members[index].size
            self._argument(index, decoders, pieces[index] if pieces else Piece(b""))
        self.fixed = at

    def _argument(self, index: int, decoders: Decoders, piece: Piece) -> None:
        kind = self.layout.args[index]
        value = f"a{index}"
        if self.layout.tails[index]:
            self.codes.append("I")
            self.steps.append(f"start, end = end, end + ({value} & LENGTH)")
            text = f"data[start:end] + TRAILER if {value} & CUT else data[start:end]"
            self.steps.append(f"{value} = {text if isinstance(kind, String) else 'data[start:end]'}")
        elif piece.layout is not None:
            self.codes.append(piece.layout)
        else:
            code, convert = decoders.convert(kind)
            self.codes.append(code)
            if isinstance(kind, String):
                value = (_INLINE_STRING if decoders.trailer_of(kind) else _INLINE_ARRAY).format(value)
            elif convert is not None:
                self.names[f"decode{index}"] = convert
                value = f"decode{index}({value})"
        if piece.render is not None:
            self.names[f"render{index}"] = piece.render
            value = f"render{index}({value})"
        self.values.append(value)

    @property
    def arguments(self) -> str:
        """The raw values of the fixed part, as an unpacking target."""
        return "".join(f"a{index}, " for index in range(len(self.layout.args)))

    def structure(self, before: int = HEADER, stride: int | None = None) -> struct.Struct:
        """The fixed part behind *before* bytes, padded to *stride*."""
        after = 0 if stride is None else stride - before - self.fixed
        if after < 0:
            raise InternalError(f"an event of {stride} bytes is too short for its layout")
        return struct.Struct(f"={before}x{''.join(self.codes)}{f'{after}x' if after else ''}")

    def compile(self, source: str, **names: Any) -> Any:
        """The function ``made`` that *source* defines."""
        space = {**self.names, **names}
        exec(compile(source, "<event plan>", "exec"), space)
        return space["made"]


def reader(layout: EventLayout, decoders: Decoders) -> Reader:
    """A function that gives the decoded arguments of an event as a tuple."""
    if not layout.args:
        return lambda _data, _offset: ()
    plan = Plan(layout, decoders)
    lines = [
        "def made(data, offset):",
        f"    {plan.arguments}= UNPACK(data, offset)",
        f"    end = offset + {layout.fixed_size}",
        *(f"    {step}" for step in plan.steps),
        f"    return ({', '.join(plan.values)},)",
    ]
    made: Reader = plan.compile("\n".join(lines), UNPACK=plan.structure().unpack_from)
    return made


def formatter(layout: EventLayout, decoders: Decoders, parts: list[bytes | Piece]) -> Reader:
    """A function that gives the formatted text of one event."""
    run = run_formatter(layout, decoders, parts)

    def text(data: bytes, offset: int) -> bytes:
        # The bounds of a single event are not known here; a run of one needs only its start.
        found: list[bytes] = run(data, offset, layout.fixed_size + _RECORD_HEADER, 1)
        return found[0]

    return text


def run_formatter(
    layout: EventLayout, decoders: Decoders, parts: list[bytes | Piece]
) -> Callable[[bytes, int, int, int], list[bytes]]:
    """``format(data, offset, stride, count)``: the formatted texts of a run of events."""
    pieces = [part for part in parts if isinstance(part, Piece)]
    text = b"".join(part.format if isinstance(part, Piece) else part.replace(b"%", b"%%") for part in parts)
    if not pieces:
        constant = text % ()
        return lambda _data, _offset, _stride, count: [constant] * count
    plan = Plan(layout, decoders, pieces)
    result = f"FORMAT % ({', '.join(plan.values)},)"
    if plan.steps:
        return _tail_run(plan, result, text)
    return _fixed_run(plan, result, text)


def _tail_run(plan: Plan, result: str, text: bytes) -> Callable[[bytes, int, int, int], list[bytes]]:
    lines = [
        "def made(data, offset, stride, count):",
        "    found = []",
        "    for place in range(offset, offset + stride * count, stride):",
        f"        {plan.arguments}= UNPACK(data, place)",
        f"        end = place + {plan.layout.fixed_size}",
        *(f"        {step}" for step in plan.steps),
        f"        found.append({result})",
        "    return found",
    ]
    made: Callable[[bytes, int, int, int], list[bytes]] = plan.compile(
        "\n".join(lines), UNPACK=plan.structure().unpack_from, FORMAT=text
    )
    return made


def _fixed_run(plan: Plan, result: str, text: bytes) -> Callable[[bytes, int, int, int], list[bytes]]:
    one = plan.structure().unpack_from
    lines = [
        "def made(records):",
        f"    return [{result} for {plan.arguments}in records]",
    ]
    made: Callable[[Iterator[tuple[Any, ...]]], list[bytes]] = plan.compile("\n".join(lines), FORMAT=text)
    by_stride: dict[int, Callable[[memoryview], Iterator[tuple[Any, ...]]]] = {}

    def run(data: bytes, offset: int, stride: int, count: int) -> list[bytes]:
        if count == 1:
            return made(iter((one(data, offset),)))
        records = by_stride.get(stride)
        if records is None:
            records = by_stride[stride] = plan.structure(_RECORD_HEADER + HEADER, stride).iter_unpack
        # From the header of the first record to the end of the last one.
        start = offset - _RECORD_HEADER
        return made(records(memoryview(data)[start : start + stride * count]))

    return run
