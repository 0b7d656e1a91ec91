"""CSV: what Python's csv module reads is what was written."""

from __future__ import annotations

import csv as reader
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.runtime.output.render import csv
from pytrace.runtime.output.render.json import unquoted


@pytest.mark.parametrize(
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
        (b"\xff", "\uffffffff".encode()),
        ("\uffff".encode(), "\uffffffef\uffffffbf\uffffffbf".encode()),
    ],
)
def test_fields(text: bytes, field: bytes) -> None:
    assert csv.field(text) == field


def test_lines() -> None:
    assert csv.line([b"a", b"b,c"]) == b'a,"b,c"\r\n'
    assert csv.line([b""]) == b'""\r\n'
    assert csv.line([b"", b""]) == b",\r\n"


@given(st.lists(st.lists(st.binary(max_size=12), min_size=3, max_size=3), max_size=5))
def test_what_is_written_is_read_back(rows: list[list[bytes]]) -> None:
    text = b"".join(csv.line(row) for row in rows).decode()
    found = list(reader.reader(io.StringIO(text, newline=""), strict=True))
    assert [[unquoted(field) for field in row] for row in found] == rows
