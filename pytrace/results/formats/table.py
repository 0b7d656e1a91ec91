"""The formats of results: what there is, and which one a user means.

A new format is a module of this package with a ``write`` (see :data:`format_row.Writer`), a function here that imports
it, and a row.
"""

from __future__ import annotations

from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.results.formats.format_row import Content, Format, FormatOption, WriteOptions, Writer

_ALL = frozenset(Content)
_METRICS = frozenset({Content.NUMBERS, Content.HISTOGRAMS, Content.SERIES})


def _text() -> Writer:
    from pytrace.results.formats import text

    return text.write


def _json() -> Writer:
    from pytrace.results.formats import json

    return json.write


def _openmetrics() -> Writer:
    from pytrace.results.formats import openmetrics

    return openmetrics.write


FORMATS: tuple[Format, ...] = (
    Format("text", "what the end of a run prints", (".txt",), _ALL, _text),
    Format("json", "the same as lines of JSON", (".json", ".jsonl"), _ALL, _json),
    Format(
        "openmetrics", "metrics as text, which Prometheus reads", (".openmetrics", ".om"), _METRICS, _openmetrics,
        options=(FormatOption("timestamps", "samples have their times: to fill a data base with what was saved"),),
    ),
)  # fmt: skip


def named(name: str) -> Format:
    """The format of a name.

    Raises:
        TraceError: there is none.
    """
    for row in FORMATS:
        if row.name == name:
            return row
    names = [row.name for row in FORMATS]
    hints = (*did_you_mean(name, names), "formats are " + ", ".join(names))
    raise TraceError(f"there is no format {name!r}", hints=hints)


def by_suffix(path: str) -> Format | None:
    """The format that the name of a file stands for; None where no format has such a suffix."""
    name = path.lower()
    found = [(len(suffix), row) for row in FORMATS for suffix in row.suffixes if name.endswith(suffix)]
    return max(found, key=lambda item: item[0])[1] if found else None


def chosen(wanted: str | None, path: str | None, *, about: bool = False) -> tuple[Format, WriteOptions]:
    """The format that ``-f`` (``NAME`` or ``NAME:OPTION,…``) asks for, else that of the file's name, else text.

    Args:
        wanted: the argument of ``-f``; None when it was not given.
        path: the file that ``-o`` names; None for standard output.
        about: as :attr:`WriteOptions.about`.

    Raises:
        TraceError: there is no such format, or it has no such option.
    """
    if wanted is not None:
        name, _, settings = wanted.partition(":")
        row = named(name)
        return row, WriteOptions(row.settings(settings), about)
    row = (by_suffix(path) if path else None) or named("text")
    return row, WriteOptions({}, about)
