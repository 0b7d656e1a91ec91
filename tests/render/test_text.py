"""Output as text, CSV and JSON, tables and times."""

from __future__ import annotations

import csv as reader
import io
import math
import re
import socket
from json import loads
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.core.types import (
    BOOL,
    INT8,
    INT32,
    INT64,
    UINT32,
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
from pytrace.core.value_tables import TableSchema
from pytrace.render import csv, events, json, text
from pytrace.render.forms import JsonForms, TextForms
from pytrace.render.names import Names
from pytrace.render.tables import Page, TextTable, visible
from pytrace.results.formats.portable_forms import PortableNames
from pytrace.runtime.machine.clocks import Clock
from pytrace.runtime.machine.host_names import HostNames
from pytrace.runtime.stacks.images import SymbolFrame
from tests.render.test_values import VALUES
from tests.support.encode import Run, Symbols, unescaped_utf8
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- text
# pytrace.render.text: the text of values of every type, nested, and as keys of JSON.


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


def test_titles_and_keys() -> None:
    assert text.map_title("@a", "") == "@a"
    assert text.map_title("@a", "estimate") == "estimate @a"
    forms = TextForms(Names(Symbols(), Clock(), (), HostNames()))
    assert forms.key(PAIR)((1, b"a")) == b"1, a"
    assert forms.key(Tuple((PAIR, INT64, INT64)))(((1, b"a"), 2, 3)) == b"(1, a), 2, 3"
    assert forms.key(INT64)(5) == b"5"


def test_forms_are_made_once_for_each_type() -> None:
    forms = TextForms(Names(Symbols(), Clock(), (), HostNames()))
    assert forms.form(PAIR) is forms.form(PAIR)
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
    assert (text.escaped(data), events.hex_escaped(data), events.hex_spaced(data)) == (escaped, every, spaced)


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
            return [SymbolFrame("f\x1b[2J", 1, "/x\x07", "a\x9b.c", 3)]

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


# ---------------------------------------------------------------------------------------------- csv
# CSV: what Python's csv module reads is what was written.


@each_row(
    ("text", "field"),
    [
        (b"plain text", b"plain text"),
        (b"", b""),
        (b"a,b", b'"a,b"'),
        (b'say "x"', b'"say ""x"""'),
        (b"two\nlines", b'"two\nlines"'),
        (b"cr\r", b'"cr\r"'),
        ("grün".encode(), "grün".encode()),
        ("ü,".encode(), '"ü,"'.encode()),
        (b"\xff", b"\\xff"),
        ("\uffff".encode(), "\uffff".encode()),
        (b"a\x1b[31m\x07\x00", b"a\\x1b[31m\\x07\\x00"),
        ("\x9b".encode(), b"\\xc2\\x9b"),
        (rb"C:\new \x41 \x4", rb"C:\new \x5cx41 \x4"),
        (b"=1+1", b"'=1+1"),
        (b"+1", b"'+1"),
        (b"-1", b"'-1"),
        (b"@SUM(A1)", b"'@SUM(A1)"),
        (b"\t=1", b"'\t=1"),
        (b"\r=1", b"\"'\r=1\""),
        (b'=HYPERLINK("http://x",1)', b"\"'=HYPERLINK(\"\"http://x\"\",1)\""),
        ("＝1".encode(), "'＝1".encode()),
        (b"'=1", b"''=1"),
        (b"'quoted'", b"'quoted'"),
        (b"a=1", b"a=1"),
    ],
)
def test_fields(text: bytes, field: bytes) -> None:
    assert csv.field(text) == field


def test_lines() -> None:
    assert csv.line([b"a", csv.field(b"b,c")]) == b'a,"b,c"\r\n'
    assert csv.heading(["@m.count", 'a"b', "-"]) == b'@m.count,"a""b",-\r\n'
    assert csv.line([b""]) == b'""\r\n'
    assert csv.line([b"", b""]) == b",\r\n"


@given(st.lists(st.lists(st.binary(max_size=12), min_size=3, max_size=3), max_size=5))
def test_what_is_written_is_read_back(rows: list[list[bytes]]) -> None:
    text = b"".join(csv.line(map(csv.field, row)) for row in rows).decode()
    found = list(reader.reader(io.StringIO(text, newline=""), strict=True))
    assert [[original(field) for field in row] for row in found] == rows


def original(field: str) -> bytes:
    """The text that a field was made of, as docs/reference/output.md says."""
    return unescaped_utf8(re.sub(r"\A'(?='*[=+\-@\t\r\n＝＋－＠])", "", field).encode())


@given(st.text("'=+-@\t\r\n＝\\x41\x1b", max_size=8))
def test_formulas_are_read_back(text: str) -> None:
    field = csv.field(text.encode()).decode()
    (row,) = reader.reader(io.StringIO(field, newline=""), strict=True) if field else [[""]]
    assert original(row[0]) == text.encode()
    assert not re.match("[=+\\-@\t\r\n＝]", row[0])


@pytest.mark.parametrize("kind", [INT32, types.Enum("e", 4, True, (("minus", -1),)), types.Fixed(1, 0)])
def test_numbers_stay_numbers(kind: types.Type) -> None:
    names = TextForms(PortableNames())
    assert csv.cells(names, kind)(-5) == [b"-5"]
    assert csv.cells(names, types.Tuple((kind, types.String(8))))((-5, b"-5")) == [b"-5", b"'-5"]
    assert csv.texts(names, types.String(8))(b"-5") == [b"-5"]


# ---------------------------------------------------------------------------------------------- json
# JSON is valid whatever programs print, and loses nothing.


FORMS = JsonForms(TextForms(Names(Symbols(), Clock(), ("%Y", ""), HostNames())))


@given(st.binary(max_size=60))
def test_any_bytes_survive(data: bytes) -> None:
    written = json.quoted(data)
    assert json.unquoted(loads(written.decode("utf-8"))) == data


@given(st.text(max_size=40).map(str.encode))
def test_text_reads_back_as_it_was(data: bytes) -> None:
    if "\uffff" not in data.decode():
        assert loads(json.quoted(data)) == data.decode()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"plain", b'"plain"'),
        (b'a"b\\c\n\r\t\x01\x1b', b'"a\\"b\\\\c\\n\\r\\t\\u0001\\u001b"'),
        ("é→".encode(), '"é→"'.encode()),
        (b"\xfd", b'"\\ufffffffd"'),
        (b"\xc3(", b'"\\uffffffc3("'),
        (b"~\x7f\xc2\x80\xc2\x9b\xc2\xa0", b'"~\\u007f\\u0080\\u009b\xc2\xa0"'),
        (b"\xc2\x9b\x9b", b'"\\u009b\\uffffff9b"'),
        (b"\xef\xbf\xbf", b'"\\uffffffef\\uffffffbf\\uffffffbf"'),
        (b"\xed\xa0\x80", b'"\\uffffffed\\uffffffa0\\uffffff80"'),
    ],
)
def test_escapes(data: bytes, expected: bytes) -> None:
    assert json.quoted(data) == expected


@given(st.lists(st.sampled_from([b"a", b"b", b"a #2", b"a #3", b"a #2 #2", b"b #1"]), max_size=12))
def test_names_of_members_are_distinct(names: list[bytes]) -> None:
    found = json.distinct(names)
    assert len(set(found)) == len(names) == len(found)
    first = set()
    for name, shown in zip(names, found, strict=True):
        assert shown == name if name not in first else shown.startswith(name + b" #")
        first.add(name)


@given(st.lists(st.sampled_from([b"a", b"b", b"a #2", b"a #3", b"a #2 #2", b"b #1"]), max_size=12), st.integers(1, 5))
def test_names_are_distinct_some_at_a_time(names: list[bytes], size: int) -> None:
    distinct = json.DistinctNames(reversed(names))
    parts = [distinct.of(names[start : start + size]) for start in range(0, len(names), size)]
    assert [name for part in parts for name in part] == list(json.distinct(names))


def test_numbers_of_equal_names() -> None:
    assert json.distinct([b"a", b"b", b"a", b"a #2", b"a"]) == [b"a", b"b", b"a #3", b"a #2", b"a #4"]


@given(st.integers(-(2**63), 2**64 - 1))
def test_numbers_are_exact(value: int) -> None:
    found = loads(json.number(value))
    assert int(found) == value
    assert isinstance(found, str) == (int(float(value)) != value)


def test_numbers_at_the_border() -> None:
    assert json.number(2**53) == b"9007199254740992"
    assert json.number(2**53 + 1) == b'"9007199254740993"'
    assert json.number(2**63) == b"9223372036854775808"
    assert json.number(2**63 - 1) == b'"9223372036854775807"'
    assert json.number(72057594037927936) == b"72057594037927936"


def same(kind: types.Type, value: Any, found: Any) -> bool:
    """Whether parsed JSON says what *value* is."""
    if isinstance(kind, types.Bool):
        return found is value
    if isinstance(kind, types.Int | types.Enum | types.Pointer):
        return int(found) == value
    if isinstance(kind, types.String):
        return json.unquoted(found) == value
    if isinstance(kind, types.Fixed):
        return float(found) == kind.number(value)
    if isinstance(kind, types.Buffer):
        return bytes(item & 0xFF for item in found) == value and all(-128 <= item < 128 for item in found)
    if isinstance(kind, types.Array):
        return len(found) == kind.count and all(same(kind.element, *pair) for pair in zip(value, found, strict=True))
    if isinstance(kind, types.Tuple):
        return all(same(*item) for item in zip(kind.members, value, found, strict=True))
    if isinstance(kind, types.Record):
        return list(found) == list(kind.names) and all(
            same(*item) for item in zip(kind.members, value, found.values(), strict=True)
        )
    if isinstance(kind, types.Struct):
        return all(same(field.type, item, found[field.name]) for field, item in zip(kind.fields, value, strict=True))
    return isinstance(found, str)


@given(VALUES)
def test_every_value_parses_to_what_it_is(case: tuple[types.Type, Any]) -> None:
    kind, value = case
    line = json.line("value", FORMS.form(kind)(value))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    found = loads(line)
    assert found["type"] == "value"
    assert same(kind, value, found["data"])


def test_spacing() -> None:
    kind = types.Record(("a", "c"), (types.INT64, types.Tuple((types.INT8, types.INT8))))
    assert FORMS.form(kind)((1, (3, 4))) == b'{"a": 1, "c": [3,4]}'


def test_keys_have_no_parentheses_and_no_separating_spaces() -> None:
    deep = types.Tuple((types.Tuple((types.INT64, types.Tuple((types.INT64, types.INT64)))), types.String(8)))
    assert FORMS.key(deep)(((1, (2, 3)), b"x")) == b"(1,(2,3)),x"
    assert FORMS.key(types.Record(("x", "y"), (types.INT64, types.INT64)))((1, 2)) == b"{.x=1,.y=2}"
    assert FORMS.key(types.Array(types.INT8, 4))((4, 3, 2, 1)) == b"[4,3,2,1]"
    assert FORMS.key(types.String(16))(b"Web Content") == b"Web Content"
    assert FORMS.key(types.Bool())(True) == b"true"


def test_infinity_never_appears() -> None:
    assert math.isfinite(float(loads(json.number(-(2**63)))))


@pytest.mark.parametrize("text", ["a\u202eb", "\u200d", "\U000e0041x", "\ufeff", "\u2066\u2069"])
def test_what_is_not_seen_is_escaped_as_json_has_it(text: str) -> None:
    quoted = json.quoted(text.encode())
    assert quoted.isascii()
    assert loads(quoted) == text


# ---------------------------------------------------------------------------------------------- tables
# Aligned tables: widths, headings, what is shown with escapes, screens.


class Table:
    """Rows of one place in a script, printed by the handlers of a run."""

    def __init__(self, run: Run, **columns: object) -> None:
        self.run = run
        self.identity = run.event("row", list(columns.values()), names=list(columns))  # type: ignore[arg-type]

    def __call__(self, *rows: tuple[object, ...]) -> str:
        self.run.send_many(self.identity, rows)
        return self.run.printed_text()


def lines(text: str) -> list[str]:
    return text.splitlines()


def table(**columns: object) -> Table:
    return Table(Run(), **columns)


def test_numbers_right_texts_left_and_the_last_text_open() -> None:
    show = table(pid=UINT32, comm=String(16), lat_us=INT64, path=String(256))
    assert lines(show((1, b"bash", 12, b"/etc/passwd"), (4194304, b"a-long-name-123", -7, b""))) == [
        "    PID COMM             LAT(us) PATH",
        "      1 bash                  12 /etc/passwd",
        "4194304 a-long-name-123       -7 ",
    ]
    assert lines(show((2, b"x", 3, b"y" * 90))) == ["      2 x                      3 " + "y" * 90]


def test_widths_of_columns() -> None:
    show = table(name=String(8), n=INT8)
    assert lines(show((b"a", 1), (b"bcdefg", -128))) == ["NAME       N", "a          1", "bcdefg  -128"]
    assert lines(table(n=INT8)((5,))) == ["   N", "   5"]
    assert lines(table(text=String(80))((b"any text",))) == ["TEXT", "any text"]
    show = table(n=INT64, m=INT8)
    show((1, 1))
    assert lines(show((10**12, 2))) == ["1000000000000    2"]
    assert lines(show((3, 4))) == ["            3    4"]


def test_rows_before_the_heading_is_printed_have_the_widths_of_the_widest() -> None:
    show = table(n=INT64, m=INT8)
    assert lines(show((1, 1), (10**12, 2))) == [
        "            N    M",
        "            1    1",
        "1000000000000    2",
    ]


def test_a_very_long_text_shifts_its_row_only() -> None:
    show = table(path=String(80), n=INT8)
    show((b"a", 1))
    assert lines(show((b"p" * 60, 2)))[0] == "p" * 60 + "    2"
    assert lines(show((b"b", 3))) == ["b" + " " * 39 + "    3"]


def test_text_that_would_break_the_line_is_shown_with_escapes() -> None:
    show = table(a=String(12), n=INT8, b=String(80))
    show((b"", 0, b""))
    assert lines(show((b"x\ny", 1, b"two\nlines"), (b"q", 2, b"\x1b[31mred\t\x7f\xff"))) == [
        "x\\ny           1 two\\nlines",
        "q              2 \\x1b[31mred\\t\\x7f\\xff",
    ]


def test_letters_count_as_wide_as_they_are() -> None:
    show = table(a=String(12), n=INT8)
    show((b"", 0))
    assert lines(show(("é".encode(), 1), ("日本".encode(), 2), ("e\u0301".encode(), 3))) == [
        "é              1",
        "日本           2",
        "e\u0301              3",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"plain text", b"plain text"),
        ("grün".encode(), "grün".encode()),
        (b"a\nb\tc\rd", b"a\\nb\\tc\\rd"),
        (b"\x1b\x07\x7f", b"\\x1b\\x07\\x7f"),
        ("\x9b\u2028\u202e".encode(), b"\\x9b\\xe2\\x80\\xa8\\xe2\\x80\\xae"),
        (b"\xff\xc3", b"\\xff\\xc3"),
    ],
)
def test_visible(text: bytes, shown: bytes) -> None:
    assert visible(text) == shown


def test_rows_of_another_table_follow_a_heading_of_theirs() -> None:
    run = Run()
    first, second = Table(run, a=INT8), Table(run, b=INT8)
    same = Table(run, a=INT64)
    printed = "".join((first((1,)), same((2,)), second((3,)), second((4,)), first((5,))))
    wide = ["       A", "       1", "       2"]
    assert lines(printed) == [*wide, "", "   B", "   3", "   4", "", "       A", "       5"]


def test_other_output_between_rows_brings_no_heading() -> None:
    run = Run()
    rows = Table(run, a=INT8)
    text = run.event("printf", [], format="hello\n")
    rows((1,))
    run.send(text)
    assert run.printed() == b"hello\n"
    assert lines(rows((2,))) == ["   2"]


def test_what_was_dropped_brings_the_heading_back() -> None:
    rows = table(a=INT8)
    rows((1,))
    rows.run.output.drop()
    assert lines(rows((2,))) == ["", "   A", "   2"]


# ---------------------------------------------------------------------------------------------- screens


def settled(table: TextTable, count: int) -> list[str]:
    texts = [b"row\n"] * count
    table.settle(texts, range(count), lambda _at: b"again\n")
    return b"".join(texts).decode().splitlines()


def test_the_heading_comes_again_after_each_screenful() -> None:
    height = 4
    rows = TextTable(Page(lambda: height), TableSchema.of(["name"], [String(8)]))
    assert settled(rows, 5) == ["NAME", "row", "row", "row", "NAME", "row", "row"]
    assert settled(rows, 2) == ["row", "NAME", "row"]
    height = 7
    assert settled(rows, 9) == ["row", "row", "NAME", *["row"] * 6, "NAME", "row"]


def test_pages_of_tables() -> None:
    rows = TextTable(Page(), TableSchema.of(["name"], [String(8)]))
    assert settled(rows, 200) == ["NAME", *["row"] * 200]
    rows = TextTable(Page(lambda: 0), TableSchema.of(["name"], [String(8)]))
    assert settled(rows, 24) == ["NAME", *["row"] * 23, "NAME", "row"]
    rows = TextTable(Page(lambda: 3), TableSchema.of(["name"], [String(8)]))
    texts = [b"\xff\n\n", b"1\n", b"bad\x07\n", b"2\n", b"\x1b", b"3\n"]
    rows.settle(texts, [1, 3, 5], lambda _at: b"again\n")
    assert texts == [b"\xff\n\n", b"NAME\n1\n", b"bad\x07\n", b"2\n", b"\x1b", b"NAME\n3\n"]
