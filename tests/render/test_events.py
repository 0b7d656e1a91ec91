"""Events are decoded and formatted."""

from __future__ import annotations

import ctypes
import itertools
import struct
from functools import reduce
from json import loads
from operator import or_
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import HEADER, EventLayout
from pytrace.core.options import Config
from pytrace.core.types import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Buffer,
    Enum,
    Pointer,
    String,
    Tuple,
    Type,
)
from pytrace.render import events, json
from pytrace.render.events import Formatter, Piece, Plan, Tally, Texts, each, formatter, reader, sequence_formatter
from pytrace.render.forms import TextForms
from pytrace.render.names import GFP_BITS, GFP_COMPOUNDS, Names, gfp_names
from pytrace.runtime.machine.clocks import Clock
from pytrace.runtime.machine.host_names import HostNames
from tests.support.encode import Cut, Run, Symbols, encode_event, record
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- event decoder
# pytrace.render.events: events as tuples and as text, one by one, in runs and in sequences.


DECODERS = Run().renderer.forms.decoders
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


def test_records_of_other_lengths() -> None:
    kinds = (INT64,)
    made = Formatter(EventLayout(kinds), DECODERS, [Piece(b"%d")])
    data = b"".join(record(encode_event(1, kinds, (number,))).ljust(64, b"\xff") for number in range(3))
    assert made.run(data, 8, 64, 3) == [b"0", b"1", b"2"]
    assert made.run(data, 8, 128, 1) == [b"0"]
    plan = Plan(EventLayout((INT64, INT64)), DECODERS)
    assert struct.calcsize(plan.codes_of(8, 32)) == 32
    with pytest.raises(InternalError, match="an event of 16 bytes is too short for its layout"):
        plan.structure(HEADER, 16)


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


# ---------------------------------------------------------------------------------------------- printf
# Format strings: conversions, flags, widths, cutting, for every type of argument; text and json.


def printed(layout: str, *arguments: tuple[types.Type, Any], as_json: bool = False, **config: Any) -> bytes:
    run = Run(json=as_json, config=Config(**config))
    identity = run.event("printf", [kind for kind, _ in arguments], format=layout)
    run.send(identity, *(value for _, value in arguments))
    return run.printed()


@each_row(
    ("layout", "kind", "value", "expected"),
    [
        ("%d", UINT32, 2**32 - 1, b"-1"),
        ("%u", INT32, -1, b"4294967295"),
        ("%u", INT8, -1, b"4294967295"),
        ("%d", UINT8, 200, b"200"),
        ("%x", INT16, -2, b"fffffffe"),
        ("%lx", INT8, -2, b"fffffffffffffffe"),
        ("%ld", UINT64, 2**64 - 1, b"-1"),
        ("%hhu", INT64, -1, b"255"),
        ("%hx", INT64, 0x12345, b"2345"),
        ("%X", UINT16, 0xBEEF, b"BEEF"),
        ("%o", UINT8, 8, b"10"),
        ("%#x", UINT8, 0, b"0"),
        ("%#X", UINT8, 255, b"0XFF"),
        ("%#o", UINT8, 0, b"0"),
        ("%+d", INT64, 0, b"+0"),
        ("%+u", UINT8, 5, b"5"),
        ("%05d", INT8, -3, b"-0003"),
        ("%.3d", INT8, -3, b"-003"),
        ("%.0d", INT8, 0, b""),
        ("% d", INT8, 5, b" 5"),
        ("%+-5d|", INT8, 5, b"+5   |"),
        ("%#.3o", UINT8, 8, b"010"),
        ("%.2u", INT8, -1, b"4294967295"),
        ("%.2s|", String(4), b"abcd", b"ab|"),
        ("%.2s|", INT16, -123, b"-1|"),
        ("%.3s|", Buffer(100), b"a\xff", b"a\\x|"),
        ("%06d", INT64, 42, b"000042"),
        ("%+06d", INT64, 42, b"+00042"),
        ("%-06d|", INT64, 42, b"42    |"),
        ("%#08x", UINT32, 0x41, b"0x000041"),
        ("%zd", INT64, -(2**63), b"-9223372036854775808"),
        ("%jd", INT64, 2**40, b"1099511627776"),
        ("%p", UINT64, 0, b"0"),
        ("%p", INT8, -1, b"0xffffffffffffffff"),
        ("%p", Pointer(INT8), 0xFFFF888000000000, b"0xffff888000000000"),
        ("%c", UINT64, 0x141, b"A"),
        ("%3c|", INT8, 65, b"  A|"),
        ("%d", BOOL, True, b"1"),
        ("%s", BOOL, False, b"false"),
        ("%6s|", BOOL, True, b"  true|"),
        ("%s", UINT64, 2**64 - 1, b"18446744073709551615"),
        ("%5s|", INT8, -3, b"   -3|"),
        ("%-5s|", INT8, -3, b"-3   |"),
        ("%s", Enum("e", 4, True, (("A", -1),)), -1, b"A"),
        ("%s", Enum("e", 4, True, (("A", -1),)), 3, b"3"),
        ("%d", Enum("e", 4, True, (("A", -1),)), -1, b"-1"),
        ("%s", String(4), b"abcd", b"abcd"),
        ("%s", String(100), b"x" * 99, b"x" * 99),
        ("%10.2s|", String(100), b"hello", b"        he|"),
        ("%s", Buffer(100), b"a\xff", b"a\\xff"),
        ("%rh", Buffer(4), b"", b""),
        ("%rx", Buffer(4), b"\x00\x7f", b"\\x00\\x7f"),
        ("%6r|", Buffer(4), b"ab", b"    ab|"),
        ("%gr", INT32, 0, b"0"),
        ("%gr", UINT64, 0x140CCA, b"GFP_HIGHUSER_MOVABLE|__GFP_COMP"),
        ("%d", String(8), b"no", b"!{string[8] cannot print as %d}"),
        ("%f", INT64, 1, b"!{int64 cannot print as %f}"),
        ("%s%%", Tuple((INT8, String(3))), (1, b"a"), b"(1, a)%"),
    ],
)  # fmt: skip
def test_conversions(layout: str, kind: types.Type, value: Any, expected: bytes) -> None:
    assert printed(layout, (kind, value)) == expected
    # Behind something that shifts it, and in json.
    assert printed("%d " + layout, (UINT8, 7), (kind, value)) == b"7 " + expected
    line = printed(layout, (kind, value), as_json=True)
    assert json.unquoted(loads(line)["data"]) == expected


def test_strings_that_were_cut_or_are_no_text() -> None:
    assert printed("%s", (String(4), b"abcd"), max_strlen=4) == b"abcd.."
    assert printed("%s", (String(4), b"abc"), max_strlen=4) == b"abc"
    assert printed("\udcff%s\n", (String(80), b"\xc3\x28")) == b"\xff\xc3\x28\n"
    assert printed("é%s", (String(80), "ü".encode())) == "éü".encode()


def test_strings_in_the_tail() -> None:
    kinds = (String(1024), UINT8, Buffer(100), String(16), String(200))
    values = (b"first", 7, b"\1\2", b"comm", Cut(b"z" * 200))
    found = printed("%s %d %r %s %s\n", *zip(kinds, values, strict=True))
    assert found == b"first 7 \\x01\\x02 comm " + b"z" * 200 + b"..\n"
    found = printed("%s %d %r %s %s\n", *zip(kinds, values, strict=True), str_trunc_trailer="")
    assert found == b"first 7 \\x01\\x02 comm " + b"z" * 200 + b"\n"


def test_a_run_of_events_prints_in_order() -> None:
    run = Run()
    near = run.event("printf", [UINT32, String(16)], format="%d %s\n")
    far = run.event("printf", [UINT32, String(100)], format="%d %s\n")
    run.send_many(near, [(number, b"c%d" % number) for number in range(300)])
    run.send_many(far, [(number, b"x" * (number % 7)) for number in range(300)])
    lines = run.printed().splitlines()
    assert lines[:300] == [b"%d c%d" % (number, number) for number in range(300)]
    assert lines[300:] == [b"%d %s" % (number, b"x" * (number % 7)) for number in range(300)]


def test_numbers_of_arguments() -> None:
    layout = " ".join(["%d"] * 127)
    found = printed(layout, *((INT64, number) for number in range(127)))
    assert found == b" ".join(b"%d" % number for number in range(127))
    with pytest.raises(InternalError):
        printed("%d")
    with pytest.raises(InternalError):
        printed("%d", (INT8, 1), (INT8, 2))


INTEGERS = st.sampled_from((INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64))


@given(INTEGERS, st.data(), st.sampled_from(("", "hh", "h", "l", "ll", "z")), st.sampled_from("diuxXo"),
       st.sampled_from(("", "9", "-9")))  # fmt: skip
def test_numbers_are_cut_and_converted_as_c_does(
    kind: types.Int, data: st.DataObject, length: str, conversion: str, width: str
) -> None:
    value = data.draw(st.integers(kind.low, kind.high))
    size = {"hh": 8, "h": 16, "": 32}.get(length, 64)
    cut = value & ((1 << size) - 1)
    if conversion in "di" and cut >> (size - 1):
        cut -= 1 << size
    body = {"d": "%d", "i": "%d", "u": "%d"}.get(conversion, f"%{conversion}") % cut
    expected = body.ljust(9) if width.startswith("-") else body.rjust(int(width or 0))
    assert printed(f"%{width}{length}{conversion}", (kind, value)) == expected.encode()


@given(st.lists(st.binary(max_size=20).filter(lambda item: b"\0" not in item), min_size=1, max_size=4))
def test_any_strings_survive_text_and_json(texts: list[bytes]) -> None:
    layout = "|".join(["%s"] * len(texts))
    arguments = [(String(24 if index % 2 else 80), text) for index, text in enumerate(texts)]
    assert printed(layout, *arguments) == b"|".join(texts)
    line = printed(layout, *arguments, as_json=True)
    assert json.unquoted(loads(line)["data"]) == b"|".join(texts)


@pytest.mark.parametrize(
    ("layout", "members", "value", "expected"),
    [
        ("%d of %x", (INT8, UINT64), (-1, 255), b"-1 of ff"),
        ("%u|%5d|%-4d|", (INT64, INT16, UINT8), (-1, -3, 7), b"4294967295|   -3|7   |"),
        ("%ld %d", (INT64, INT64), (5000000000, 5000000000), b"5000000000 705032704"),
        ("%s %% %c", (String(8), UINT8), (b"ab", 65), b"ab % A"),
        ("none", (), (), b"none"),
    ],
)
def test_formatted_values(
    layout: str, members: tuple[types.Type, ...], value: tuple[Any, ...], expected: bytes
) -> None:
    forms = TextForms(Names(Symbols(), Clock(), (), HostNames()))
    form = events.of_values(types.Joined(layout, members, formatted=True), forms)
    assert form(value) == expected
    assert form(b"text already") == b"text already"
    with pytest.raises(InternalError, match="formatted text"):
        form(5)


def test_numbers_and_texts_are_formatted_as_c_does() -> None:
    """The C library itself formats the same values."""
    library, room = ctypes.CDLL(None), ctypes.create_string_buffer(200)
    flags = ["", *map("".join, itertools.chain(itertools.permutations("-+ #0", 1), itertools.permutations("-+ #0", 2)))]
    for flag, width, precision in itertools.product(flags, ("", "1", "9"), ("", ".", ".1", ".6")):
        for name, value in itertools.product("diuxXo", (0, 1, -1, 12345, -12345, 2**31 - 1)):
            layout = f"%{flag}{width}{precision}{name}"
            library.snprintf(room, len(room), layout.encode(), ctypes.c_int(value))
            assert _formatted(layout, INT32, value) == room.value, (layout, value)
        if not set(flag) - {"-"}:
            for text in (b"", b"ab", b"long text"):
                layout = f"%{flag}{width}{precision}s"
                library.snprintf(room, len(room), layout.encode(), text)
                assert _formatted(layout, String(16), text) == room.value, (layout, text)


def _formatted(layout: str, kind: types.Type, value: object) -> bytes:
    forms = TextForms(Names(Symbols(), Clock(), (), HostNames()))
    return events.of_values(types.Joined(layout, (kind,), formatted=True), forms)((value,))


# ---------------------------------------------------------------------------------------------- gfp flags
# pytrace.render.names: names of flags, the longest combination first.


@each_row(
    ("flags", "text"),
    [
        (0, b"0"),
        (0x1, b"GFP_DMA"),
        (0x2, b"__GFP_HIGHMEM"),
        (0xCC0, b"GFP_KERNEL"),
        (0xDC0, b"GFP_KERNEL|__GFP_ZERO"),
        (0x400CC0, b"GFP_KERNEL_ACCOUNT"),
        (0xC40, b"GFP_NOFS"),
        (0xC00, b"GFP_NOIO"),
        (0x820, b"GFP_ATOMIC"),
        (0x800, b"GFP_NOWAIT"),
        (0x100CCA, b"GFP_HIGHUSER_MOVABLE"),
        (0x100CC0, b"GFP_USER"),
        (0x100, b"__GFP_ZERO"),
        (0x1C2CCA & ~0xC00, b"GFP_TRANSHUGE_LIGHT"),
        (0x2CC0 | 1 << 40, b"GFP_KERNEL|__GFP_NOWARN|0x10000000000"),
        # A bit without a name, and one beyond all that have one.
        (0x200, b"0x200"),
        (0x1000000 | 0x100, b"__GFP_ZERO|0x1000000"),
    ],
)
def test_names_of_flags(flags: int, text: bytes) -> None:
    assert gfp_names(flags) == text


def test_a_combination_comes_before_those_that_it_contains() -> None:
    for at, (name, bits) in enumerate(GFP_COMPOUNDS):
        assert not any(bits & other == bits for _, other in GFP_COMPOUNDS[at + 1 :]), name
        assert gfp_names(bits) == name.encode()


def test_no_bit_is_lost() -> None:
    every = reduce(or_, GFP_BITS.values())
    known = {**GFP_BITS, **dict(GFP_COMPOUNDS)}
    for flags in (every, every ^ GFP_BITS["__GFP_FS"], GFP_BITS["__GFP_IO"] | GFP_BITS["__GFP_COMP"]):
        parts = gfp_names(flags).decode().split("|")
        assert reduce(or_, (known[part] for part in parts)) == flags
