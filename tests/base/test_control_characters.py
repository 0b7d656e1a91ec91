from __future__ import annotations

import unicodedata

import pytest

from pytrace.base.control_characters import printable, printable_lines, printable_message, printable_text

DANGEROUS = b"\x1b]0;x\x07 \x7f \xc2\x9b2J \x9b2J \x00 \xc0\x9b \r"
SHOWN = b"\\x1b]0;x\\x07 \\x7f \\x9b2J \\x9b2J \\x00 \\xc0\\x9b \\x0d"


@pytest.mark.parametrize(
    ("data", "whole", "lines"),
    [
        (b"plain ~", b"plain ~", b"plain ~"),
        (b"", b"", b""),
        ("é ✓ \xa0".encode(), "é ✓ \xa0".encode(), "é ✓ \xa0".encode()),
        (b"latin \xe9\xff", b"latin \\xe9\\xff", b"latin \\xe9\\xff"),
        ("user\u202etxt.exe".encode(), b"user\\xe2\\x80\\xaetxt.exe", b"user\\xe2\\x80\\xaetxt.exe"),
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
            assert printable(data).removeprefix(b"\\xe9") == b"\\x%02x" % code


def test_what_is_not_seen_or_reorders_text_is_escaped() -> None:
    """All format characters of Unicode that are not seen themselves; digits and letters of any script stay."""
    visible = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    unseen = [
        code for code in range(0x110000)
        if unicodedata.category(chr(code)) in ("Cf", "Zl", "Zp")
        and code not in visible and not 0x13430 <= code < 0x13460 and not 0x1BCA0 <= code < 0x1D180
    ]  # fmt: skip
    assert len(unseen) > 100
    for code in unseen:
        escaped = "".join(f"\\x{byte:02x}" for byte in chr(code).encode())
        assert printable_lines(f"a{chr(code)}b".encode()) == f"a{escaped}b".encode()
        assert printable_text(f"a{chr(code)}b") == printable_message(f"a{chr(code)}b") == f"a{escaped}b"
    shown = "名前 имя नाम اسم 👍🏽 é"
    assert printable_text(shown) == shown


def test_messages_keep_the_colours_of_pytrace() -> None:
    text = "\x1b[31mx:1:2-3: ERROR: \x1b]0;x\x07\x1b[0m\n\x1b[2mnote\x1b[0m\n"
    assert printable_message(text) == "\x1b[31mx:1:2-3: ERROR: \\x1b]0;x\\x07\x1b[0m\n\x1b[2mnote\x1b[0m\n"
    assert printable_message("\x1b[2J\udc9b\x9b") == "\\x1b[2J\\x9b\\x9b"


def test_names_in_messages_have_no_colours() -> None:
    assert printable_message("WARNING: a\x1b[31mb\x1b[8mc\x1b[0m d\n") == "WARNING: a\\x1b[31mb\\x1b[8mc\\x1b[0m d\n"
    assert printable_message("\x1b[8mhidden\n") == "\\x1b[8mhidden\n"


def test_surrogates_of_no_byte_are_escaped() -> None:
    assert printable_text("a\ud800\udfff\udcff") == "a\\ud800\\udfff\\xff"
