"""The table of the formats of results, the choice of one by name or suffix, and of what it shows of a snapshot.

A new format is a module of this package with a ``write`` (see :data:`format_row.Writer`), and a row here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.core.types import Count
from pytrace.results.formats import (
    about,
    firefox,
    folded,
    openmetrics,
    perfetto,
    pprof,
    report_page,
    speedscope,
    svg,
    tabular,
    text_and_json,
)
from pytrace.results.formats.format_row import Content, Format, FormatOption, WriteOptions, content
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import SnapshotData

_ALL = frozenset(Content)
_METRICS = frozenset({Content.NUMBERS, Content.HISTOGRAMS, Content.SERIES})
_STACKS = frozenset({Content.STACKS})
_ROWS = FormatOption("rows", "of several tables of rows this one, from 1", "NUMBER")


def _whole(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def _forms() -> report_page.Forms:
    return report_page.Forms(Printers(), about.lines, about.losses)


FORMATS: tuple[Format, ...] = (
    Format("text", "what the end of a run prints", (".txt",), _ALL, text_and_json.write_text),
    Format("json", "the same as lines of JSON", (".json", ".jsonl"), _ALL, text_and_json.write_json),
    Format(
        "folded", "a line for each stack, for FlameGraph", (".folded",), _STACKS, folded.write,
        differential=folded.differential, adds=True,
        options=(
            FormatOption("process", "of the keys beside stacks only the first string is shown, as root frame"),
            FormatOption("stacks", "keys beside stacks are not shown"),
            FormatOption("ordered", "keys beside stacks are frames, all in the order in which they are in the key"),
            FormatOption("annotate", "kernel functions end with _[k], inlined ones with _[i]"),
            FormatOption("value", "what is shown of avg and stats: total, count or average", "NAME"),
        ),
    ),
    Format(
        "speedscope", "profiles for speedscope.app", (".speedscope.json", ".speedscope"), _STACKS, speedscope.write,
        options=(FormatOption("together", "keys beside stacks are root frames, not profiles of their own"),),
    ),
    Format(
        "firefox", "a profile for profiler.firefox.com: stacks, and rows with a time", (".firefox.json",),
        frozenset({Content.STACKS, Content.ROWS}), firefox.write,
    ),
    Format(
        "pprof", "a profile for go tool pprof", (".pb.gz", ".pprof"), _STACKS, pprof.write, binary=True,
        options=(FormatOption("hz", "the frequency of the samples that were counted: CPU time is shown too", "N"),),
    ),
    Format(
        "svg", "pictures: flame graphs, histograms, heat maps, lines, tables", (".svg",), _ALL, svg.write,
        differential=svg.differential,
        series=svg.series,
        options=(
            FormatOption("flame", "flame graphs have the root at the bottom"),
            FormatOption("reversed", "flame graphs have callers above callees"),
            FormatOption("color", "of flame graphs: kind (user, kernel) or module", "NAME"),
            FormatOption("heat", "histograms of one map are a heat map: keys × buckets"),
            FormatOption("bars", "histograms are bars also where a map has many keys"),
            FormatOption("width", "of the picture, in pixels: 1200 without it", "PIXELS"),
        ),
    ),
    Format(
        "csv", "tables by RFC 4180, as -f csv of a run prints them", (".csv",), _ALL, tabular.write_csv, tables=True
    ),
    Format(
        "arrow", "one map or table, as Arrow IPC file", (".arrow", ".feather"), _ALL, tabular.write_arrow, binary=True,
        options=(_ROWS,), library="pyarrow", extra="arrow", tables=True,
    ),
    Format(
        "parquet", "one map or table, as Parquet file", (".parquet",), _ALL, tabular.write_parquet, binary=True,
        options=(_ROWS,), library="pyarrow", extra="arrow", tables=True,
    ),
    Format(
        "openmetrics", "metrics as text, which Prometheus reads", (".openmetrics", ".om"), _METRICS, openmetrics.write,
        options=(FormatOption("timestamps", "samples have their times: to fill a data base with what was saved"),),
    ),
    Format(
        "perfetto", "a trace for ui.perfetto.dev: rows, time series, stacks", (".pftrace", ".perfetto-trace"),
        frozenset({Content.STACKS, Content.SERIES, Content.ROWS}),
        lambda snapshot, _options, file: perfetto.write(snapshot, file), binary=True,
    ),
    Format(
        "html", "a report with pictures: one page for a browser", (".html", ".htm"), _ALL,
        lambda snapshot, _options, file: _whole(file, report_page.single(snapshot, _forms())), binary=True,
        differential=lambda before, after, options: report_page.differential(before, after, _forms(), options.notes),
        series=lambda snapshots, _options: report_page.series(snapshots, _forms()), prepare=report_page.viewer,
    ),
)  # fmt: skip


def named(name: str) -> Format:
    """The format of a name.

    Raises:
        TraceError: there is none.
    """
    for row in FORMATS:
        if row.name == name or f".{name}" == row.suffixes[-1] == ".jsonl":
            return row
    names = [row.name for row in FORMATS]
    hints = (*did_you_mean(name, names), "formats are " + ", ".join(names))
    raise TraceError(f"there is no format {name!r}", hints=hints)


_OTHERS = frozenset({
    # pictures, documents
    ".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".ps", ".eps", ".dot",
    # tables
    ".xml", ".yaml", ".yml", ".toml", ".tsv", ".xls", ".xlsx", ".ods",
    ".ndjson", ".avro", ".orc", ".h5", ".db", ".sqlite", ".msgpack", ".ipc",
    # compressed files
    ".gz", ".zst", ".xz", ".bz2", ".zip", ".tar",
    # profiles, metrics, snapshots
    ".pb", ".proto", ".prof", ".cpuprofile", ".collapsed", ".perf",
    ".perfetto", ".trace", ".prom", ".pcap", ".pcapng", ".pts",
})  # fmt: skip
"""Suffixes of other formats, in which a run cannot be written."""


def by_suffix(path: str) -> Format | None:
    """The format that the name of a file stands for; None for names that say nothing about it: text.

    Raises:
        TraceError: the suffix is that of another format.
    """
    name = path.lower()
    matches = [(len(suffix), row) for row in FORMATS for suffix in row.suffixes if name.endswith(suffix)]
    if matches:
        return max(matches, key=lambda item: item[0])[1]
    suffix = os.path.splitext(name)[1]
    names = [row.name for row in FORMATS]
    if suffix in _OTHERS:
        raise TraceError(f"no format has the suffix {suffix!r} of {path!r}", hints=_suffix_hints(suffix, names))
    return None


def _suffix_hints(suffix: str, names: list[str]) -> tuple[str, ...]:
    suffixes = [known for row in FORMATS for known in row.suffixes]
    saved = ("--save FILE saves a snapshot",) if suffix == ".pts" else ()
    return (
        *saved,
        "suffixes of formats are " + " ".join(suffixes),
        "-f NAME chooses the format of a file of any name: " + ", ".join(names),
    )


def chosen(wanted: str | None, path: str | None, *, about: bool = False) -> tuple[Format, WriteOptions]:
    """The format that ``-f`` (``NAME`` or ``NAME:OPTION,…``) asks for, else that of the file's name, else text.

    Args:
        wanted: the argument of ``-f``; None without one.
        path: the file that ``-o`` names; None for standard output.
        about: as :attr:`WriteOptions.about`.

    Raises:
        TraceError: there is no such format, or it has no such option; or the file's suffix is that of another format.
    """
    if wanted is not None:
        name, _, settings = wanted.partition(":")
        row = named(name)
        return row, WriteOptions(row.settings(settings), about)
    row = (by_suffix(path) if path else None) or named("text")
    return row, WriteOptions({}, about)


# ---------------------------------------------------------------------------------------------- selection

_ALL_ROWS = "rows"
"""The name under which all tables are selected."""


class Selection(msgspec.Struct, frozen=True):
    """A part of a snapshot."""

    snapshot: SnapshotData
    left_out: tuple[str, ...]
    """A sentence for each map that was left out because the format cannot show it, and for what it mixes."""


def select(snapshot: SnapshotData, row: Format, names: Sequence[str] = ()) -> Selection:
    """The part of *snapshot* that *row* shows.

    Args:
        snapshot: the snapshot, which is not changed.
        row: the format.
        names: names of maps (with or without ``@``), or :data:`_ALL_ROWS` for the tables; none: everything that fits.

    Raises:
        TraceError: a map does not exist, one of *names* does not fit the format, or nothing at all fits. A snapshot
            without anything fits every format.
    """
    contents = {name: content(data) for name, data in snapshot.maps.items()}
    if snapshot.tables:
        contents[_ALL_ROWS] = Content.ROWS
    chosen = [_known(name, contents) for name in names] or list(contents)
    wrong = [name for name in chosen if contents[name] not in row.shows]
    if wrong and (names or len(wrong) == len(chosen)):
        raise _cannot(row, [(name, contents[name]) for name in wrong])
    fits = set(chosen) - set(wrong)
    part = SnapshotData(
        snapshot.runs,
        {name: data for name, data in snapshot.maps.items() if name in fits},
        snapshot.tables if _ALL_ROWS in fits else (),
        snapshot.losses,
        costs=snapshot.costs,
        prints=tuple(item for item in snapshot.prints if item.map in fits),
    )
    sentences = [_sentence(row, name, contents[name]) for name in wrong]
    units = {
        name: data.unit or ("samples" if isinstance(data.value, Count) else "") for name, data in part.maps.items()
    }
    if row.adds and len(set(units.values())) > 1:
        shown = ", ".join(f"{name} ({unit})" if unit else name for name, unit in units.items())
        sentences.append(f"readers of format {row.name} add up numbers of different kinds: {shown}; --map chooses one")
    return Selection(part, tuple(sentences))


def apart(snapshot: SnapshotData) -> Iterator[tuple[str, SnapshotData]]:
    """Each map and each table of rows of *snapshot* alone, with the stem of a file name for it."""
    for name, data in snapshot.maps.items():
        prints = tuple(item for item in snapshot.prints if item.map == name)
        yield name.removeprefix("@") or "at", replace(snapshot, maps={name: data}, tables=(), prints=prints)
    for number, table in enumerate(snapshot.tables, 1):
        stem = _ALL_ROWS if len(snapshot.tables) == 1 else f"{_ALL_ROWS}{number}"
        yield stem, replace(snapshot, maps={}, tables=(table,), prints=())


def _known(name: str, contents: dict[str, Content]) -> str:
    for known in (name, f"@{name}"):
        if known in contents:
            return known
    there = ("there are " + ", ".join(sorted(contents)),) if contents else ("the snapshot has no maps",)
    raise TraceError(f"there is no map {name!r} in the snapshot", hints=did_you_mean(name, contents) or there)


def _sentence(row: Format, name: str, held: Content) -> str:
    return f"format {row.name} cannot show {_described(name, held)}"


def _described(name: str, held: Content) -> str:
    return name if held is Content.ROWS else f"{name} ({held.value})"


def _cannot(row: Format, wrong: Iterable[tuple[str, Content]]) -> TraceError:
    items = list(wrong)
    able = sorted(held.value for held in row.shows)
    text = f"format {row.name} cannot show " + ", ".join(_described(name, held) for name, held in items)
    others = [
        f"formats that show {held.value}: {', '.join(other.name for other in FORMATS if held in other.shows)}"
        for held in dict.fromkeys(held for _, held in items)
    ]
    return TraceError(text, hints=(f"it shows {', '.join(able)}", *others))
