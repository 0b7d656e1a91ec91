"""CSV: what Python's csv module reads is what was written."""

from __future__ import annotations

import csv as reader
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.core.byte_escapes import unescaped
from pytrace.core.types import INT32
from pytrace.render import csv
from pytrace.render.forms import TextForms
from pytrace.results.formats.portable_forms import PortableNames
from tests.support.rows import each_row


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
    return unescaped(re.sub(r"\A'(?='*[=+\-@\t\r\n＝＋－＠])", "", field).encode())


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
