"""Tables as text for people: aligned columns under a heading.

The widths of columns follow their types and grow with wider values.  Rows are formatted by one operation whose result
has a known length while all values fit (:class:`pytrace.render.events.RowFormatter`); only what does not
fit is looked at value by value here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from pytrace.base.control_characters import printable_text
from pytrace.core import types
from pytrace.render.values import value_kind_of

if TYPE_CHECKING:
    from pytrace.core.value_tables import Column, TableSchema
    from pytrace.render.forms import TextForms
    from pytrace.render.text import Form

Cell = int | bytes
"""A value in a row: a number, or a text."""
Again = Callable[[int], bytes]
"""``again(i)``: the text of the row at place *i* among texts, formatted with care."""

_INTEGER_WIDTHS = {1: 4, 2: 6, 4: 7, 8: 8}
"""Digits that integers usually have, by their bytes: process ids take seven."""
_STRING = 16
"""The width at which columns of longer strings start: that of a process's name."""
_MOST = 40
"""A text column grows no wider than this for a longer text: its row is shifted."""
_HEIGHT = 24
"""Lines of a terminal that does not know its size."""

_CONTROLS = tuple(bytes((code,)) for code in (*range(10), *range(11, 32), 127))
"""Control characters but the end of the line."""


class Page:
    """The state that the headings of a run share: the table that was printed last, and the rows left on the screen.

    *height* returns the lines of the terminal that the output goes to, None where it goes elsewhere; *cuts* changes
    when printed rows may no longer be visible (:attr:`pytrace.runtime.output.streams.Output.cuts`).
    """

    def __init__(self, height: Callable[[], int] | None = None, cuts: Callable[[], int] = int) -> None:
        self.height = height
        self.cuts = cuts
        self.last: Table | None = None
        self.used = False
        self.left = 0
        self._cuts = 0

    def due(self, table: Table) -> bool:
        """True if the heading of *table* comes before its next row."""
        if (cuts := self.cuts()) != self._cuts:
            self._cuts, self.last = cuts, None
        return self.last is not table

    def begin(self, table: Table | None) -> bool:
        """A table begins, or one that comes as a whole (None); whether another was printed before."""
        self.last = table
        before, self.used = self.used, True
        return before

    def clear(self) -> None:
        """The screen is empty: headings come again, without an empty line before the first."""
        self.last, self.used = None, False

    def rows(self) -> int:
        """Rows that fit the screen under a heading."""
        if self.height is None:
            return 0
        return max(1, (self.height() or _HEIGHT) - 1)


class Table:
    """Where the rows of one table go: before the first of them, and after those of another table, comes a heading."""

    def __init__(self, page: Page, heading: bytes, gap: bytes) -> None:
        self.page = page
        self._heading = heading
        """The line above the rows."""
        self._gap = gap

    def settle(self, texts: list[bytes], positions: Sequence[int], again: Again) -> None:
        """The rows at *positions* of *texts* are printed next, in this order: see to their form and headings."""
        self.clean(texts, positions, again)
        self.head(texts, positions, again)

    @staticmethod
    def settle_among(texts: list[bytes], places: Sequence[tuple[int, Table]], again: Again) -> None:
        """As :meth:`settle` for rows of several tables: each place with its table, in the order of printing."""
        by_table: dict[Table, list[int]] = {}
        for index, table in places:
            by_table.setdefault(table, []).append(index)
        for table, positions in by_table.items():
            table.clean(texts, positions, again)
        for table, run in groupby(places, itemgetter(1)):
            table.head(texts, [index for index, _ in run], again)

    def clean(self, texts: list[bytes], positions: Sequence[int], again: Again) -> None:
        """See to rows that may not be one line."""

    def head(self, texts: list[bytes], positions: Sequence[int], again: Again) -> None:
        """Add the headings that are due to the rows that they come before."""
        if positions and self.page.due(self):
            self._begin(texts, positions, again)

    def _begin(self, texts: list[bytes], positions: Sequence[int], again: Again) -> None:  # noqa: ARG002
        first = positions[0]
        gap = self._gap if self.page.begin(self) else b""
        texts[first] = gap + self._heading + texts[first]


class TextTable(Table):
    """A table with aligned columns; values of the columns *below* (by number) stand on lines below their row."""

    def __init__(self, page: Page, schema: TableSchema, below: Sequence[int] = ()) -> None:
        super().__init__(page, b"", b"\n")
        self.below = tuple(below)
        columns = [item for index, item in enumerate(schema.columns) if index not in self.below]
        self._columns = columns
        self._widths = [max(len(item.title), _width(item)) for item in columns]
        self.open = not columns[-1].right
        """The last column is text, which has no fixed width."""
        self._aligned = len(columns) - self.open
        self._textual = any(not item.right for item in columns)
        self._grown = False
        self.form, self.width = b"", 0
        """The format of a row, and how long its result is while all values fit, without the value of an open column."""
        self._measure()

    def _measure(self) -> None:
        aligned = list(zip(self._columns, self._widths, strict=True))[: self._aligned]
        parts = [b"%%%s%d%s" % (_side(item), width, b"d" if item.number else b"s") for item, width in aligned]
        self.form = b" ".join([*parts, b"%s"] if self.open else parts) + b"\n"
        self.width = sum(width + 1 for _, width in aligned) + self.open
        self._heading = self._line([item.title.encode(errors="surrogateescape") for item in self._columns])

    # ---- rows

    def clean(self, texts: list[bytes], positions: Sequence[int], again: Again) -> None:
        """A row that is not one line of plain text is made again, with escapes."""
        if self.below:
            for index in positions:
                texts[index] = again(index)
            return
        rows = texts if len(positions) == len(texts) else [texts[index] for index in positions]
        if self._textual and _suspicious(rows):
            for index in positions:
                if _suspicious([texts[index]]):
                    texts[index] = again(index)

    def head(self, texts: list[bytes], positions: Sequence[int], again: Again) -> None:
        """As :meth:`Table.head`, and on a terminal a heading after each screenful."""
        super().head(texts, positions, again)
        if self.page.height is not None:
            self._repeat(texts, positions)

    def _begin(self, texts: list[bytes], positions: Sequence[int], again: Again) -> None:
        if self._grown:
            # While the heading is not printed, all rows can have the widths of the widest.
            for index in positions:
                texts[index] = again(index)
            self._grown = False
        super()._begin(texts, positions, again)
        self.page.left = self.page.rows()

    def _repeat(self, texts: list[bytes], positions: Sequence[int]) -> None:
        page = self.page
        for index in positions:
            if page.left == 0:
                texts[index] = self._heading + texts[index]
                page.left = page.rows()
                self._grown = False
            page.left -= 1

    def row(self, values: Sequence[Cell]) -> bytes:
        """A row of *values*, that of an open column included."""
        aligned, last = self._split(values)
        text = self.form % tuple(values)
        fits = len(text) == self.width + (len(last) if last is not None else 0)
        return text if fits else self.wide(aligned, last)

    def careful_row(self, values: Sequence[Cell]) -> bytes:
        """As :meth:`careful` of *values*, that of an open column included."""
        return self.careful(*self._split(values))

    def _split(self, values: Sequence[Cell]) -> tuple[Sequence[Cell], bytes | None]:
        if not self.open:
            return values, None
        last = values[-1]
        assert isinstance(last, bytes)
        return values[:-1], last

    def wide(self, values: Sequence[Cell], last: bytes | None = None) -> bytes:
        """A row whose values do not all fit: the columns grow. *last* is the value of an open column."""
        texts = [b"%d" % value if isinstance(value, int) else value for value in values]
        before = list(self._widths)
        for index, (item, text) in enumerate(zip(self._columns, texts)):  # noqa: B905
            columns = _columns(text)
            if not item.right:
                columns = min(columns, max(_MOST, self._widths[index]))
            self._widths[index] = max(columns, self._widths[index])
        if self._widths != before:
            self._grown = True
            self._measure()
        return self._line(texts if last is None else [*texts, last])

    def careful(self, values: Sequence[Cell], last: bytes | None = None) -> bytes:
        """A row with escapes in place of what would break its line or its alignment."""
        shown = [value if isinstance(value, int) else visible(value) for value in values]
        return self.wide(shown, None if last is None else visible(last))

    def _line(self, texts: list[bytes]) -> bytes:
        parts = []
        for item, width, text in list(zip(self._columns, self._widths, texts, strict=True))[: self._aligned]:
            fill = b" " * (width - _columns(text))
            parts.append(fill + text if item.right else text + fill)
        return b" ".join([*parts, *texts[self._aligned :]]) + b"\n"


def _width(column: Column) -> int:
    """The initial width of a column."""
    type_ = column.type
    if isinstance(type_, types.Int):
        return _INTEGER_WIDTHS.get(type_.width, 20)
    if isinstance(type_, types.String):
        return max(1, min(type_.capacity - 1, _STRING))
    if isinstance(type_, types.Enum):
        return min(max((len(name) for name, _ in type_.members), default=0), _MOST)
    return value_kind_of(type_).width or (_INTEGER_WIDTHS[8] if column.right else _STRING)


def _side(column: Column) -> bytes:
    """The flag of a conversion that puts values to the column's side."""
    return b"" if column.right else b"-"


def _suspicious(rows: list[bytes]) -> bool:
    """True if a row may not be one line of plain text."""
    whole = b"".join(rows)
    # Of all ways to look at many bytes, searching for one of them at a time is the fastest.
    return not whole.isascii() or whole.count(b"\n") != len(rows) or any(code in whole for code in _CONTROLS)


_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: bytes) -> bytes:
    """*text* with what :mod:`pytrace.base.control_characters` escapes as escapes (``\\n``, ``\\x1b``)."""
    if text.isascii() and text.decode().isprintable():
        return text
    letters = text.decode("utf-8", "surrogateescape")
    return "".join([_SHORT.get(letter) or printable_text(letter) for letter in letters]).encode()


def _columns(text: bytes) -> int:
    """Columns of a terminal that *text* takes."""
    if text.isascii():
        return len(text)
    letters = text.decode("utf-8", "replace")
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in letters)
    return len(letters) + wide - sum(unicodedata.category(letter) in ("Mn", "Me", "Cf") for letter in letters)


# ---------------------------------------------------------------------------------------------- values


def cell(forms: TextForms, type_: types.Type) -> Form | None:
    """The form of values in one cell of a table, numbers excepted; None for a string that is its own text."""
    if isinstance(type_, types.String) and not forms.printable:
        return None
    form = forms.form(type_)
    return one_line(form) if any(isinstance(inner, types.Stack) for inner in types.parts([type_])) else form


def one_line(form: Form) -> Form:
    """The frames of a stack with semicolons between them, innermost first."""
    return lambda value: b";".join([line.strip() for line in form(value).split(b"\n") if line.strip()])
