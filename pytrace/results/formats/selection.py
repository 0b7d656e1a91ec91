"""Selection of the maps and tables of a snapshot that a format shows, and messages about the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.results.formats.format_row import Content, Format, content
from pytrace.results.formats.table import FORMATS
from pytrace.results.snapshot import SnapshotData

ROWS = "rows"
"""The name under which all tables are selected."""


class Selection(msgspec.Struct, frozen=True):
    """A part of a snapshot."""

    snapshot: SnapshotData
    left_out: tuple[str, ...]
    """A sentence for each map that was left out because the format cannot show it."""


def select(snapshot: SnapshotData, row: Format, names: Sequence[str] = ()) -> Selection:
    """The part of *snapshot* that *row* shows.

    Args:
        snapshot: the snapshot, which is not changed.
        row: the format.
        names: names of maps (with or without ``@``), or :data:`ROWS` for the tables; none: everything that fits.

    Raises:
        TraceError: a map does not exist, one of *names* does not fit the format, or nothing at all fits. A snapshot
            without anything fits every format.
    """
    contents = {name: content(data) for name, data in snapshot.maps.items()}
    if snapshot.tables:
        contents[ROWS] = Content.ROWS
    chosen = [_known(name, contents) for name in names] or list(contents)
    wrong = [name for name in chosen if contents[name] not in row.shows]
    if wrong and (names or len(wrong) == len(chosen)):
        raise _cannot(row, [(name, contents[name]) for name in wrong])
    fits = set(chosen) - set(wrong)
    part = SnapshotData(
        snapshot.runs,
        {name: data for name, data in snapshot.maps.items() if name in fits},
        snapshot.tables if ROWS in fits else (),
        snapshot.losses,
        costs=snapshot.costs,
    )
    return Selection(part, tuple(_sentence(row, name, contents[name]) for name in wrong))


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
