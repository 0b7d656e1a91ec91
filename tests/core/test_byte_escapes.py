from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core import byte_escapes


@pytest.mark.parametrize(
    ("text", "utf8", "shown"),
    [
        (b"plain\ttext\r\n", "plain\ttext\r\n", b"plain\ttext\r\n"),
        ("grün →".encode(), "grün →", "grün →".encode()),
        (b"a\xffb\xc3", "a\\xffb\\xc3", b"a\\xffb\\xc3"),
        (b"\x1b[1m\x00\x7f", "\x1b[1m\x00\x7f", b"\\x1b[1m\\x00\\x7f"),
        ("\x9b".encode(), "\x9b", b"\\xc2\\x9b"),
        (rb"C:\x \xff \\x1b", r"C:\x \x5cxff \\x5cx1b", rb"C:\x \x5cxff \\x5cx1b"),
    ],
)
def test_escapes(text: bytes, utf8: str, shown: bytes) -> None:
    assert byte_escapes.utf8(text) == utf8
    assert byte_escapes.shown(text) == shown


@given(st.binary(max_size=12) | st.text("\\x5c0f\x1b\x9bé", max_size=12).map(str.encode))
def test_nothing_is_lost(text: bytes) -> None:
    assert byte_escapes.unescaped(byte_escapes.utf8(text).encode()) == text
    assert byte_escapes.unescaped(byte_escapes.shown(text)) == text
