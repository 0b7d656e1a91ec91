"""Reports: which picture shows which map of one snapshot, of two that are compared, and of several in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from pytrace.core import types
from pytrace.results.difference import difference
from pytrace.results.findings import unnamed_code
from pytrace.results.question import question
from pytrace.results.report import page, tables_data
from pytrace.results.report.document import Document
from pytrace.results.report.flame_data import flame_part
from pytrace.results.report.parts import AnyPart, TablePart
from pytrace.results.report.states import State, at_end, is_number, of_prints, of_snapshots, shown_names
from pytrace.results.snapshot import MapData, SnapshotData
from pytrace.results.stack_samples import is_profile, numbers

if TYPE_CHECKING:
    from pytrace.results.formats.portable_forms import Printers

Lines: TypeAlias = Callable[[SnapshotData], Iterable[str]]


_NAMED = 4
"""Runs that a title names."""


class Forms(msgspec.Struct, frozen=True):
    """The forms of texts that reports share with other formats."""

    printers: Printers
    """Of values."""
    about: Lines
    """Lines about the runs of a snapshot, as ``--about`` prints them."""
    losses: Lines
    """Those of them that say what was lost."""


def single(snapshot: SnapshotData, forms: Forms) -> bytes:
    """The report of one snapshot: maps by name, then tables of rows.

    Raises:
        TraceError: the viewer was not bundled; so of all reports.
    """
    document = Document(runs=snapshot.runs)
    for name in sorted(snapshot.shown):
        if states := of_prints(name, snapshot):
            document.parts.append(_states(document, forms.printers, states))
        elif (data := at_end(name, snapshot)).entries:
            document.parts.append(_map(document, forms.printers, data))
    document.parts.extend(_rows(document, forms.printers, snapshot))
    return page.page(document, _title(snapshot), [_head(snapshot, forms)])


def _title(snapshot: SnapshotData) -> str:
    """The question of the runs; of many that differ only how many there are."""
    hosts = dict.fromkeys(run.host for run in snapshot.runs)
    host = f"{len(hosts)} machines" if len(hosts) > 1 else "".join(hosts)
    names = dict.fromkeys(question(run, host) for run in snapshot.runs)
    return f"{len(snapshot.runs)} runs" if len(names) > _NAMED else "; ".join(names) or "An empty snapshot"


def _head(snapshot: SnapshotData, forms: Forms, title: str = "") -> page.Head:
    about, losses = tuple(forms.about(snapshot)), tuple(forms.losses(snapshot))
    return page.Head(title, snapshot.runs, about, losses, unnamed_code(snapshot))


def _rows(document: Document, printers: Printers, snapshot: SnapshotData) -> list[TablePart]:
    parts = []
    for number, table in enumerate(snapshot.tables, 1):
        rows = chain.from_iterable(table.rows.get(run.identity, ()) for run in snapshot.runs)
        name = "rows" if len(snapshot.tables) == 1 else f"rows {number}"
        parts.append(tables_data.rows_part(document, printers, table, rows, name))
    return parts


def _map(document: Document, printers: Printers, data: MapData, before: MapData | None = None) -> AnyPart:
    """The part of a map; with *before* it compares."""
    part = _picture(document, printers, data, before)
    if data.estimated:
        part.note = f"{part.note} Hits were left out on: {', '.join(data.estimated)}.".strip()
    return part


def _picture(document: Document, printers: Printers, data: MapData, before: MapData | None) -> AnyPart:
    if is_profile(data):
        if _drawable(data):
            return flame_part(document, data, before, printers.portable_text)
        part = tables_data.map_part(document, printers, data)
        part.note = "Negative numbers have no width in a flame graph."
        return part
    if isinstance(data.value, types.Hist | types.LHist):
        return tables_data.histogram_part(document, printers, data, before)
    if isinstance(data.value, types.TSeries):
        return tables_data.series_part(document, printers, data, before)
    return tables_data.map_part(document, printers, data)


def _drawable(*states: MapData) -> bool:
    """True if the numbers by stack can be widths."""
    return all(
        value >= 0 for data in states for entry in data.entries.values() for value in numbers(data.value)(entry)
    )


# ---------------------------------------------------------------------------------------------- two snapshots


def differential(before: SnapshotData, after: SnapshotData, forms: Forms) -> bytes:
    """The report of what changed; rows are not compared.

    Raises:
        TraceError: keys or values of a map are not comparable.
    """
    document = Document(runs=after.runs)
    shown = {*before.shown, *after.shown}
    compared = difference(before, after)
    for name, change in sorted(item for item in compared.maps.items() if item[0] in shown):
        old, new = (
            MapData(
                name, change.key, change.value, side.maps[name].entries if name in side.maps else {},
                key_names=max((state.maps[name].key_names for state in (before, after) if name in state.maps), key=len),
            )
            for side in (before, after)
        )
        pictured = is_profile(new) and _drawable(old, new)
        if pictured or isinstance(new.value, types.Hist | types.LHist | types.TSeries):
            document.parts.append(_map(document, forms.printers, new, old))
        else:
            document.parts.append(tables_data.difference_part(document, forms.printers, change))
    heads = [_head(before, forms, "Before"), _head(after, forms, "After")]
    targets = [", ".join(dict.fromkeys(run.target for run in side.runs)) for side in (before, after)]
    names = list(dict.fromkeys(targets if all(targets) and targets[0] != targets[1] else map(_title, (before, after))))
    title = f"What changed: {names[0]}" if len(names) == 1 else f"What changed from {names[0]} to {names[1]}"
    return page.page(document, title, heads, "No map differs.")


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
    title = f"{_title(last)}, {len(ordered)} snapshots"
    # The last state of each run.
    runs = {tuple(run.identity for run in snapshot.runs): snapshot for snapshot in ordered}
    return page.page(document, title, [_head(snapshot, forms) for snapshot in runs.values()])


def _states(document: Document, printers: Printers, states: Sequence[State]) -> AnyPart:
    """The part of a map at several moments."""
    data, note = states[-1].data, "" if states[0].fresh else "What was printed first was not kept."
    part: AnyPart
    if isinstance(data.value, types.Hist | types.LHist):
        part = tables_data.heat_part(document, printers, states)
    elif is_number(data.value) and not is_profile(data):
        part = tables_data.counter_part(document, printers, states)
    else:
        part = _map(document, printers, data)
        note = "As of the last snapshot." if is_profile(data) else ""
    part.note = f"{note} {part.note}".strip()
    return part
