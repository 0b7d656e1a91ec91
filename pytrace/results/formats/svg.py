"""Format ``svg``: pictures that need no script, for documents and chats: flame graphs, histograms, heat maps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import BinaryIO

from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import about
from pytrace.results.formats.format_row import Content, WriteOptions, content
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.pictures import flame_graph, histogram_chart
from pytrace.results.pictures.drawing import WIDTH, Drawing
from pytrace.results.snapshot import MapData, SnapshotData
from pytrace.results.stack_samples import Profile, profiles

LEAST_WIDTH, MOST_WIDTH = 200, 20_000


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write one picture: a panel for each map, below each other.

    Raises:
        TraceError: an option is not valid, or a number that has to be a width is negative.
    """
    drawing, style = _begun(options)
    heat = True if options.flag("heat") else False if options.flag("bars") else None
    _head(drawing, snapshot)
    for data in _by_name(snapshot.maps.values()):
        if content(data) is Content.HISTOGRAMS:
            histogram_chart.draw(drawing, data, Printers().portable_text, heat=heat)
        else:
            (profile,) = _profiles([data])
            _flames(drawing, profile, style, None)
    _losses(drawing, snapshot)
    file.write(drawing.element().encode())


def differential(before: SnapshotData, after: SnapshotData, options: WriteOptions) -> bytes:
    """Differential flame graphs of the maps of stacks: as wide as *after*, coloured by what changed.

    Raises:
        TraceError: as :func:`write`, or neither snapshot has a map of stacks.
    """
    drawing, style = _begun(options)
    _head(drawing, before)
    _head(drawing, after)
    earlier = {profile.name: profile for profile in _profiles(_stacks(before))}
    later = {profile.name: profile for profile in _profiles(_stacks(after))}
    if not earlier and not later:
        raise TraceError(
            "format svg compares maps of numbers by stack, and neither snapshot has one",
            hints=("without -f the differences are printed as text",),
        )
    for name in sorted({*earlier, *later}):
        old, new = earlier.get(name), later.get(name)
        known = new or old
        assert known is not None
        empty = Profile(name, known.measures, [], known.join, known.text_labels)
        _flames(drawing, new or empty, style, old or empty)
    _losses(drawing, after)
    return drawing.element().encode()


def _begun(options: WriteOptions) -> tuple[Drawing, flame_graph.Options]:
    text = options.settings.get("width", str(WIDTH))
    if not text.isdecimal() or not LEAST_WIDTH <= int(text) <= MOST_WIDTH:
        raise TraceError(f"option width of format svg is {LEAST_WIDTH} … {MOST_WIDTH} pixels, not {text!r}")
    style = flame_graph.Options(
        icicle=options.flag("icicle"),
        reversed=options.flag("reversed"),
        color=options.settings.get("color", flame_graph.COLORED_BY[0]),
    )
    style.check()
    return Drawing(int(text)), style


def _flames(drawing: Drawing, profile: Profile, style: flame_graph.Options, earlier: Profile | None) -> None:
    for measure in range(len(profile.measures)):
        flame_graph.draw(drawing, profile, measure, style, earlier)


def _profiles(maps: Iterable[MapData]) -> list[Profile]:
    return profiles(maps, Printers().portable_text)


def _stacks(snapshot: SnapshotData) -> Sequence[MapData]:
    return [data for data in snapshot.maps.values() if content(data) is Content.STACKS]


def _by_name(maps: Iterable[MapData]) -> list[MapData]:
    return sorted(maps, key=lambda data: data.name)


def _head(drawing: Drawing, snapshot: SnapshotData) -> None:
    for run in snapshot.runs[:1]:
        more = f" and {len(snapshot.runs) - 1} more runs" if len(snapshot.runs) > 1 else ""
        seconds = (snapshot.end - snapshot.start) / 1e9
        words = " ".join((run.script, *run.parameters))
        drawing.line(f"{words} on {run.host}{more}, {about.moment(snapshot.start)}, {seconds:.1f} s", "q")


def _losses(drawing: Drawing, snapshot: SnapshotData) -> None:
    for line in about.losses(snapshot):
        drawing.line(line)
