from __future__ import annotations

import pytest

from pytrace.base.control_characters import printable, printable_lines, printable_message

DANGEROUS = b"\x1b]0;x\x07 \x7f \xc2\x9b2J \x9b2J \x00 \xc0\x9b \r"
SHOWN = b"\\x1b]0;x\\x07 \\x7f \\x9b2J \\x9b2J \\x00 \xc0\\x9b \\x0d"


@pytest.mark.parametrize(
    ("data", "whole", "lines"),
    [
        (b"plain ~", b"plain ~", b"plain ~"),
        (b"", b"", b""),
        ("é ✓ \xa0".encode(), "é ✓ \xa0".encode(), "é ✓ \xa0".encode()),
        (b"latin \xe9\xff", b"latin \xe9\xff", b"latin \xe9\xff"),
        (DANGEROUS, SHOWN, SHOWN),
        (b"a\tb\nc\r\n", b"a\\x09b\\x0ac\\x0d\\x0a", b"a\tb\nc\r\n"),
        (b"a\rb", b"a\\x0db", b"a\\x0db"),
        (b"\\x1b", b"\\x1b", b"\\x1b"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(data: bytes, whole: bytes, lines: bytes) -> None:
    assert printable(data) == whole
    assert printable_lines(data) == lines


def test_no_byte_of_c0_or_c1_is_left() -> None:
    for code in (*range(0x20), *range(0x7F, 0xA0)):
        for data in (bytes((code,)), chr(code).encode(), b"\xe9" + bytes((code,))):
            assert printable(data).removeprefix(b"\xe9") == b"\\x%02x" % code


def test_messages_keep_the_colours_of_pytrace() -> None:
    text = "\x1b[31mx:1:2-3: ERROR: \x1b]0;x\x07\x1b[0m\n\x1b[2mnote\x1b[m\n"
    assert printable_message(text) == "\x1b[31mx:1:2-3: ERROR: \\x1b]0;x\\x07\x1b[0m\n\x1b[2mnote\x1b[m\n"
    assert printable_message("\x1b[2J\udc9b\x9b") == "\\x1b[2J\\x9b\\x9b"
