"""Aligned tables: widths, headings, what is shown with escapes, screens."""

from __future__ import annotations

import pytest

from pytrace.core.types import INT8, INT64, UINT32, String
from pytrace.core.types.tables import TableSchema
from pytrace.render.tables import Page, TextTable, visible
from tests.support.encode import Run


class Table:
    """Rows of one place in a script, printed by the handlers of a run."""

    def __init__(self, run: Run, **columns: object) -> None:
        self.run = run
        self.identity = run.event("row", list(columns.values()), names=list(columns))  # type: ignore[arg-type]

    def __call__(self, *rows: tuple[object, ...]) -> str:
        self.run.send_many(self.identity, rows)
        return self.run.printed_text()


def lines(text: str) -> list[str]:
    return text.splitlines()


def table(**columns: object) -> Table:
    return Table(Run(), **columns)


def test_numbers_right_texts_left_and_the_last_text_open() -> None:
    show = table(pid=UINT32, comm=String(16), lat_us=INT64, path=String(256))
    assert lines(show((1, b"bash", 12, b"/etc/passwd"), (4194304, b"a-long-name-123", -7, b""))) == [
        "    PID COMM             LAT(us) PATH",
        "      1 bash                  12 /etc/passwd",
        "4194304 a-long-name-123       -7 ",
    ]
    assert lines(show((2, b"x", 3, b"y" * 90))) == ["      2 x                      3 " + "y" * 90]


def test_a_number_at_the_end_is_aligned() -> None:
    show = table(name=String(8), n=INT8)
    assert lines(show((b"a", 1), (b"bcdefg", -128))) == ["NAME       N", "a          1", "bcdefg  -128"]


def test_a_single_column() -> None:
    assert lines(table(n=INT8)((5,))) == ["   N", "   5"]
    assert lines(table(text=String(80))((b"any text",))) == ["TEXT", "any text"]


def test_columns_grow_with_wider_values_and_stay_so() -> None:
    show = table(n=INT64, m=INT8)
    show((1, 1))
    assert lines(show((10**12, 2))) == ["1000000000000    2"]
    assert lines(show((3, 4))) == ["            3    4"]


def test_rows_before_the_heading_is_printed_have_the_widths_of_the_widest() -> None:
    show = table(n=INT64, m=INT8)
    assert lines(show((1, 1), (10**12, 2))) == [
        "            N    M",
        "            1    1",
        "1000000000000    2",
    ]


def test_a_very_long_text_shifts_its_row_only() -> None:
    show = table(path=String(80), n=INT8)
    show((b"a", 1))
    assert lines(show((b"p" * 60, 2)))[0] == "p" * 60 + "    2"
    assert lines(show((b"b", 3))) == ["b" + " " * 39 + "    3"]


def test_text_that_would_break_the_line_is_shown_with_escapes() -> None:
    show = table(a=String(12), n=INT8, b=String(80))
    show((b"", 0, b""))
    assert lines(show((b"x\ny", 1, b"two\nlines"), (b"q", 2, b"\x1b[31mred\t\x7f\xff"))) == [
        "x\\ny           1 two\\nlines",
        "q              2 \\x1b[31mred\\t\\x7f\\xff",
    ]


def test_letters_count_as_wide_as_they_are() -> None:
    show = table(a=String(12), n=INT8)
    show((b"", 0))
    assert lines(show(("é".encode(), 1), ("日本".encode(), 2), ("e\u0301".encode(), 3))) == [
        "é              1",
        "日本           2",
        "e\u0301              3",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"plain text", b"plain text"),
        ("grün".encode(), "grün".encode()),
        (b"a\nb\tc\rd", b"a\\nb\\tc\\rd"),
        (b"\x1b\x07\x7f", b"\\x1b\\x07\\x7f"),
        ("\x9b\u2028\u202e".encode(), b"\\x9b\\xe2\\x80\\xa8\\xe2\\x80\\xae"),
        (b"\xff\xc3", b"\\xff\\xc3"),
    ],
)
def test_visible(text: bytes, shown: bytes) -> None:
    assert visible(text) == shown


def test_rows_of_another_table_follow_a_heading_of_theirs() -> None:
    run = Run()
    first, second = Table(run, a=INT8), Table(run, b=INT8)
    same = Table(run, a=INT64)
    printed = "".join((first((1,)), same((2,)), second((3,)), second((4,)), first((5,))))
    wide = ["       A", "       1", "       2"]
    assert lines(printed) == [*wide, "", "   B", "   3", "   4", "", "       A", "       5"]


def test_other_output_between_rows_brings_no_heading() -> None:
    run = Run()
    rows = Table(run, a=INT8)
    text = run.event("printf", [], format="hello\n")
    rows((1,))
    run.send(text)
    assert run.printed() == b"hello\n"
    assert lines(rows((2,))) == ["   2"]


def test_what_was_dropped_brings_the_heading_back() -> None:
    rows = table(a=INT8)
    rows((1,))
    rows.run.output.drop()
    assert lines(rows((2,))) == ["", "   A", "   2"]


# ---------------------------------------------------------------------------------------------- screens


def settled(table: TextTable, count: int) -> list[str]:
    texts = [b"row\n"] * count
    table.settle(texts, range(count), lambda _at: b"again\n")
    return b"".join(texts).decode().splitlines()


def test_the_heading_comes_again_after_each_screenful() -> None:
    height = 4
    rows = TextTable(Page(lambda: height), TableSchema.of(["name"], [String(8)]))
    assert settled(rows, 5) == ["NAME", "row", "row", "row", "NAME", "row", "row"]
    assert settled(rows, 2) == ["row", "NAME", "row"]
    height = 7
    assert settled(rows, 9) == ["row", "row", "NAME", *["row"] * 6, "NAME", "row"]


def test_elsewhere_than_on_a_terminal_it_comes_once() -> None:
    rows = TextTable(Page(), TableSchema.of(["name"], [String(8)]))
    assert settled(rows, 200) == ["NAME", *["row"] * 200]


def test_a_terminal_that_does_not_know_its_size_has_24_lines() -> None:
    rows = TextTable(Page(lambda: 0), TableSchema.of(["name"], [String(8)]))
    assert settled(rows, 24) == ["NAME", *["row"] * 23, "NAME", "row"]


def test_only_the_places_of_rows_are_looked_at() -> None:
    rows = TextTable(Page(lambda: 3), TableSchema.of(["name"], [String(8)]))
    texts = [b"\xff\n\n", b"1\n", b"bad\x07\n", b"2\n", b"\x1b", b"3\n"]
    rows.settle(texts, [1, 3, 5], lambda _at: b"again\n")
    assert texts == [b"\xff\n\n", b"NAME\n1\n", b"bad\x07\n", b"2\n", b"\x1b", b"NAME\n3\n"]
