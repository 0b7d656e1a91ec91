"""The page of a report: one HTML file that needs no network.

What is known of the runs is plain HTML. The pictures are drawn by the viewer, a program in JavaScript that
``hatch_build.py`` bundles from ``web`` and the libraries of its lock file; their data are packed in a script element
that the browser does not run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.difference import difference
from pytrace.results.findings import duration, nothing_counted, title_of, title_of_difference, unnamed_code
from pytrace.results.formats.report_data import (
    AnyPart,
    Document,
    FlamePart,
    LinesPart,
    SpansPart,
    State,
    TablePart,
    at_end,
    cell_number,
    cell_text,
    counter_part,
    difference_part,
    flame_part,
    heat_part,
    histogram_part,
    is_number,
    map_part,
    of_prints,
    of_snapshots,
    rows_in_order,
    rows_part,
    series_part,
    shown,
    shown_names,
    spans_part,
)
from pytrace.results.row_events import has_spans
from pytrace.results.snapshot import SLICE, MapData, Run, SnapshotData
from pytrace.results.stack_samples import is_profile, is_remainder, numbers

if TYPE_CHECKING:
    from pytrace.results.formats.portable_forms import Printers


_VIEWER = ("web/dist/viewer.js", "web/dist/viewer.css", "web/dist/licences.txt")

_POLICY = "default-src 'none'; script-src {program}; style-src {style}; base-uri 'none'; form-action 'none'"
"""Content security policy of the page: it runs the viewer, by its digest, and loads nothing from anywhere."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>{header}</header>
<main id="report"><noscript>{plain}<p class="warning">Pictures and whole tables are drawn by a script that this report \
holds; this browser does not run it.</p></noscript></main>
<footer>{about}<details><summary>Licences</summary><pre>{licences}</pre></details></footer>
<script type="text/plain" id="data">{data}</script>
<script>{program}</script>
</body>
</html>
"""


MOST_RUNS = 8
"""Of more runs the list is folded."""


class Head(msgspec.Struct, frozen=True):
    """The runs of one snapshot, at the top of the page."""

    title: str
    """``Before`` and ``After`` of two, else empty."""
    runs: tuple[Run, ...]
    about: tuple[str, ...]
    """Lines about them, as ``--about`` prints them."""
    losses: tuple[str, ...]
    """Those that say what was lost."""
    states: int = 1
    """Snapshots of these runs that the page shows."""


def page(
    document: Document,
    title: str,
    heads: Sequence[Head],
    nothing: str = "nothing was counted",
    notes: Sequence[str] = (),
) -> bytes:
    """The file.

    Args:
        document: what the viewer shows.
        title: of the page.
        heads: the runs of each snapshot.
        nothing: the sentence where there is nothing to show.
        notes: sentences below the title.

    Raises:
        TraceError: the viewer was not bundled.
    """
    program, style, licences = viewer()
    program = program.replace("</script", "<\\/script")
    policy = _POLICY.format(program=_digest(program), style=_digest(style))
    header = f"<h1>{escaped(title)}</h1>" + "".join(map(_header, heads))
    header += "".join(f'<p class="when">{escaped(note)}.</p>' for note in notes)
    header += "".join(
        f'<p class="warning" role="note">{escaped(sentence)}.</p>'
        for sentence in unnamed_code(document.stacks, document.runs)
    )
    about = "".join(map(_about, heads)) + _scripts(heads)
    if about:
        about = f'<details class="about"><summary>About this run</summary>{about}</details>'
    if not document.parts:
        header += f"<p>{escaped(nothing[0].upper() + nothing[1:])}.</p>"
    text = _PAGE.format(
        policy=policy, title=escaped(title), style=style, header=header, about=about,
        plain=_plain(document), licences=escaped(licences), data=document.packed(), program=program,
    )  # fmt: skip
    return text.encode()


def folder() -> Path:
    """Where the viewer is."""
    return Path(str(resources.files("pytrace.results"))) / "report"


def viewer() -> list[str]:
    """The bundled viewer: its program, its style and the licences of its libraries. In a checkout it is bundled when it
    is missing.

    Raises:
        TraceError: it is missing and cannot be bundled.
    """
    bundler = folder().parents[2] / "hatch_build.py"
    if not (folder() / _VIEWER[0]).exists() and bundler.exists():
        with suppress(OSError):  # a run with a live view starts no program any more
            subprocess.run([sys.executable, str(bundler)], check=False, stdout=sys.stderr)
    try:
        return [(folder() / name).read_text(encoding="utf-8") for name in _VIEWER]
    except FileNotFoundError:
        hint = "scripts/build-viewer bundles it in a checkout; a package that was built without npm lacks it: -f svg"
        raise TraceError("the viewer of HTML reports is missing", hints=(hint,)) from None


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def escaped(text: str) -> str:
    """Text of anybody as HTML that is nothing but that text."""
    return html.escape(shown(text))


def _header(head: Head) -> str:
    """When and how long, in a line; and what was lost."""
    line = _moment(head.runs) + (f", {head.states} snapshots" if head.states > 1 else "")
    header = f'<p class="when">{escaped(f"{head.title}: {line}" if head.title else line)}</p>' if line else ""
    if head.losses:
        items = "".join(f"<li>{escaped(line)}</li>" for line in head.losses)
        few = " few" if len(head.losses) == 1 else ""
        header += f'<div class="warning{few}" role="note"><h2>Lost</h2><ul class="losses">{items}</ul></div>'
    return header


def _moment(runs: Sequence[Run]) -> str:
    if not runs:
        return ""
    start, end = min(run.start for run in runs), max(run.end for run in runs)
    hosts = len({run.host for run in runs})
    where = f"on {runs[0].host}" if hosts == 1 else f"on {hosts} machines"
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(start / 1e9))
    return f"{duration((end - start) / 1e9)} {where}, from {when}"


def _about(head: Head) -> str:
    """How it was run."""
    lines = [line.removeprefix("# ").rstrip("\n") for line in head.about if line.strip()]
    items = "".join(f"<li>{escaped(line)}</li>" for line in lines if line not in head.losses)
    runs = f'<ul class="runs">{items}</ul>'
    if len(head.runs) > MOST_RUNS:
        runs = f'<details class="runs"><summary>{len(head.runs)} runs</summary>{runs}</details>'
    return (f"<h2>{escaped(head.title)}</h2>" if head.title else "") + runs


def _scripts(heads: Sequence[Head]) -> str:
    """The text of each script, where snapshots have it."""
    texts = {run.text: "the script" if run.script == "-e" else run.script for head in heads for run in head.runs}
    return "".join(
        f'<details class="script"><summary>{escaped(name)}</summary><pre>{escaped(text)}</pre></details>'
        for text, name in texts.items()
        if text
    )


# ---------------------------------------------------------------------------------------------- without a script


_MOST_ROWS = 20


def _plain(document: Document) -> str:
    """The answers of all parts in words, for browsers that run no script."""
    texts = document.texts.all()
    sections = []
    for part in document.parts:
        lines = [*filter(None, [part.note]), *document.answers.get(part.name, [])]
        heads: list[str] = []
        rows: list[list[str]] = []
        if isinstance(part, TablePart):
            heads = [texts[title] for _, _, _, title in part.columns]
            rows = [
                [cell_text(texts, *item, part.boot) for item in zip(part.columns, row, strict=True)]
                for row in rows_in_order(part, texts)
            ]
        elif isinstance(part, LinesPart):
            heads = [*(texts[title] for _, _, _, title in part.columns), "highest", "last"]
            rows = list(_plain_lines(texts, part))
        elif isinstance(part, SpansPart):
            lines.append(f"{len(part.start):,} spans of {len(part.tracks):,} threads")
        if len(rows) > _MOST_ROWS:
            lines.append(f"… and {len(rows) - _MOST_ROWS:,} more rows")
        head = "".join(f"<th>{escaped(text)}</th>" for text in heads)
        body = "".join(
            f"<tr>{''.join(f'<td>{escaped(text)}</td>' for text in row)}</tr>" for row in rows[:_MOST_ROWS]
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
        said = f"<pre>{chr(10).join(map(escaped, lines))}</pre>" if lines else ""
        sections.append(f"<section><h2>{escaped(texts[part.name])}</h2>{table}{said}</section>")
    return "".join(sections)


def _plain_lines(texts: Sequence[str], part: LinesPart) -> Iterator[list[str]]:
    """Of each key its members, the highest value and the last, the highest first."""
    column = (0, part.unit, 1, 0)
    known = [[value for value in values if value is not None] for _, values in part.lines]
    highest = [max(values, key=cell_number, default="") for values in known]
    for at in sorted(range(len(known)), key=lambda at: -cell_number(highest[at])):
        key = part.keys[at] if part.columns else []
        cells = [cell_text(texts, *item) for item in zip(part.columns, key, strict=True)]
        last = known[at][-1] if known[at] else ""
        yield [*cells, cell_text(texts, column, highest[at]), cell_text(texts, column, last)]


# ---------------------------------------------------------------------------------------------- build


Lines: TypeAlias = Callable[[SnapshotData], Iterable[str]]


class Forms(msgspec.Struct, frozen=True):
    """The forms of texts that reports share with other formats."""

    printers: Printers
    """Of values."""
    about: Lines
    """Lines about the runs of a snapshot, as ``--about`` prints them."""
    losses: Lines
    """Those of them that say what was lost."""


def single(snapshot: SnapshotData, forms: Forms) -> bytes:
    """The report of one snapshot: first flame graphs, then what has a picture, then tables; each by what it holds.

    Raises:
        TraceError: the viewer was not bundled; so of all reports.
    """
    document = Document(runs=snapshot.runs)
    totals = _of_slices(snapshot)
    for name in sorted(snapshot.shown):
        if (totals is not None and name == totals.name) or is_remainder(snapshot.maps[name], snapshot):
            continue
        if states := of_prints(name, snapshot):
            document.parts.append(_states(document, forms.printers, states))
        elif (data := at_end(name, snapshot)).entries:
            document.parts.append(_map(document, forms.printers, data, totals=totals))
    document.parts.extend(_rows(document, forms.printers, snapshot))
    document.parts.sort(key=_rank)
    nothing = nothing_counted(snapshot) or [_HIDDEN]
    return page(document, title_of(snapshot), [_head(snapshot, forms)], nothing[0])


_HIDDEN = "nothing is shown: the script keeps its maps for itself"


def _rank(part: AnyPart) -> tuple[int, int]:
    """The place of a part: flame graphs first, the longer of two tables before the shorter."""
    if isinstance(part, FlamePart | SpansPart):
        return 0, int(isinstance(part, SpansPart))
    if isinstance(part, TablePart):
        return 2, -len(part.rows)
    return 1, -len(part.keys)


def _of_slices(snapshot: SnapshotData) -> MapData | None:
    """The map that counts all samples by slice of time, beside one map of stacks by slice."""
    maps = [data for data in snapshot.shown.values() if data.slice_column is not None]
    if len(maps) != len(("stacks", "totals")):
        return None
    totals = [data for data in maps if data.key_names == (SLICE,) and isinstance(data.value, types.Count)]
    return totals[0] if len(totals) == 1 and any(map(is_profile, maps)) else None


def _head(snapshot: SnapshotData, forms: Forms, title: str = "") -> Head:
    about, losses = tuple(forms.about(snapshot)), tuple(forms.losses(snapshot))
    return Head(title, snapshot.runs, about, losses)


def _rows(document: Document, printers: Printers, snapshot: SnapshotData) -> list[AnyPart]:
    parts: list[AnyPart] = []
    for number, table in enumerate(snapshot.tables, 1):
        rows = chain.from_iterable(table.rows.get(run.identity, ()) for run in snapshot.runs)
        name = "rows" if len(snapshot.tables) == 1 else f"rows {number}"
        if has_spans(table):
            parts.append(spans_part(document, snapshot, table, name.replace("rows", "timeline")))
        parts.append(rows_part(document, printers, table, rows, name))
    return parts


def _map(
    document: Document,
    printers: Printers,
    data: MapData,
    before: MapData | None = None,
    *,
    totals: MapData | None = None,
) -> AnyPart:
    """The part of a map; with *before* it compares. *totals* are all samples by slice of time."""
    part = _picture(document, printers, data, before, totals)
    if data.estimated:
        part.note = f"{part.note} Hits were left out on: {', '.join(data.estimated)}.".strip()
    return part


def _picture(
    document: Document, printers: Printers, data: MapData, before: MapData | None, totals: MapData | None
) -> AnyPart:
    if is_profile(data):
        if _drawable(data):
            taken = {
                time: count
                for time, count in (totals.entries.items() if totals is not None else ())
                if isinstance(time, int) and isinstance(count, int)
            }
            return flame_part(document, data, before, printers.portable_text, taken)
        part = map_part(document, printers, data)
        part.note = "Negative numbers have no width in a flame graph."
        return part
    if isinstance(data.value, types.Hist | types.LHist):
        return histogram_part(document, printers, data, before)
    if isinstance(data.value, types.TSeries):
        return series_part(document, printers, data, before)
    return map_part(document, printers, data)


def _drawable(*states: MapData) -> bool:
    """True if the numbers by stack can be widths."""
    return all(value >= 0 for data in states for entry in data.entries.values() for value in numbers(data.value)(entry))


# ---------------------------------------------------------------------------------------------- two snapshots


def differential(before: SnapshotData, after: SnapshotData, forms: Forms, notes: Sequence[str] = ()) -> bytes:
    """The report of what changed; rows are not compared. *notes* stand below its title.

    Raises:
        TraceError: keys or values of a map are not comparable.
    """
    document = Document(runs=after.runs)
    shown = {*before.shown, *after.shown}
    compared = difference(before, after)
    for name, change in sorted(item for item in compared.maps.items() if item[0] in shown):
        old, new = (
            MapData(
                name,
                change.key,
                change.value,
                side.maps[name].entries if name in side.maps else {},
                key_names=max((state.maps[name].key_names for state in (before, after) if name in state.maps), key=len),
            )
            for side in (before, after)
        )
        pictured = is_profile(new) and _drawable(old, new)
        if pictured or isinstance(new.value, types.Hist | types.LHist | types.TSeries):
            document.parts.append(_map(document, forms.printers, new, old))
        else:
            document.parts.append(difference_part(document, forms.printers, change))
    heads = [_head(before, forms, "Before"), _head(after, forms, "After")]
    return page(document, title_of_difference(before, after), heads, "no map differs", notes)


# ---------------------------------------------------------------------------------------------- a series


def series(snapshots: Sequence[SnapshotData], forms: Forms) -> bytes:
    """The report of snapshots as a series in time, as ``--save-every`` saves them.

    Histograms are heat maps, numbers lines; of all others the last snapshot is shown.

    Raises:
        TraceError: a map has types that differ too much.
    """
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.end)
    document, last = Document(runs=ordered[-1].runs), ordered[-1]
    for name in shown_names(ordered):
        states = of_prints(name, last) if name in last.maps else []
        document.parts.append(_states(document, forms.printers, states or of_snapshots(name, ordered)))
    document.parts.extend(_rows(document, forms.printers, last))
    # The last state of each run.
    runs = {_identities(snapshot): snapshot for snapshot in ordered}
    numbers_of = Counter(map(_identities, ordered))
    heads = [replace(_head(snapshot, forms), states=numbers_of[key]) for key, snapshot in runs.items()]
    return page(document, title_of(last), heads)


def _identities(snapshot: SnapshotData) -> tuple[str, ...]:
    return tuple(run.identity for run in snapshot.runs)


def _states(document: Document, printers: Printers, states: Sequence[State]) -> AnyPart:
    """The part of a map at several moments."""
    data, note = states[-1].data, "" if states[0].fresh else "What was printed first was not kept."
    part: AnyPart
    if isinstance(data.value, types.Hist | types.LHist):
        part = heat_part(document, printers, states)
    elif is_number(data.value) and not is_profile(data):
        part = counter_part(document, printers, states)
    else:
        part = _map(document, printers, data)
        note = "As of the last snapshot." if is_profile(data) else ""
    part.note = f"{note} {part.note}".strip()
    return part
