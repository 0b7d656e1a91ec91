"""Format ``openmetrics``: maps as metrics in the text form of OpenMetrics 1.0, which Prometheus reads.

The text is written here and not by a library, as that of ``prometheus_client`` rounds integers above 2**53.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.metric_families import Family, Labels, Sample, families
from pytrace.results.snapshot import SnapshotData

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""What a server calls it."""


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write runs, losses, and maps by name."""
    file.write(exposition(families(snapshot, timestamps=options.flag("timestamps"))))


def exposition(found: Iterable[Family]) -> bytes:
    """Families, whose names are distinct, as text with its closing line."""
    lines = [line for family in found for line in _family(family)]
    return "".join(f"{line}\n" for line in [*lines, "# EOF"]).encode()


def _family(family: Family) -> list[str]:
    lines = [f"# TYPE {family.name} {family.kind.value}"]
    if family.unit:
        lines.append(f"# UNIT {family.name} {family.unit}")
    if family.help:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
    return [*lines, *(_sample(family.name, sample) for sample in family.samples)]


def _sample(name: str, sample: Sample) -> str:
    # repr() of a float is the shortest text that gives it back; an integer has all its digits.
    line = f"{name}{sample.suffix}{_labels(sample.labels)} {sample.value!r}"
    return line if sample.timestamp is None else f"{line} {_seconds(sample.timestamp)}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{inner}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _seconds(nanoseconds: int) -> str:
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{whole}.{rest:09}"
