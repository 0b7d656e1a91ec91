from __future__ import annotations

from pytrace.multitools.specs.problems import SpecText


def test_the_word_is_underlined() -> None:
    spec = SpecText.of("p::f(int a):u32:size")
    piece = spec.part(16, 20)
    assert piece.text == "size"
    message = piece.error("unknown").message.split("\n")
    assert message == ["unknown", "p::f(int a):u32:size", " " * 16 + "~~~~"]


def test_white_space_around_a_part_is_left_out() -> None:
    piece = SpecText.of("a,  bc ,d").part(2, 7)
    assert (piece.text, piece.start) == ("bc", 4)
    assert piece.error("x", at=1).message.endswith("\n     ~")


def test_only_the_line_is_shown() -> None:
    spec = SpecText.of("one\ntwo three\nfour")
    assert spec.part(8, 13).error("x").message == "x\ntwo three\n    ~~~~~"


def test_an_empty_piece_has_a_mark() -> None:
    assert SpecText.of("").error("x").message == "x\n\n~"
