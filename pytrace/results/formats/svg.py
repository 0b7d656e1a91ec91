"""Format ``svg``: pictures that need no script, for documents and chats: flame graphs, histograms, heat maps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import BinaryIO

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import about
from pytrace.results.formats.format_row import Content, WriteOptions, content
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.pictures import flame_graph, histogram_chart
from pytrace.results.pictures.drawing import WIDTH, Drawing
from pytrace.results.report.states import State, at_end, buckets_added, of_prints, of_snapshots, shown_names, steps_of
from pytrace.results.snapshot import MapData, SnapshotData
from pytrace.results.stack_samples import Profile, profiles, unlike, without_labels
from pytrace.results.values import Value

LEAST_WIDTH, MOST_WIDTH = 200, 20_000


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write one picture: a panel for each map, below each other.

    Raises:
        TraceError: an option is not valid, or a number that has to be a width is negative.
    """
    drawing, style = _begun(options)
    heat = True if options.flag("heat") else False if options.flag("bars") else None
    _head(drawing, snapshot)
    for name in sorted(snapshot.shown):
        data = at_end(name, snapshot)
        if content(data) is Content.HISTOGRAMS and heat is None and (states := of_prints(data.name, snapshot)):
            _over_time(drawing, states)
        elif content(data) is Content.HISTOGRAMS:
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
        if old and new:
            other = unlike(*[[sample.labels for sample in side.samples] for side in (old, new)])
            old, new = without_labels(old, other), without_labels(new, other)
        empty = Profile(name, known.measures, [], known.join, known.text_labels)
        _flames(drawing, new or empty, style, old or empty)
    _losses(drawing, after)
    return drawing.element().encode()


def series(snapshots: Sequence[SnapshotData], options: WriteOptions) -> bytes:
    """Histograms of several snapshots as heat maps of time × bucket, one for each key; of stacks the last snapshot.

    Raises:
        TraceError: as :func:`write`, or none of the snapshots has a histogram or stacks.
    """
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.end)
    last = ordered[-1]
    drawing, style = _begun(options)
    _head(drawing, last)
    drawing.line(f"{len(ordered)} snapshots", "q")
    shown = 0
    for name in shown_names(ordered):
        states = (of_prints(name, last) if name in last.maps else []) or of_snapshots(name, ordered)
        data = states[-1].data
        if content(data) is Content.HISTOGRAMS:
            _over_time(drawing, states)
        elif content(data) is Content.STACKS:
            drawing.line("as of the last snapshot:", "q")
            (profile,) = _profiles([data])
            _flames(drawing, profile, style, None)
        else:
            continue
        shown += 1
    if not shown:
        raise TraceError("format svg shows histograms over time, and none of the snapshots has one")
    _losses(drawing, last)
    return drawing.element().encode()


def _over_time(drawing: Drawing, states: Sequence[State]) -> None:
    """A heat map for each key of a map, those that counted most."""
    data = states[-1].data
    assert isinstance(data.value, types.Hist | types.LHist)
    times = [time.strftime("%H:%M:%S", time.gmtime(state.end // 1_000_000_000)) for state in states]
    form = None if data.key is None else Printers().portable_text(data.key)
    rows: list[tuple[int, str, list[Mapping[int, int]]]] = []
    for key in {key: None for state in states for key in state.data.entries}:
        steps = [_counts(step) for step in steps_of(states, key, buckets_added)]
        text = "" if form is None else f"[{form(key).decode('utf-8', 'surrogateescape').strip()}]"
        rows.append((sum(sum(step.values()) for step in steps), f"{data.title}{text}", steps))
    rows.sort(key=lambda row: (-row[0], row[1]))
    unit = f" ({data.unit})" if data.unit else ""
    for _, title, steps in rows[: histogram_chart.MOST_CHARTS]:
        histogram_chart.draw_over_time(drawing, f"{title}{unit}", data.value, list(zip(times, steps, strict=True)))
    if rows[histogram_chart.MOST_CHARTS :]:
        drawing.line(f"… and {len(rows) - histogram_chart.MOST_CHARTS} more keys, which counted less", "q")


def _counts(step: Value | None) -> Mapping[int, int]:
    return {number: count for number, count in step.items() if isinstance(count, int)} if isinstance(step, dict) else {}


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
    return [data for data in snapshot.shown.values() if content(data) is Content.STACKS]


def _head(drawing: Drawing, snapshot: SnapshotData) -> None:
    for run in snapshot.runs[:1]:
        more = f" and {len(snapshot.runs) - 1} more runs" if len(snapshot.runs) > 1 else ""
        seconds = (snapshot.end - snapshot.start) / 1e9
        words = " ".join((run.script, *run.parameters))
        drawing.line(f"{words} on {run.host}{more}, {about.moment(snapshot.start)}, {seconds:.1f} s", "q")


def _losses(drawing: Drawing, snapshot: SnapshotData) -> None:
    for line in about.losses(snapshot):
        drawing.line(line)
