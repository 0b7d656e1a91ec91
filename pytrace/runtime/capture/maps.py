"""Maps of a running script as plain data."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from pytrace.core import types
from pytrace.core.types import settled
from pytrace.render.forms import PortableForms
from pytrace.render.map_printer import Entry, MapView
from pytrace.render.values import value_kind_of, with_div
from pytrace.results.snapshot import MapData

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.core.manifest import MapSpec
    from pytrace.render.text import Value as Decoded
    from pytrace.results.values import Portable, Value

SLICE = 1024
"""Entries between two calls of what else has to go on."""


class ReadMap(NamedTuple):
    """The entries of a map, and the wall time of reading them in nanoseconds."""

    view: MapView
    entries: list[Entry]
    time: int
    others: int = 0
    """Entries that were left out."""


def read(view: MapView) -> ReadMap:
    """Read a map."""
    moment = time.time_ns()
    return ReadMap(view, view.contents(), moment)


def read_greatest(view: MapView, most: int, pause: Callable[[], None]) -> ReadMap:
    """Read at most *most* entries of a map, the last ones in the order in which it prints."""
    moment = time.time_ns()
    entries, total = view.greatest(most, pause)
    return ReadMap(view, entries, moment, total - len(entries))


def map_data(found: ReadMap, forms: PortableForms, pause: Callable[[], None]) -> MapData:
    """The contents of a map as snapshots have them. *pause* is called now and then while it takes long.

    Keys that refer to equal things (the same functions at other addresses) are one key, and their values are joined.
    """
    spec, entries = found.view.spec, found.entries
    key_type = None if spec.key is None else settled(spec.key)
    values = portable(spec, entries, forms, pause)
    return MapData(
        spec.name, key_type, settled(spec.value), values,
        help=spec.help, mark=found.view.mark, key_names=spec.key_names,
    )  # fmt: skip


def portable(
    spec: MapSpec, entries: list[Entry], forms: PortableForms, pause: Callable[[], None] = lambda: None, div: int = 1
) -> dict[Portable, Value]:
    """Decoded entries of a map as portable ones, numbers divided by *div* as ``print()`` does."""
    if isinstance(spec.value, types.Min | types.Max):
        entries = [(name, item) for name, item in entries if _is_set(item)]
    key = _without_key if spec.key is None else forms.form(spec.key)
    value, join = with_div(forms.form(spec.value), spec.value, div), value_kind_of(spec.value).join()
    values: dict[Portable, Value] = {}
    for start in range(0, len(entries), SLICE):
        for name, item in entries[start : start + SLICE]:
            portable, converted = key(name), value(item)
            if portable in values:
                converted = join(values[portable], converted)
            values[portable] = converted
        pause()
    return values


def _without_key(_key: Decoded) -> None:
    """The portable key of a map without keys."""


def _is_set(value: Decoded) -> bool:
    """True if a least or greatest value is one at all."""
    return isinstance(value, tuple) and bool(value[1])
