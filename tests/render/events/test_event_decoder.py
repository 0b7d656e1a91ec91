"""pytrace.render.events.event_decoder: events as tuples and as text, one by one, in runs and in sequences."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import HEADER, EventLayout
from pytrace.core.types import INT8, INT64, UINT8, UINT64, Buffer, String, Tuple, Type
from pytrace.render.events.event_decoder import (
    Formatter,
    Plan,
    Tally,
    Texts,
    each,
    formatter,
    reader,
    sequence_formatter,
)
from pytrace.render.events.printf import Piece
from tests.support.encode import Cut, Run, encode_event, record

DECODERS = Run().renderer._context.decoders
LONG = String(1024)

Case = tuple[tuple[Type, ...], list[tuple[Any, ...]]]
CASES: list[Case] = [
    ((), [()]),
    ((INT64,), [(-5,), (7,)]),
    ((UINT8, INT64, INT8), [(255, -1, -128)]),
    ((String(8), INT64), [(b"abc", 1), (b"", 2)]),
    ((Tuple((INT64, UINT8)), String(16)), [((1, 2), b"x")]),
    ((LONG,), [(b"",), (b"a" * 300,)]),
    ((LONG, INT64, LONG), [(b"first", 5, b"second"), (b"", -1, b"x")]),
    ((Buffer(200), UINT8), [(b"\0\xff" * 50, 9)]),
]


@pytest.mark.parametrize(("kinds", "rows"), CASES, ids=lambda item: "")
def test_an_event_anywhere_in_the_data(kinds: tuple[Type, ...], rows: list[tuple[Any, ...]]) -> None:
    read = reader(EventLayout(kinds), DECODERS)
    for row in rows:
        event = encode_event(3, kinds, row)
        for before in (b"", b"12345678", b"odd"):
            assert read(before + event + b"after", len(before)) == row


def test_strings_that_did_not_fit_show_it() -> None:
    kinds = (LONG, String(64), INT64)
    event = encode_event(0, kinds, (Cut(b"long"), b"short", 5))
    assert reader(EventLayout(kinds), DECODERS)(event, 0) == (b"long" + DECODERS.trailer, b"short", 5)
    assert DECODERS.trailer


PARTS: list[bytes | Piece] = [b"100% ", Piece(b"%d"), b" <", Piece(b"%-4s"), b">\n"]


@pytest.mark.parametrize("kinds", [(INT64, String(8)), (INT64, LONG)], ids=["fixed", "tail"])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_run_prints_what_its_events_print_one_by_one(kinds: tuple[Type, ...], count: int) -> None:
    made = Formatter(EventLayout(kinds), DECODERS, PARTS)
    rows = [(number, b"ab") for number in range(count)]
    expected = [b"100%% %d <ab  >\n" % number for number in range(count)]
    events = [record(encode_event(1, kinds, row)) for row in rows]
    data, stride = b"".join(events), len(events[0])
    offsets = range(8, 8 + stride * count, stride)
    assert [made.one(data, offset) for offset in offsets] == expected
    assert made.run(data, 8, stride, count) == expected
    assert made.many(data, offsets) == expected
    assert [made.listed(data, (offset - 8) // 4) for offset in offsets] == expected
    assert made.fixed is (kinds[1] is not LONG)
    assert formatter(EventLayout(kinds), DECODERS, PARTS)(data, 8) == expected[0]


def test_records_may_be_further_apart_than_they_are_long() -> None:
    kinds = (INT64,)
    made = Formatter(EventLayout(kinds), DECODERS, [Piece(b"%d")])
    data = b"".join(record(encode_event(1, kinds, (number,))).ljust(64, b"\xff") for number in range(3))
    assert made.run(data, 8, 64, 3) == [b"0", b"1", b"2"]
    assert made.run(data, 8, 128, 1) == [b"0"]


def test_a_text_without_arguments() -> None:
    made = Formatter(EventLayout(()), DECODERS, [b"50% ", b"off"])
    assert made.constant == b"50% off"
    assert made.run(b"", 8, 16, 3) == [b"50% off"] * 3
    assert made.many(b"", range(2)) == [b"50% off"] * 2
    assert made.one(b"", 8) == made.listed(b"", 0) == b"50% off"


def test_what_a_conversion_reads_and_renders() -> None:
    pieces: list[bytes | Piece] = [Piece(b"%d", layout="h6x"), Piece(b"%s", render=lambda value: b"<%d>" % value)]
    made = Formatter(EventLayout((INT64, INT64)), DECODERS, pieces)
    assert made.one(encode_event(0, (INT64, INT64), (65537 - 2, 9)), 0) == b"-1<9>"


def test_events_that_are_shorter_than_their_layout_are_a_bug() -> None:
    plan = Plan(EventLayout((INT64, INT64)), DECODERS)
    assert struct.calcsize(plan.codes_of(8, 32)) == 32
    with pytest.raises(InternalError, match="an event of 16 bytes is too short for its layout"):
        plan.structure(HEADER, 16)


@pytest.mark.parametrize("count", [1, 3])
def test_sequences_of_several_places(count: int) -> None:
    kinds: list[tuple[Type, ...]] = [(INT64,), (), (String(8), UINT64)]
    parts: list[list[bytes | Piece]] = [[b"a", Piece(b"%d")], [b"100%"], [Piece(b"%s"), b"=", Piece(b"%d")]]
    formatters = [Formatter(EventLayout(one), DECODERS, form) for one, form in zip(kinds, parts, strict=True)]
    data, strides, expected = b"", [], []
    for number in range(count):
        strides = []
        for one, row in zip(kinds, [(number,), (), (b"x", number)], strict=True):
            piece = record(encode_event(0, one, row))
            data += piece
            strides.append(len(piece))
        expected += [b"a%d" % number, b"100%", b"x=%d" % number]
    made = sequence_formatter(formatters, strides)
    assert made(data, 8, count) == expected
    assert made(b"before.." + data, 16, count) == expected


def test_sequences_of_constant_texts() -> None:
    made = sequence_formatter([Formatter(EventLayout(()), DECODERS, [text]) for text in (b"a%", b"b")], [16, 16])
    assert made(bytes(64), 8, 2) == [b"a%", b"b", b"a%", b"b"]


def test_handlers_of_runs() -> None:
    seen: list[Any] = []
    each(lambda data, offset: seen.append((data, offset)))(b"data", 8, 16, 24, 3)
    assert seen == [(b"data", 8), (b"data", 32), (b"data", 56)]
    Tally(seen.append)(b"", 8, 16, 24, 5)
    assert seen[3:] == [5]
    printed: list[bytes] = []
    data = b"".join(record(encode_event(0, (INT64,), (number,))) for number in range(2))
    made = Formatter(EventLayout((INT64,)), DECODERS, [Piece(b"%d")])
    Texts(made, printed.extend, quick=True)(data, 8, 16, len(data) // 2, 2)
    assert printed == [b"0", b"1"]


def test_events_of_one_layout_share_no_names() -> None:
    plan = Plan(EventLayout((Tuple((INT64,)),)), DECODERS, prefix="e7")
    shared = Plan(EventLayout(()), DECODERS).names
    assert all(name.startswith("e7") for name in plan.names.keys() - shared.keys())
    assert plan.arguments == "e7a0, "
