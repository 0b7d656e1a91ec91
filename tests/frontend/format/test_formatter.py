"""The formatter as a whole: what it leaves alone."""

from __future__ import annotations

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.syntax import formatter
from tests.support.rows import each_row


def fmt(text: str) -> str:
    diagnostics = Diagnostics()
    found = formatter.format_source(Source("t", text), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
    again = formatter.format_source(Source("t", found), diagnostics)
    assert again == found
    return found


def test_wrong_scripts_are_not_touched() -> None:
    diagnostics = Diagnostics()
    text = "begin   { $a = ; }"
    assert formatter.format_source(Source("t", text), diagnostics) == text
    assert diagnostics.errors


@each_row("before", ["", "\n\n", "// c\n", "/* a\n b */\n", "  "])
@each_row("line", ["#!/usr/bin/env pytrace", "#! /usr/bin/env -S pytrace -q \t", "#!"])
@each_row("behind", ["\n", "\n\n\n// x\n", "\n#define X 1\n"])
@each_row("end", ["\n", "\r\n"])
def test_interpreter_line(before: str, line: str, behind: str, end: str) -> None:
    text = f"{before}{line}{behind}begin {{ exit(); }}\n".replace("\n", end)
    once = fmt(text)
    assert once.count("\r") == 0
    assert line.rstrip() in once.splitlines()


def test_windows_line_ends() -> None:
    text = "#define A \\\n  5\nstruct foo {\n  int a; /* x\n y */\n};\n\nbegin {\n    print(A); // e\n}\n"
    assert fmt(text.replace("\n", "\r\n")) == text


def test_windows_line_ends_stay_where_there_are_errors() -> None:
    text = "begin { print( }\r\n"
    diagnostics = Diagnostics()
    assert formatter.format_source(Source("x", text), diagnostics) == text
    assert diagnostics.failed
