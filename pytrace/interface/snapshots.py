"""The snapshot class of the Python interface."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Self

from pytrace.core.costs import RunCost
from pytrace.core.diagnostics import TraceError
from pytrace.interface.maps import Maps, ResultMap
from pytrace.render.value_kind import Result
from pytrace.results.snapshot import MapData, Run, SnapshotData, Table

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from pytrace.results.formats.tabular import FlatTable


class Snapshot:
    """The state of a run, or of several merged runs, at one moment."""

    def __init__(self, data: SnapshotData) -> None:
        self.data = data
        """The plain data."""

    @property
    def maps(self) -> Maps:
        """The maps by name."""
        return Maps({name: ResultMap(name, _constant(data)) for name, data in self.data.maps.items()})

    @property
    def tables(self) -> tuple[Table, ...]:
        """The rows that ``row()`` sent."""
        return self.data.tables

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs that it contains."""
        return self.data.runs

    @property
    def losses(self) -> dict[str, dict[str, int]]:
        """Losses and failures: counts by kind, then by probe, map or location."""
        return self.data.losses

    @property
    def costs(self) -> Mapping[str, RunCost]:
        """What runs have cost, by their identity; of those that measured it."""
        return self.data.costs

    def to_dict(self, name: str) -> dict[Result, Result]:
        """A map as a dictionary."""
        return self.maps[name].to_dict()

    # ---- tables of other libraries

    def to_arrow(self, name: str, *, table: int = 1) -> pyarrow.Table:
        """A map, or for ``"rows"`` the rows that ``row()`` sent, as an Arrow table.

        Columns are those of ``-f csv``: the parts of the key, then those of the value, named as the map. A histogram
        has a row for each bucket, a time series one for each interval. Integers have 64 bits, stacks are lists of text.

        Args:
            name: the map, with or without ``@``; or ``"rows"``.
            table: the number of the table, from 1, if ``row()`` statements have different columns.

        Raises:
            TraceError: the map or table does not exist, or pyarrow is not installed (``pytrace-bpf[arrow]``).
        """
        return self._flat(name, table).to_arrow()

    def to_pandas(self, name: str, *, table: int = 1) -> pandas.DataFrame:
        """As :meth:`to_arrow`, as a frame of pandas (``pytrace-bpf[pandas]``)."""
        return self._flat(name, table).to_pandas()

    def to_polars(self, name: str, *, table: int = 1) -> polars.DataFrame:
        """As :meth:`to_arrow`, as a frame of Polars (``pytrace-bpf[polars]``)."""
        return self._flat(name, table).to_polars()

    def _flat(self, name: str, number: int) -> FlatTable:
        from pytrace.results.formats import tabular

        return tabular.named_table(self.data, name, number)

    # ---- files and formats

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the snapshot to a file that :meth:`load` and ``pytrace show`` read.

        Raises:
            TraceError: the file cannot be written.
        """
        from pytrace.results import file_form

        try:
            file_form.write(self.data, os.fspath(path))
        except OSError as error:
            raise TraceError(f"cannot write {os.fspath(path)!r}: {error.strerror}") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, limit: int | None = None) -> Self:
        """Load a snapshot from a file.

        Args:
            path: the file.
            limit: maximum bytes after decompression; None: a hundred times the file's size, or 32 MiB.

        Raises:
            TraceError: the file is not a snapshot, is damaged, exceeds *limit*, or was written by another version of
                pytrace.
        """
        from pytrace.results import file_form

        return cls(file_form.read(os.fspath(path), limit))

    def format(self, name: str, *maps: str) -> bytes:
        """The snapshot in one of the formats of ``-f``: all parts that the format supports, or only *maps*.

        Raises:
            TraceError: there is no such format or map, or the format cannot show it.
        """
        from pytrace.results.formats import table

        row, options = table.chosen(name, None)
        file = io.BytesIO()
        row.writer()(table.select(self.data, row, maps).snapshot, options, file)
        return file.getvalue()

    def merge(self, *others: Snapshot) -> Snapshot:
        """The state of one run that had seen everything.

        Raises:
            TraceError: the maps do not fit, or two snapshots are of one run.
        """
        return merge([self, *others])

    def _repr_html_(self) -> str:
        """HTML for notebooks: tables of maps and rows, histograms as bars, stacks as a tree of functions."""
        from pytrace.interface import html

        return html.snapshot(self.data)

    def __repr__(self) -> str:
        return f"<Snapshot of {len(self.runs)} runs: maps {', '.join(self.data.maps) or 'none'}>"


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """The state of one run that had seen everything.

    Raises:
        TraceError: the maps do not fit, or two snapshots are of one run.
    """
    from pytrace.results import merge as merging

    return Snapshot(merging.merge([item.data for item in snapshots]))


def _constant(data: MapData) -> Callable[[], MapData]:
    return lambda: data
