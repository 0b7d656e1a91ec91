"""Format ``openmetrics``: maps as metrics in the text form of OpenMetrics 1.0, which Prometheus reads.

The text is written here and not by a library: that of ``prometheus_client`` rounds integers above 2**53, and takes
seconds for 100,000 series.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO

from pytrace.render.value_kind import Labels, MetricKind
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.metric_families import Family, families
from pytrace.results.snapshot import SnapshotData

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""The content type of the format."""
OLDER_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format, which came before."""


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
        yield f"{family.name}{sample.suffix}{_labels(sample.labels)} {sample.value!r}{time}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    inner = ",".join([f'{name}="{_escaped(value)}"' for name, value in labels])
    return f"{{{inner}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _seconds(nanoseconds: int) -> str:
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{whole}.{rest:09}"
