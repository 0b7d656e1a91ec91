"""Maps of a snapshot as metric families, in the model of OpenMetrics 1.0.

======================== ===========================================================================================
map of                   family
======================== ===========================================================================================
count, unsigned sum      counter
signed sum               gauge: it can fall
unsigned avg and stats   summary without quantiles: sum and count
signed avg and stats     gauge of the average, and ``NAME_samples``, a counter of how many there were
hist, lhist              histogram with the buckets as they are: integers below *high* are those up to ``high - 1``;
                         without ``_sum``, which is not known, and so (OpenMetrics 1.0) without ``_count``, which is
                         the bucket ``+Inf``
tseries                  gauge of the last interval
min, max, bool, integer, gauge
enum
======================== ===========================================================================================

Labels are the columns of the key that ``-f csv`` shows. This has no dependency; :mod:`openmetrics` writes the text. A
program that limits the series of a map removes entries from :attr:`MapData.entries` before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, starmap
from operator import itemgetter
from typing import BinaryIO, TypeAlias

import msgspec
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.text import printable_utf8
from pytrace.core.value_tables import UNITS, Column
from pytrace.render import csv
from pytrace.render.value_kind import Labels, MetricKind, Plain, Sample
from pytrace.render.values import value_kind_of
from pytrace.results import external_sort
from pytrace.results.formats.format_row import Content, WriteOptions, content
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import MapData, Run, SnapshotData, Value

PREFIX = "pytrace_"
"""The names of all families begin with it."""

_Entry: TypeAlias = tuple[Labels, Plain]
_Make: TypeAlias = "Callable[[Labels, Plain], Iterable[Sample]]"
"""From an entry to its samples."""


class Family(msgspec.Struct, frozen=True):
    """A metric family. The samples of one set of labels (of a histogram: without ``le``) stand together."""

    name: str
    kind: MetricKind
    help: str
    unit: str
    """The unit in which *name* ends, or empty."""
    samples: Collection[Sample]
    """A tuple; of many keys sorted anew each time that they are gone through."""


def families(snapshot: SnapshotData, *, timestamps: bool = False) -> list[Family]:
    """All families of a snapshot: about its runs, its losses, and those of its maps by name.

    Args:
        snapshot: the snapshot; tables and maps without numbers, histograms or time series are skipped.
        timestamps: samples carry the time of the snapshot, those of a time series the end of each interval
            (of all intervals and not only the last).

    Raises:
        TraceError: a histogram has negative counts, as differences have.
    """
    families = [*_run_families(snapshot.runs), _losses_family(snapshot.losses)]
    printers = Printers()
    for _, data in sorted(snapshot.maps.items()):
        if content(data) is not Content.VALUES:
            families += map_families(data, printers, timestamps=timestamps)
    families += [_read_family(snapshot.read), _marks_family(snapshot.maps.values())]
    families = [family for family in families if family.samples]
    if timestamps:
        families = [_at(family, snapshot.end) for family in families]
    return distinct(families)


def map_families(data: MapData, printers: Printers | None = None, *, timestamps: bool = False) -> list[Family]:
    """The families of one map, whose names are not yet :func:`distinct` from those of others.

    Args:
        data: a map of numbers, histograms or time series.
        printers: prints the texts of keys; maps can share one.
        timestamps: a time series has all its intervals, with their times.
    """
    label = _labels(data, printers or Printers())
    type_ = data.value.tag if data.value.aggregate else data.value
    help_ = data.help or f"Map {data.name} ({type_})"
    if data.mark:
        help_ = f"{help_} ({data.mark}: hits were left out)"
    return _families(metric_name(data.name), _utf8(help_), data.value, _Entries(data, label), timestamps=timestamps)


def _run_families(runs: Iterable[Run]) -> list[Family]:
    """Families of the runs: an info metric, and the times of their start and end."""
    items = list(runs)
    info, start, end = [], [], []
    for run in items:
        known = {
            "run": run.identity, "host": run.host, "kernel": run.kernel, "machine": run.machine, "script": run.script,
            "script_hash": run.script_hash, "parameters": " ".join(run.parameters), "version": run.version,
        }  # fmt: skip
        info.append(Sample("_info", tuple((name, _utf8(value)) for name, value in known.items()), 1))
        start.append(Sample("", (("run", _utf8(run.identity)),), run.start / 1e9))
        end.append(Sample("", (("run", _utf8(run.identity)),), run.end / 1e9))
    return [
        Family(f"{PREFIX}run", MetricKind.INFO, "The script and where it ran", "", tuple(info)),
        Family(f"{PREFIX}run_start_seconds", MetricKind.GAUGE, "When probes were attached", "seconds", tuple(start)),
        Family(f"{PREFIX}run_end_seconds", MetricKind.GAUGE, "When this was read", "seconds", tuple(end)),
    ]


def _read_family(moments: Mapping[str, int]) -> Family:
    """The time at which each map was read: those of a running script are read one after another."""
    samples = [Sample("", (("map", name),), time / 1e9) for name, time in sorted(moments.items())]
    text = "When reading of this map began"
    return Family(f"{PREFIX}map_read_seconds", MetricKind.GAUGE, text, "seconds", tuple(samples))


def _marks_family(maps: Iterable[MapData]) -> Family:
    """The maps whose values are estimates."""
    marked = sorted((data.name, data.mark) for data in maps if data.mark)
    samples = [Sample("", (("map", _utf8(name)), ("mark", mark)), 1) for name, mark in marked]
    text = "Maps whose values are estimates, or of a sample of the hits, as tracing was over its budget"
    return Family(f"{PREFIX}map_estimate", MetricKind.GAUGE, text, "", tuple(samples))


def _losses_family(losses: dict[str, dict[str, int]]) -> Family:
    """Losses and failures, as in :attr:`SnapshotData.losses`."""
    samples = [
        Sample("_total", (("kind", _utf8(kind)), ("subject", _utf8(subject))), count)
        for kind, subjects in sorted(losses.items())
        for subject, count in sorted(subjects.items())
    ]
    text = "Events that were lost and operations that failed, by the probe, map or place that they concern"
    return _gauge_if_negative(Family(f"{PREFIX}lost_events", MetricKind.COUNTER, text, "", tuple(samples)))


# ---------------------------------------------------------------------------------------------- names


def metric_name(name: str) -> str:
    """The name of a map's family: ``pytrace_reads`` for ``@reads``, ``pytrace_map`` for ``@``."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name.removeprefix("@")) or "map"
    for suffix in ("_total", "_created", "_bucket", "_info"):
        # OpenMetrics keeps these for samples; counters get their _total back.
        plain = plain.removesuffix(suffix) or plain
    return PREFIX + plain


def distinct(families: Sequence[Family]) -> list[Family]:
    """The families with names of which no sample's name is that of a sample of another."""
    taken: set[str] = set()
    renamed = []
    for family in families:
        name, number = family.name, 1
        while taken & _sample_names(name, family.kind):
            number += 1
            name = f"{family.name}_{number}"
        taken |= _sample_names(name, family.kind)
        renamed.append(family if name == family.name else replace(family, name=name, unit=""))
    return renamed


def _sample_names(name: str, kind: MetricKind) -> set[str]:
    return {name, *(name + suffix for suffix in kind.suffixes)}


def _label_names(columns: Iterable[Column]) -> list[str]:
    names: list[str] = []
    for column in columns:
        name = re.sub(r"[^A-Za-z0-9_]", "_", column.name)
        if name in ("le", "quantile") or name.startswith("__") or not name or name[0].isdigit():
            name = f"key_{name}"
        base, number = name, 1
        while name in names:
            number += 1
            name = f"{base}_{number}"
        names.append(name)
    return names


def _labels(data: MapData, printers: Printers) -> Callable[[Value], Labels]:
    """From portable keys of a map to labels."""
    if data.key is None:
        return lambda _key: ()
    names = _label_names(data.key_columns)
    cells, restore = csv.texts(printers.texts, data.key), printers.restored(data.key)
    return lambda key: tuple(
        (name, printable_utf8(text).decode()) for name, text in zip(names, cells(restore(key)), strict=True)
    )


class _Entries:
    """The entries of a map by their labels; of many keys in a temporary file."""

    def __init__(self, data: MapData, label: Callable[[Value], Labels]) -> None:
        self._data = data
        self._label = label
        self.many = data.key is not None and external_sort.is_large(data.entries)

    def values(self) -> Iterator[Plain]:
        """The values in no order."""
        return iter(self._data.entries.values())

    def __iter__(self) -> Iterator[_Entry]:
        if self.many:
            assert self._data.key is not None
            type_ = types.Tuple((self._data.key, self._data.value))
            label = self._label
            blocks = external_sort.in_order(self._data.entries.items(), lambda item: label(item[0]), type_)
            return _different((label(key), value) for block in blocks for key, value in block)
        entries = ((self._label(key), value) for key, value in self._data.entries.items())
        return _different(sorted(entries, key=itemgetter(0)))


class _ManySamples(Collection[Sample]):
    """The samples of many entries, made anew each time that they are gone through."""

    def __init__(self, entries: _Entries, make: _Make) -> None:
        self._entries = entries
        self._make = make

    def __iter__(self) -> Iterator[Sample]:
        return chain.from_iterable(starmap(self._make, self._entries))

    def __len__(self) -> int:
        return sum(1 for _ in self.unordered())

    def __bool__(self) -> bool:
        return any(True for _ in self.unordered())

    def __contains__(self, sample: object) -> bool:
        return any(sample == item for item in self)

    def unordered(self) -> Iterator[Sample]:
        """The samples without their labels."""
        return (sample for value in self._entries.values() for sample in self._make((), value))

    def changed(self, change: Callable[[Sample], Sample]) -> _ManySamples:
        """The samples, each changed."""
        make = self._make
        return _ManySamples(self._entries, lambda labels, value: map(change, make(labels, value)))


def _changed(samples: Collection[Sample], change: Callable[[Sample], Sample]) -> Collection[Sample]:
    return samples.changed(change) if isinstance(samples, _ManySamples) else tuple(map(change, samples))


def _different(entries: Iterable[_Entry]) -> Iterator[_Entry]:
    """The entries, which are in order, with a label more where two keys have the same text."""
    last, number = None, 1
    for labels, value in entries:
        number = number + 1 if labels == last else 1
        last = labels
        yield (labels if number == 1 else (*labels, ("same_text", str(number)))), value


def _utf8(text: str) -> str:
    """A text as a label or a help, without what is not UTF-8 and without control characters."""
    return printable_utf8(text.encode("utf-8", "surrogateescape")).decode()


# ---------------------------------------------------------------------------------------------- values


def _families(name: str, help_: str, type_: types.Type, entries: _Entries, *, timestamps: bool) -> list[Family]:
    """The families of a map by the kind of its values."""
    families = []
    for metric in value_kind_of(type_).metrics(name, entries.values, timestamps=timestamps):
        whole = name + metric.suffix
        end = whole.removeprefix(PREFIX).rpartition("_")[2]
        unit = end if metric.unit and end in UNITS and whole != PREFIX + end else ""
        lazy = _ManySamples(entries, metric.samples)
        family = Family(whole, metric.kind, help_ + metric.note, unit, lazy if entries.many else tuple(lazy))
        families.append(_gauge_if_negative(family) if metric.kind is MetricKind.COUNTER else family)
    return families


def _gauge_if_negative(family: Family) -> Family:
    """A counter, or for differences, which can be negative, a gauge."""
    many = family.samples.unordered() if isinstance(family.samples, _ManySamples) else family.samples
    if min((sample.value for sample in many), default=0) >= 0:
        return family
    samples = _changed(family.samples, lambda sample: sample._replace(suffix=""))
    return replace(family, kind=MetricKind.GAUGE, samples=samples)


def _at(family: Family, time: int) -> Family:
    """The family with a time for each sample that has none."""

    def timed(sample: Sample) -> Sample:
        return sample if sample.timestamp is not None else sample._replace(timestamp=time)

    return replace(family, samples=_changed(family.samples, timed))


# ---------------------------------------------------------------------------------------------- openmetrics


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write runs, losses, and maps by name."""
    file.writelines(_lines(families(snapshot, timestamps=options.flag("timestamps"))))


def exposition(families: Iterable[Family], *, older: bool = False) -> bytes:
    """Families, whose names are distinct, as text with its closing line.

    *older*: in Prometheus' text format 0.0.4, without a closing line.
    """
    return b"".join(_lines(families, older=older))


def _lines(families: Iterable[Family], *, older: bool = False) -> Iterator[bytes]:
    for family in families:
        heading = _older_heading(family) if older else _heading(family)
        for line in chain(heading, _samples(family)):
            yield f"{line}\n".encode()
    if not older:
        yield b"# EOF\n"


def _heading(family: Family) -> list[str]:
    lines = [f"# TYPE {family.name} {family.kind.value}"]
    if family.unit:
        lines.append(f"# UNIT {family.name} {family.unit}")
    if family.help:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
    return lines


_OLDER = {MetricKind.COUNTER: ("_total", "counter"), MetricKind.INFO: ("_info", "gauge")}
"""Suffixes and types of families in the older format, which names families as their samples."""


def _older_heading(family: Family) -> list[str]:
    suffix, kind = _OLDER.get(family.kind, ("", family.kind.value))
    help_ = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    lines = [f"# HELP {family.name}{suffix} {help_}"] if help_ else []
    return [*lines, f"# TYPE {family.name}{suffix} {kind}"]


def _samples(family: Family) -> Iterator[str]:
    for sample in family.samples:
        time = "" if sample.timestamp is None else f" {_seconds(sample.timestamp)}"
        # repr() of a float is the shortest text of this value; an integer has all its digits.
        yield f"{family.name}{sample.suffix}{_labels_text(sample.labels)} {sample.value!r}{time}"


def _labels_text(labels: Labels) -> str:
    if not labels:
        return ""
    inner = ",".join([f'{name}="{_escaped(value)}"' for name, value in labels])
    return f"{{{inner}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _seconds(nanoseconds: int) -> str:
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{whole}.{rest:09}"
