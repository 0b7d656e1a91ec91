"""The parts of a report, as the viewer reads them: JSON of these classes, in which ``kind`` is the tag of the class.

The scripts in ``web/src`` use the names of these members; ``tests/results/report/test_report.py`` compares both sides.
Texts are numbers in the table of texts (:class:`pytrace.results.report.document.Texts`) where it says so.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Cell: TypeAlias = int | str
"""A number, as text if a double does not hold it; of texts their number."""
Column: TypeAlias = tuple[int, str, int, int]
"""Of a table: its name (a text), the unit, 1 for numbers or 0 for texts, and what people call it (a text)."""
Bucket: TypeAlias = tuple[Cell | None, Cell | None, str]
"""Least and greatest value, None at an open end; and the label."""
Counts: TypeAlias = tuple[list[int], list[Cell]]
"""Numbers of the buckets that are not empty, and their counts."""
Line: TypeAlias = tuple[list[float], list[Cell | None]]
"""Times in seconds, and values; None where there is none."""


class Part(msgspec.Struct, tag_field="kind", kw_only=True):
    """A picture or table of one map, or a table of rows."""

    name: int
    """The title, a text."""
    help: int
    """The comment of the map in the script, a text."""
    note: str = ""
    """A remark below the title."""


class FlamePart(Part, tag="flame"):
    """A flame graph: a trie of frames, and a sample for each key; samples are columns."""

    measures: list[tuple[str, str]]
    """Names and units of the numbers of a sample."""
    labels: list[int]
    """Members of the key that are no stacks: their names, texts."""
    groups: list[list[int]]
    """Different values of these members, texts."""
    nodes: list[list[int]]
    """Of the nodes of the trie, parents first: depth, frame and source line (-1: none)."""
    node: list[int]
    """Of each sample the innermost node."""
    group: list[int]
    values: list[list[Cell]]
    """For each measure the numbers of the samples."""
    before: list[list[Cell]] | None = None
    """Those of the snapshot that is compared with."""
    counts: str = ""
    """What is counted, where a measure has no unit: ``samples``."""
    what: str = ""
    """What the time or the bytes of the whole are: ``on CPU``, ``allocated``."""
    period: float = 0.0
    """Seconds that one of them stands for; 0: they are no time."""


class TablePart(Part, tag="table"):
    """A table."""

    columns: list[Column]
    rows: list[list[Cell]]
    sort: int
    """The column by which it is sorted at first, the largest number first; -1: none."""


class KeyedPart(Part):
    """Pictures of the values of each key."""

    unit: str
    columns: list[Column]
    """Of keys; none for a map without keys."""
    keys: list[list[Cell]]


class HistogramPart(KeyedPart, tag="histogram"):
    """Histograms."""

    buckets: list[Bucket]
    counts: list[Counts]
    before: list[Counts] | None = None
    """Those of the snapshot that is compared with."""
    by: int = -1
    """The column of hosts, or of their labels, by which keys are added up at first; -1: each key."""


class LinesPart(KeyedPart, tag="lines"):
    """Lines in time."""

    lines: list[Line]
    before: list[Line] | None = None
    """Those of the snapshot that is compared with."""


class HeatPart(KeyedPart, tag="heat"):
    """Histograms over time."""

    buckets: list[Bucket]
    steps: list[list[Counts]]
    """Of each key what each interval added."""
    starts: list[float]
    """Of the intervals, in seconds since 1970."""
    times: list[float]
    """Their ends."""


AnyPart: TypeAlias = FlamePart | TablePart | HistogramPart | LinesPart | HeatPart


class Contents(msgspec.Struct, frozen=True):
    """All that the viewer shows."""

    texts: list[str]
    frames: list[list[int]]
    """Columns of the functions: name and module (texts), and kind (:mod:`pytrace.results.stack_samples`)."""
    places: list[list[int]]
    """Columns of source lines: file (a text) and line."""
    parts: list[AnyPart]
