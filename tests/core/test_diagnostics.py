"""Sources and messages about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core import script_files
from pytrace.core.diagnostics import Diagnostics, TraceError, bytes_shown, counted, either, render_all
from pytrace.core.manifest import MAGIC
from pytrace.core.source import ExpandedSpan, Position, Source, Span, expansion_chain

# ---------------------------------------------------------------------------------------------- diagnostics
# Tests of what messages show of the script.


def rendered(text: str, start: int, end: int) -> list[str]:
    diagnostics = Diagnostics()
    diagnostics.error("wrong", Span(Source("x.bt", text), start, end))
    return render_all(diagnostics.items).splitlines()


def test_what_is_quoted_and_underlined() -> None:
    assert rendered("begin\n\t{ bad }", 9, 12) == ["x.bt:2:4-7: ERROR: wrong", "    { bad }", "      ~~~"]
    diagnostics = Diagnostics()
    diagnostics.error("wrong", Span(Source("trace", "begin { bad }", generated=True), 8, 11), hints=["try"])
    assert render_all(diagnostics.items) == "ERROR: trace: wrong\nHINT: try\n"


def test_of_a_long_line_the_part_that_is_meant_is_shown() -> None:
    for front, behind in ((100_000, 100_000), (0, 100_000), (100_000, 0), (450, 60)):
        text = "a" * front + "bad" + "c" * behind
        place, line, underline = rendered(text, front, front + 3)
        assert place == f"x.bt:1:{front + 1}-{front + 4}: ERROR: wrong"
        assert len(line) <= 506
        assert line[underline.index("~") : len(underline)] == "bad"
        assert line.startswith("...") == (front > 400)
        assert line.endswith("...") == (behind > 400)


def test_a_long_line_that_is_meant_as_a_whole() -> None:
    _, line, underline = rendered("a" * 10_000, 0, 10_000)
    assert line == "a" * 500 + "..."
    assert underline == "~" * 500


def test_of_many_lines_the_first_and_last_are_shown() -> None:
    lines = [str(number) for number in range(1, 1001)]
    text = "\n".join(lines)
    place, *shown = rendered(text, 0, len(text))
    assert place == "x.bt:1-1000: ERROR: wrong"
    assert shown == [*lines[:10], "...", *lines[-10:]]
    text = "\n".join(lines[:20])
    assert rendered(text, 0, len(text))[1:] == lines[:20]


def test_order_of_messages() -> None:
    diagnostics, place = Diagnostics(), Span(Source("x.bt", "begin"), 0, 5)
    diagnostics.note("a note", place)
    diagnostics.warn("a warning", place)
    diagnostics.error("an error", place)
    diagnostics.warn("a cause", place, cause=True)
    heads = [line for line in render_all(diagnostics.items).splitlines() if line.startswith("x.bt")]
    assert [line.split(": ", 2)[1:] for line in heads] == [
        ["WARNING", "a cause"], ["ERROR", "an error"], ["WARNING", "a warning"], ["NOTE", "a note"],
    ]  # fmt: skip
    assert [item.message for item in diagnostics.warnings] == ["a warning", "a cause"]


def test_counted() -> None:
    assert [counted(number, "argument") for number in (0, 1, 2)] == ["0 arguments", "1 argument", "2 arguments"]


def test_bytes_that_are_no_utf8_are_told_as_bytes() -> None:
    name = b"kpr\xffobe".decode("utf-8", "surrogateescape")
    diagnostics = Diagnostics()
    diagnostics.error(f"there is no provider {name!r}", Span(Source("x.bt", "abc"), 0, 3), hints=[f"not {name!r}"])
    shown = render_all(diagnostics.items)
    assert "there is no provider 'kpr\\xffobe'" in shown
    assert "HINT: not 'kpr\\xffobe'" in shown
    assert bytes_shown(repr("typed as \\udcff")) == repr("typed as \\udcff")


def test_messages_are_told_once() -> None:
    diagnostics, source = Diagnostics(), Source("x.bt", "abc")
    for number in (0, 1, 0, 2, 1):
        diagnostics.warn("same", Span(source, number, 3))
    assert [item.span.start for item in diagnostics.items] == [0, 1, 2]
    text = 'fail("nothing here");'
    diagnostics = Diagnostics()
    diagnostics.error("nothing here", Span(Source("t.bt", text), 0, len(text) - 1))
    assert render_all(diagnostics.items) == "t.bt:1:1-21: ERROR: nothing here\n"
    assert [either(tuple("abc"[:count])) for count in range(4)] == ["", "a", "a or b", "a, b or c"]


# ---------------------------------------------------------------------------------------------- source
# Positions and spans.


TEXT = "ab\ncdé\r\n\nx"
SOURCE = Source("x.bt", TEXT)


@pytest.mark.parametrize(
    ("offset", "line", "column"),
    [(0, 1, 1), (2, 1, 3), (3, 2, 1), (6, 2, 4), (8, 3, 1), (9, 4, 1), (10, 4, 2), (99, 4, 2), (-5, 1, 1)],
)
def test_positions_count_characters(offset: int, line: int, column: int) -> None:
    assert SOURCE.position(offset) == Position(line, column)


@pytest.mark.parametrize(("number", "text"), [(0, ""), (1, "ab"), (2, "cdé"), (3, ""), (4, "x"), (5, "")])
def test_lines_have_no_ends(number: int, text: str) -> None:
    assert SOURCE.line(number) == text


def test_spans() -> None:
    span = Span(SOURCE, 0, 2)
    assert (span.text, str(span)) == ("ab", "x.bt:1:1-3")
    assert str(Span(SOURCE, 0, 5)) == "x.bt:1-2"
    assert Span(SOURCE, 3, 5).to(span) == span.to(Span(SOURCE, 3, 5)) == Span(SOURCE, 0, 5)


def test_expansions() -> None:
    call, inner = Span(SOURCE, 0, 2), Span(SOURCE, 3, 4)
    middle = ExpandedSpan(SOURCE, 3, 5, call)
    deep = ExpandedSpan(SOURCE, 3, 4, middle)
    assert expansion_chain(deep) == (middle, call)
    assert expansion_chain(inner) == ()
    joined = ExpandedSpan(SOURCE, 5, 6, call).to(middle)
    assert joined == ExpandedSpan(SOURCE, 3, 6, call)
    assert str(deep) == str(inner)


# ---------------------------------------------------------------------------------------------- script files
# Scripts as files.


def test_a_text(tmp_path: Path) -> None:
    file = tmp_path / "a.bt"
    file.write_bytes(b"\xef\xbb\xbfbegin { print(\"\xff\") }\r\n")
    source, compiled = script_files.read(str(file))
    assert (source.name, source.path, compiled) == (str(file), str(file), None)
    assert source.text == 'begin { print("\udcff") }\r\n'
    assert script_files.text(str(file), "a").text == source.text
    assert script_files.text(str(file), "a").name == "a"


def test_a_compiled_script(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    file.write_bytes(MAGIC + b"\0\0")
    source, compiled = script_files.read(str(file))
    assert (source.text, compiled) == ("", MAGIC + b"\0\0")


@pytest.mark.parametrize(
    ("data", "path", "hints"),
    [
        (b"a\0b", "/a", ()),
        (b"\x7fELF\0", "/a", ("-c name runs a program and traces it",)),
        (b"\x7fELF\0", None, ()),
    ],
)
def test_other_files_are_refused(data: bytes, path: str | None, hints: tuple[str, ...]) -> None:
    with pytest.raises(TraceError, match="'name' is not a script: there are zero bytes in it") as caught:
        script_files.from_bytes("name", data, path)
    assert caught.value.hints == hints


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is a directory, not a script"):
        script_files.read(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        script_files.read(str(tmp_path / "none"))
