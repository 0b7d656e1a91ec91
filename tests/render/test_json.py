"""JSON is valid whatever programs print, and loses nothing."""

from __future__ import annotations

import math
from json import loads
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.render import json
from pytrace.render.forms import JsonForms, TextForms
from pytrace.render.names import Names
from pytrace.runtime.host.clocks import Clock
from pytrace.runtime.host.host_names import HostNames
from tests.render.test_decoders import VALUES
from tests.support.encode import Symbols

FORMS = JsonForms(TextForms(Names(Symbols(), Clock(), ("%Y", ""), HostNames())))


@given(st.binary(max_size=60))
@settings(max_examples=500, deadline=None)
def test_any_bytes_survive(data: bytes) -> None:
    written = json.quoted(data)
    assert json.unquoted(loads(written.decode("utf-8"))) == data


@given(st.text(max_size=40).map(str.encode))
@settings(max_examples=300, deadline=None)
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
@settings(max_examples=500, deadline=None)
def test_names_of_members_are_distinct(names: list[bytes]) -> None:
    found = json.distinct(names)
    assert len(set(found)) == len(names) == len(found)
    first = set()
    for name, shown in zip(names, found, strict=True):
        assert shown == name if name not in first else shown.startswith(name + b" #")
        first.add(name)


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
@settings(max_examples=400, deadline=None)
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
