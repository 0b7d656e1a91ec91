"""Reading printf formats."""

from __future__ import annotations

import pytest

from pytrace.frontend import formats


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b"", []),
        (b"100%%", []),
        (b"%d %s", ["d", "s"]),
        (b"%-5d|%+d|% d|%#x|%05d", ["d", "d", "d", "x", "d"]),
        (b"%lld %hhu %zu %lx", ["d", "u", "u", "x"]),
        (b"%.3d %10.2s %*d %.*s", ["d", "s", "d", "s"]),
        (b"%r %rx %rh %gr", ["r", "rx", "rh", "gr"]),
        (b"%rxyz", ["rx"]),
        (b"%c%p%i%o%X", ["c", "p", "i", "o", "X"]),
        (b"\xff%d", ["d"]),
    ],
)
def test_parse(text: bytes, names: list[str]) -> None:
    assert [item.name for item in formats.parse(text)] == names


@pytest.mark.parametrize("text", [b"%", b"abc %", b"%5", b"%y", b"%e", b"%n", b"%ll"])
def test_refused(text: bytes) -> None:
    with pytest.raises(formats.FormatError):
        formats.parse(text)
