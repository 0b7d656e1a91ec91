"""Reading printf formats."""

from __future__ import annotations

import pytest

from pytrace.frontend.check.inference import formats


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
    found = formats.parse(text)
    assert [item.name for item in found.conversions] == names
    assert found.text == text
    assert found.stray == ()


@pytest.mark.parametrize(
    ("text", "runtime", "names", "stray"),
    [
        (b"%", b"%%", [], ("%",)),
        (b"100%\n", b"100%%\n", [], ("%",)),
        (b"abc %", b"abc %%", [], ("%",)),
        (b"%5", b"%%5", [], ("%5",)),
        (b"%y", b"%%y", [], ("%y",)),
        (b"%ll", b"%%ll", [], ("%ll",)),
        (b"%-", b"%%-", [], ("%-",)),
        (b"%+-d", b"%%+-d", [], ("%+-d",)),
        (b"%y%d%", b"%%y%d%%", ["d"], ("%y", "%")),
        (b"50%%%d%y", b"50%%%d%%y", ["d"], ("%y",)),
        (b"%\xff%s", b"%%\xff%s", ["s"], ("%",)),
    ],
)
def test_percent_signs_of_no_conversion(text: bytes, runtime: bytes, names: list[str], stray: tuple[str, ...]) -> None:
    found = formats.parse(text)
    assert found.text == runtime
    assert [item.name for item in found.conversions] == names
    assert found.stray == stray


@pytest.mark.parametrize("text", [b"%e", b"%n", b"abc %5.2f", b"%y %G"])
def test_refused(text: bytes) -> None:
    with pytest.raises(formats.FormatError):
        formats.parse(text)
