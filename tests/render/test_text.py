"""pytrace.render.text: the text of values of every type, nested, and as keys of JSON."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.types import (
    BOOL,
    INT64,
    UINT64,
    VOID,
    Array,
    Avg,
    Enum,
    Field,
    Max,
    Pointer,
    Record,
    Stats,
    String,
    Struct,
    Sum,
    Tuple,
)
from pytrace.render import text
from pytrace.render.forms import TextForms
from pytrace.render.names import Names
from pytrace.runtime.host.clocks import Clock
from pytrace.runtime.host.host_names import HostNames
from pytrace.runtime.symbols.images import Frame
from tests.support.encode import Symbols
from tests.support.rows import each_row

COLOUR = Enum("colour", 4, False, (("RED", 0), ("CRIMSON", 0), ("BLUE", 7)))
PAIR = Tuple((INT64, String(8)))
POINT = Struct("struct", "point", 24, (Field("x", INT64, 0), Field("", Struct(
    "union", "", 8, (Field("a", INT64, 0), Field("b", INT64, 0)), origin="u"), 8), Field("on", BOOL, 16)))  # fmt: skip


def form(kind: types.Type, *, compact: bool = False) -> text.Form:
    return TextForms(Names(Symbols(), Clock(), (), HostNames()), compact=compact).form(kind)


@each_row(
    ("kind", "value", "plain", "compact"),
    [
        (VOID, None, b"null", None),
        (BOOL, True, b"true", None),
        (BOOL, False, b"false", None),
        (INT64, -5, b"-5", None),
        (UINT64, 2**64 - 1, b"18446744073709551615", None),
        (COLOUR, 0, b"RED", None),
        (COLOUR, 7, b"BLUE", None),
        (COLOUR, 3, b"3", None),
        (Pointer(VOID), 0xFF, b"0xff", None),
        (Pointer(VOID), 0, b"0x0", None),
        (String(8), b"a\xff b", b"a\xff b", None),
        (types.Buffer(4), b"a\x00\xff~", b"a\\x00\\xff~", None),
        (Array(INT64, 3), (1, 2, 3), b"[1,2,3]", None),
        (Array(INT64, 0), (), b"[]", None),
        (PAIR, (1, b"a"), b"(1, a)", b"(1,a)"),
        (Tuple((INT64,)), (1,), b"(1)", None),
        (Tuple((INT64, INT64, INT64)), (1, 2, 3), b"(1, 2, 3)", b"(1,2,3)"),
        (Tuple((PAIR, INT64)), ((1, b"a"), 2), b"((1, a), 2)", b"((1,a),2)"),
        (Record(("a", "b"), (INT64, PAIR)), (1, (2, b"x")), b"{ .a = 1, .b = (2, x) }", b"{.a=1,.b=(2,x)}"),
        (Record((), ()), (), b"{}", None),
        (POINT, (1, 2, 3, True), b"{ .x = 1, .a = 2, .b = 3, .on = true }", b"{.x=1,.a=2,.b=3,.on=true}"),
        (types.Mac(), b"\x00\x1b\xff\x0a\x0b\x0c", b"00:1B:FF:0A:0B:0C", None),
        (types.Inet(), (2, b"\x7f\0\0\1"), b"127.0.0.1", None),
        (types.Inet(), (10, bytes(15) + b"\1"), b"::1", None),
        (types.Inet(), (99, b""), b"", None),
        (types.Count(), 7, b"7", None),
        (Sum(), -7, b"-7", None),
        (Avg(), (-9, 2), b"-4", None),
        (Avg(), (0, 0), b"0", None),
        (Stats(), (-9, 2), b"{ .count = 2, .average = -4, .total = -9 }", b"{.count=2,.average=-4,.total=-9}"),
        (Max(), (7, 1), b"7", None),
    ],
)
def test_values_as_text(kind: types.Type, value: Any, plain: bytes, compact: bytes | None) -> None:
    assert form(kind)(value) == plain
    assert form(kind, compact=True)(value) == (plain if compact is None else compact)


def test_the_title_of_a_map_has_its_mark() -> None:
    assert text.map_title("@a", "") == "@a"
    assert text.map_title("@a", "estimate") == "estimate @a"


def test_keys_have_no_parentheses_outside() -> None:
    forms = TextForms(Names(Symbols(), Clock(), (), HostNames()))
    assert forms.key(PAIR)((1, b"a")) == b"1, a"
    assert forms.key(Tuple((PAIR, INT64, INT64)))(((1, b"a"), 2, 3)) == b"(1, a), 2, 3"
    assert forms.key(INT64)(5) == b"5"


def test_a_form_is_made_once() -> None:
    forms = TextForms(Names(Symbols(), Clock(), (), HostNames()))
    assert forms.form(PAIR) is forms.form(PAIR)


def test_equal_looking_types_keep_their_own_form() -> None:
    forms = TextForms(Names(Symbols(), Clock(), (), HostNames()))
    first, second = (Struct("struct", "", 8, (Field(name, INT64, 0),), origin="same") for name in "ab")
    assert (forms.form(first)((1,)), forms.form(second)((1,))) == (b"{ .a = 1 }", b"{ .b = 1 }")


@pytest.mark.parametrize(
    ("data", "escaped", "every", "spaced"),
    [
        (b"", b"", b"", b""),
        (b"a~ ", b"a~ ", b"\\x61\\x7e\\x20", b"61 7e 20"),
        (b"\x1f\x7f\x80\\", b"\\x1f\\x7f\\x80\\", b"\\x1f\\x7f\\x80\\x5c", b"1f 7f 80 5c"),
    ],
)
def test_bytes(data: bytes, escaped: bytes, every: bytes, spaced: bytes) -> None:
    assert (text.escaped(data), text.hex_escaped(data), text.hex_spaced(data)) == (escaped, every, spaced)


def test_families_are_those_of_this_machine() -> None:
    assert (socket.AF_INET, socket.AF_INET6) == (2, 10)


EVIL = b"\x1b[2J\n\x9b"


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (String(8), EVIL, b"\\x1b[2J\\x0a\\x9b"),
        (Tuple((INT64, String(8))), (1, EVIL), b"(1, \\x1b[2J\\x0a\\x9b)"),
        (Array(String(8), 1), (EVIL,), b"[\\x1b[2J\\x0a\\x9b]"),
        (Record(("a", "b"), (INT64, String(8))), (1, EVIL), b"{ .a = 1, .b = \\x1b[2J\\x0a\\x9b }"),
        (types.Joined("\x1b[1m", (String(8), String(8))), (EVIL, b"x"), b"\\x1b[2J\\x0a\\x9b\x1b[1mx"),
    ],
)
def test_control_characters_on_terminals(kind: types.Type, value: Any, shown: bytes) -> None:
    """What is traced is escaped; what the script says, a separator, is not."""
    texts = TextForms(Names(Symbols(), Clock(), (), HostNames()), printable=True)
    assert texts.form(kind)(value) == shown
    assert EVIL in form(kind)(value)


def test_names_of_functions_on_terminals() -> None:
    class Evil(Symbols):
        def user(self, _pid: int, _address: int, *, caller: bool = False) -> list[Any]:
            return [Frame("f\x1b[2J", 1, "/x\x07", "a\x9b.c", 3)]

    names = Names(Evil(), Clock(), (), HostNames())
    texts = TextForms(names, printable=True)
    assert texts.form(types.USym())((1, 2)) == b"f\\x1b[2J"
    stack = (1, (2, 3), 0)
    for mode, shown in (
        (types.StackMode.BPFTRACE, b"\n" + 2 * b"        f\\x1b[2J+1@a\\x9b.c:3\n"),
        (types.StackMode.PERF, b"\n\t2 f\\x1b[2J+1 (/x\\x07)\n\t3 f\\x1b[2J+1 (/x\\x07)\n"),
    ):
        kind = types.Stack(True, mode=mode)
        assert texts.form(kind)(stack) == shown
        assert texts.many_stacks(kind)(stack) == shown
