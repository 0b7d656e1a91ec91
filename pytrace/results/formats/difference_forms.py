"""Differences of snapshots as text and as lines of JSON: the largest change last, as maps print."""

from __future__ import annotations

from collections.abc import Iterator

from pytrace.render import json
from pytrace.render.text import Value as Decoded
from pytrace.render.text import encoded, map_title
from pytrace.render.value_kind import Change
from pytrace.render.values import value_kind_of
from pytrace.results import external_sort
from pytrace.results.difference import Difference, ManyChanges, MapDifference
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.values import Value

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
    shown = value_kind_of(part.value).change_text(printers.portable_text(part.value))
    name = encoded(map_title(part.name, part.mark))
    if part.key is None:
        return (b"%s:%s" % (name, shown(change)) for change in part.changes.values())
    key = printers.texts.key(part.key)
    return (b"%s[%s]:%s" % (name, key(item), shown(change)) for item, change in _ordered(printers, part))


# ---------------------------------------------------------------------------------------------- JSON


def _map_json(printers: Printers, part: MapDifference) -> Iterator[bytes]:
    form, delta = printers.portable_json(part.value), value_kind_of(part.value).change_json()

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
    distinct = None
    if not json.distinct_keys(part.key):
        distinct = json.DistinctNames(map(key, map(printers.restored(part.key), part.changes)))
    # As json.line and json.mapping write it.
    before = b'{"type": "difference", "data": {%s: {' % json.quoted(encoded(part.name))
    for block in external_sort.batches(entries, _BLOCK):
        texts = [name for name, _ in block]
        names = texts if distinct is None else distinct.of(texts)
        members = json.mapping([(name, value) for name, (_, value) in zip(names, block, strict=True)])
        yield before + members[1:-1]
        before = b", "
    yield b"}}%s\n" % json.ending(part.mark)
