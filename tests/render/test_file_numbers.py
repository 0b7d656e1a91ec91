from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core.types import Fixed
from pytrace.render import file_numbers
from pytrace.render.decoders import Decoders

WORDS = "0.52 1.5 -2.25 7/146 1e400 4194304\n"


@pytest.mark.parametrize(
    ("word", "digits", "value"),
    [(1, 2, 52), (2, 2, 150), (3, 1, -22), (4, 2, 0), (5, 0, 10**400), (6, 0, 4194304), (7, 2, 0)],
)
def test_words(tmp_path: Path, word: int, digits: int, value: int) -> None:
    path = tmp_path / "words"
    path.write_text(WORDS)
    assert file_numbers.read(str(path), word, 10**digits) == value


def test_no_file_is_zero(tmp_path: Path) -> None:
    assert file_numbers.read(str(tmp_path / "none"), 1, 1) == 0
    path = tmp_path / "bytes"
    path.write_bytes(b"\xff\xfe\n")
    assert file_numbers.read(str(path), 1, 1) == 0


def test_values_are_read_when_they_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "words"
    kind = Fixed(100, 2, True, str(path), 1)
    decode = Decoders().decoder(kind)
    for text, value in (("0.5", 50), ("3.25", 325)):
        path.write_text(text)
        assert decode(bytes(8), 0) == value
    assert Decoders().convert(kind)[0] == "8s", "not as the number that was sent"
