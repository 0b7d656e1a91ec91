"""Differences of snapshots as text and as lines of JSON: the largest change last, as maps print."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pytrace.core import types
from pytrace.render import histogram, json, tseries
from pytrace.render.decoders import Value as Decoded
from pytrace.render.portable import encoded
from pytrace.render.text import map_title
from pytrace.results import external_sort
from pytrace.results.difference import Change, Difference, ManyChanges, MapDifference, average, series_values
from pytrace.results.formats.portable_forms import PortableForm, Printers
from pytrace.results.values import Counts, Pair, Value

_BAR = 52
_BLOCK = 4096
"""Keys of a map that are formatted at once."""


def text(difference: Difference) -> Iterator[bytes]:
    """Changes as text; one line for snapshots without any."""
    printers = Printers()
    for _, part in sorted(difference.maps.items()):
        yield from _map_text(printers, part)
    for kind, subjects in difference.losses.items():
        yield from (encoded(f"# {kind}: {count:+d} ({subject})\n") for subject, count in subjects.items())
    if not difference.maps and not difference.losses:
        yield b"no map differs\n"


def json_lines(difference: Difference) -> Iterator[bytes]:
    """A line for each map that differs, and one for losses."""
    printers = Printers()
    for _, part in sorted(difference.maps.items()):
        yield from _map_json(printers, part)
    if difference.losses:
        losses = [
            (encoded(kind), json.mapping([(encoded(name), json.number(count)) for name, count in subjects.items()]))
            for kind, subjects in difference.losses.items()
        ]
        yield json.line("difference_losses", json.mapping(losses))


def _ordered(printers: Printers, part: MapDifference) -> Iterator[tuple[Decoded, Change]]:
    """Decoded keys and changes, the largest last."""
    restore = _no_key if part.key is None else printers.restored(part.key)
    if isinstance(part.changes, ManyChanges):
        for key, change in part.changes.in_order(lambda key, change: (change.size, restore(key))):
            yield restore(key), change
        return
    entries = [(restore(key), change) for key, change in part.changes.items()]
    yield from sorted(entries, key=lambda entry: (entry[1].size, entry[0]))


def _no_key(_key: Value) -> Decoded:
    return ()


# ---------------------------------------------------------------------------------------------- text


def _map_text(printers: Printers, part: MapDifference) -> Iterator[bytes]:
    shown = _TEXTS.get(type(part.value), _values_text)(printers, part.value)
    name = encoded(map_title(part.name, part.mark))
    if part.key is None:
        return (b"%s:%s" % (name, shown(change)) for change in part.changes.values())
    key = printers.texts.key(part.key)
    return (b"%s[%s]:%s" % (name, key(item), shown(change)) for item, change in _ordered(printers, part))


_Shown = Callable[[Change], bytes]


def _from_to(change: Change, form: PortableForm) -> bytes:
    if change.before is None:
        return b"new"
    if change.after is None:
        return b"was %s" % form(change.before)
    return "%s → %s".encode() % (form(change.before), form(change.after))


def _values_text(printers: Printers, type_: types.Type) -> _Shown:
    form = printers.portable_text(type_)

    def shown(change: Change) -> bytes:
        if isinstance(change.delta, int):
            return b" %+d (%s)\n" % (change.delta, _from_to(change, form))
        if change.before is None:
            return b" %s (new)\n" % form(change.after)
        if change.after is None:
            return b" removed (%s)\n" % _from_to(change, form)
        return b" %s\n" % _from_to(change, form)

    return shown


def _average_text(printers: Printers, type_: types.Type) -> _Shown:
    form = printers.portable_text(type_)

    def shown(change: Change) -> bytes:
        old, new = _pair(change.before), _pair(change.after)
        step, count = average(new) - average(old), new[1] - old[1]
        return b" %+d (%s; count %+d)\n" % (step, _from_to(change, form), count)

    return shown


def _stats_text(_printers: Printers, _type: types.Type) -> _Shown:
    def shown(change: Change) -> bytes:
        old, new = _stats(change.before), _stats(change.after)
        parts = [f"{name} {new[name] - old[name]:+d} ({old[name]} → {new[name]})" for name in new]
        note = " (new)" if change.before is None else " (removed)" if change.after is None else ""
        return f" {', '.join(parts)}{note}\n".encode()

    return shown


def _pair(value: Value | None) -> Pair:
    """The total and count of an average or of statistics; nothing where there is no value."""
    if value is None:
        return 0, 0
    assert isinstance(value, tuple)
    total, count = value[0], value[1]
    assert isinstance(total, int)
    assert isinstance(count, int)
    return total, count


def _stats(value: Value | None) -> dict[str, int]:
    total, count = _pair(value)
    return {"count": count, "average": average((total, count)), "total": total}


def _buckets_text(_printers: Printers, type_: types.Type) -> _Shown:
    assert isinstance(type_, types.Hist | types.LHist)
    shape = histogram.shape(type_)

    def shown(change: Change) -> bytes:
        buckets = list(histogram.used(shape, histogram.all_buckets(type_, _counts(change))))
        most = max(abs(bucket.count) for bucket in buckets)
        lines = []
        for bucket in buckets:
            bar = ("+" if bucket.count > 0 else "-") * (abs(bucket.count) * _BAR // most)
            lines.append(f"{bucket.label:<16}{bucket.count:>+8} |{bar:<{_BAR}}|\n")
        return ("\n" + "".join(lines) + "\n").encode()

    return shown


def _counts(change: Change) -> Counts:
    """The buckets or intervals that differ."""
    assert isinstance(change.delta, dict)
    return change.delta


def _series_text(_printers: Printers, type_: types.Type) -> _Shown:
    assert isinstance(type_, types.TSeries)

    def shown(change: Change) -> bytes:
        old, new = _intervals(type_, change.before), _intervals(type_, change.after)
        lines = [
            f"{tseries.moment(number * type_.interval).decode()} {delta:+d} "
            f"({old.get(number, '-')} → {new.get(number, '-')})\n"
            for number, delta in _counts(change).items()
        ]
        return ("\n" + "".join(lines) + "\n").encode()

    return shown


def _intervals(type_: types.TSeries, value: Value | None) -> Counts:
    """The values of the intervals of a time series, as they print; none without a value."""
    entries = value if isinstance(value, dict) else {}
    return series_values(type_, {number: item for number, item in entries.items() if isinstance(item, tuple)})


_TEXTS: dict[type[types.Type], Callable[[Printers, types.Type], _Shown]] = {
    types.Avg: _average_text,
    types.Stats: _stats_text,
    types.Hist: _buckets_text,
    types.LHist: _buckets_text,
    types.TSeries: _series_text,
}
"""Types that do not print as a number, or as a value before and after."""


# ---------------------------------------------------------------------------------------------- JSON


def _map_json(printers: Printers, part: MapDifference) -> Iterator[bytes]:
    form, delta = printers.portable_json(part.value), _delta_json(part.value)

    def shown(change: Change) -> bytes:
        return json.mapping([
            (b"before", b"null" if change.before is None else form(change.before)),
            (b"after", b"null" if change.after is None else form(change.after)),
            (b"change", b"null" if change.delta is None else delta(change)),
        ])

    if part.key is None:
        ((_, change),) = _ordered(printers, part)
        yield json.line("difference", json.mapping([(encoded(part.name), shown(change))]), part.mark)
        return
    key = printers.jsons.key(part.key)
    entries = ((key(name), shown(change)) for name, change in _ordered(printers, part))
    blocks = external_sort.batches(entries, _BLOCK) if json.distinct_keys(part.key) else iter([list(entries)])
    # As json.line and json.mapping write it.
    before = b'{"type": "difference", "data": {%s: {' % json.quoted(encoded(part.name))
    for block in blocks:
        names = json.distinct([name for name, _ in block])
        members = json.mapping([(name, value) for name, (_, value) in zip(names, block, strict=True)])
        yield before + members[1:-1]
        before = b", "
    yield b"}}%s\n" % json.ending(part.mark)


def _delta_json(type_: types.Type) -> _Shown:
    row = _DELTAS.get(type(type_))
    if row is None:
        return _number_json
    return lambda change: row(type_, change)


def _number_json(change: Change) -> bytes:
    assert isinstance(change.delta, int)
    return json.number(change.delta)


def _average_json(_type: types.Type, change: Change) -> bytes:
    return json.number(average(_pair(change.after)) - average(_pair(change.before)))


def _stats_json(_type: types.Type, change: Change) -> bytes:
    old, new = _stats(change.before), _stats(change.after)
    return json.mapping([(name.encode(), json.number(new[name] - old[name])) for name in new])


def _buckets_json(type_: types.Type, change: Change) -> bytes:
    assert isinstance(type_, types.Hist | types.LHist)
    return histogram.json_text(histogram.shape(type_), histogram.all_buckets(type_, _counts(change)))


def _series_json(type_: types.Type, change: Change) -> bytes:
    assert isinstance(type_, types.TSeries)
    points = tuple((number * type_.interval, value) for number, value in _counts(change).items())
    return tseries.json_text(tseries.Series(type_.interval, points))


_DELTAS: dict[type[types.Type], Callable[[types.Type, Change], bytes]] = {
    types.Avg: _average_json,
    types.Stats: _stats_json,
    types.Hist: _buckets_json,
    types.LHist: _buckets_json,
    types.TSeries: _series_json,
}
