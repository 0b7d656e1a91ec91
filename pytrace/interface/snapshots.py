"""Maps of scripts as mappings."""

from __future__ import annotations

import errno
import io
import os
import struct
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING, Self

import msgspec

from pytrace.core.costs import RunCost
from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.core.manifest import MapSpec
from pytrace.core.types import AGGREGATIONS, Bool, Float, Int, Pointer, Record, String, Tuple, Type
from pytrace.render.value_kind import Result
from pytrace.render.values import value_kind_of
from pytrace.results import file_form
from pytrace.results import merge as merging
from pytrace.results.snapshot import MapData, Run, SnapshotData, Table

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from pytrace.results.formats.tabular import FlatTable

class _UnencodableError(Exception):
    """A value that has no bytes of a type, or none that are known here."""


def encoded(type_: Type, value: object) -> bytes:
    """The bytes of a key or value as programs have it.

    Raises:
        _UnencodableError: the value is not of the type, or of a type that programs alone make (stacks, symbols).
    """
    if isinstance(type_, Bool) and isinstance(value, bool | int):
        return bytes([bool(value)])
    if isinstance(type_, Int) and isinstance(value, int) and type_.low <= value <= type_.high:
        return value.to_bytes(type_.width, "little", signed=type_.signed)
    if isinstance(type_, Pointer) and isinstance(value, int) and 0 <= value < 1 << 64:
        return value.to_bytes(8, "little")
    if isinstance(type_, Float) and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return struct.pack("=f" if type_.size == 4 else "=d", value)
        except OverflowError:
            raise _UnencodableError from None
    if isinstance(type_, String) and isinstance(value, str | bytes):
        text = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
        if len(text) < type_.size and b"\0" not in text:
            return text.ljust(type_.size, b"\0")
    if isinstance(type_, Record | Tuple) and isinstance(value, tuple) and len(value) == len(type_.members):
        data = bytearray(type_.size)
        for member, offset, part in zip(type_.members, type_.offsets, value, strict=True):
            data[offset : offset + member.size] = encoded(member, part)
        return bytes(data)
    raise _UnencodableError


class MapAccess(msgspec.Struct, frozen=True):
    """The map of a running script: *element* looks one key up (None: the whole map has to be read), *change* stores a
    value, removes a key (no value), or empties the map (neither).
    """

    spec: MapSpec
    element: Callable[[bytes], MapData | None]
    change: Callable[[bytes | None, bytes | None], bool]


class ResultMap(Mapping[Result, Result]):
    """A map of a script: keys are plain values (tuples where a script has several), see ``pytrace.results.snapshot``.

    The value of a map without keys is :attr:`value`, and also that of the key None. A map of a running script that is
    no aggregation can be written: ``trace.maps["@limit"][None] = 5``, ``del trace.maps["@pids"][7]``; programs see it
    at once. :meth:`clear` empties any map.
    """

    def __init__(self, name: str, read: Callable[[], MapData], access: MapAccess | None = None) -> None:
        self.name = name
        self._read = read
        self._access = access

    @property
    def data(self) -> MapData:
        """The current contents of the map, as plain data."""
        return self._read()

    @property
    def key_type(self) -> Type | None:
        """Type of the keys; None without keys."""
        return self.data.key

    @property
    def value_type(self) -> Type:
        """Type of the values."""
        return self.data.value

    @property
    def mark(self) -> str:
        """``estimate`` if hits were left out and others counted for them, ``sample`` if values are of some hits only.

        Empty if the values are exact. Hits are left out with ``budget=``.
        """
        return self.data.mark

    @property
    def help(self) -> str:
        """The comment above the first use of the map in the script."""
        return self.data.help

    @property
    def value(self) -> Result:
        """The value of a map without keys; None if nothing has been stored.

        Raises:
            TypeError: the map has keys.
        """
        data = self.data
        if data.key is not None:
            raise TypeError(f"{self.name} has keys: use {self.name}[key], or items()")
        return value_kind_of(data.value).python()(data.entries[None]) if data.entries else None

    def __getitem__(self, key: Result) -> Result:
        data = self._element(key)
        if data is None:
            data = self.data
        return value_kind_of(data.value).python()(data.entries[key])

    def _element(self, key: Result) -> MapData | None:
        """The entry of *key* alone; None where the whole map has to be read."""
        if self._access is None or self._access.spec.key is None:
            return None
        try:
            return self._access.element(encoded(self._access.spec.key, key))
        except _UnencodableError:
            return None

    def __setitem__(self, key: Result, value: Result) -> None:
        """Store a value.

        Raises:
            TypeError: the map is an aggregation, or of a snapshot, or key or value are not of its types.
            TraceError: the map is full, or the trace is closed.
        """
        access = self._writable()
        try:
            name = None if access.spec.key is None and key is None else encoded(access.spec.key or Tuple(()), key)
            data = encoded(access.spec.value, value)
        except _UnencodableError:
            keys = "" if access.spec.key is None else f"[{access.spec.key}]"
            message = f"{self.name}{keys} holds {access.spec.value}: {key!r} or {value!r} cannot be stored in it"
            raise TypeError(message) from None
        self._change(access, name, data)

    def __delitem__(self, key: Result) -> None:
        """Remove a key.

        Raises:
            KeyError: it is not there.
            TypeError: as for ``map[key] = value``.
        """
        access = self._writable()
        try:
            name = encoded(access.spec.key or Tuple(()), key)
        except _UnencodableError:
            raise KeyError(key) from None
        if not self._change(access, name, None):
            raise KeyError(key)

    def clear(self) -> None:
        """Empty the map, as ``clear()`` of a script does; of an aggregation no update is lost.

        Raises:
            TypeError: the map is of a snapshot.
            TraceError: the trace is closed.
        """
        self._change(self._running(), None, None)

    def _running(self) -> MapAccess:
        if self._access is None:
            raise TypeError(f"{self.name} is of a snapshot, which does not change")
        return self._access

    def _writable(self) -> MapAccess:
        access = self._running()
        spec = access.spec
        if isinstance(spec.value, AGGREGATIONS) or spec.kind.startswith("percpu"):
            raise TypeError(f"{self.name} is {spec.value}, which only the script updates; clear() empties it")
        if spec.keys or (spec.slot is not None and spec.slot.copies > 1):
            raise TypeError(f"{self.name} is kept in a form that only the script can write")
        return access

    def _change(self, access: MapAccess, key: bytes | None, value: bytes | None) -> bool:
        try:
            return access.change(key, value)
        except OSError as error:
            full = error.errno in (errno.E2BIG, errno.ENOMEM)
            reason = f"it is full ({access.spec.max_entries} keys)" if full else error.strerror
            raise TraceError(f"{self.name} cannot be changed: {reason}") from error

    def __iter__(self) -> Iterator[Result]:
        return iter(list(self.data.entries))

    def __len__(self) -> int:
        return len(self.data.entries)

    def items(self) -> ItemsView[Result, Result]:
        """Keys and values, from a single read."""
        return self.to_dict().items()

    def values(self) -> ValuesView[Result]:
        """The values, from a single read."""
        return self.to_dict().values()

    def to_dict(self) -> dict[Result, Result]:
        """Keys and values as a new dictionary."""
        data = self.data
        form = value_kind_of(data.value).python()
        return {key: form(value) for key, value in data.entries.items()}

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        from pytrace.interface import html  # in notebooks

        return html.result_map(self.data)

    def __repr__(self) -> str:
        # Without its size, which would have to be read from the kernel: a closed trace cannot do that.
        return f"<map {self.name}>"


class Maps(Mapping[str, ResultMap]):
    """The maps of a script by name (``@`` may be left out)."""

    def __init__(self, maps: Mapping[str, ResultMap]) -> None:
        self._maps = dict(maps)

    def __getitem__(self, name: str) -> ResultMap:
        found = self._maps.get(name if name in self._maps else f"@{name}")
        if found is None:
            hints = did_you_mean(name, self._maps) or ("there are " + (", ".join(self._maps) or "none"),)
            raise KeyError(f"there is no map {name!r}; {hints[0]}")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    def __repr__(self) -> str:
        return f"<maps {', '.join(self._maps) or 'none'}>"


# ------------------------------------------------------------------------------------------------------------ snapshots

# The snapshot class of the Python interface.


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
        from pytrace.results.formats import tabular  # frames need pandas or Polars

        return tabular.named_table(self.data, name, number)

    # ---- files and formats

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the snapshot to a file that :meth:`load` and ``pytrace show`` read.

        Raises:
            TraceError: the file cannot be written.
        """
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
        return cls(file_form.read(os.fspath(path), limit))

    def format(self, name: str, *maps: str) -> bytes:
        """The snapshot in one of the formats of ``-f``: all parts that the format supports, or only *maps*.

        Raises:
            TraceError: there is no such format or map, or the format cannot show it.
        """
        from pytrace.results.formats import table  # few formats are asked for

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
        from pytrace.interface import html  # in notebooks

        return html.snapshot(self.data)

    def __repr__(self) -> str:
        return f"<Snapshot of {len(self.runs)} runs: maps {', '.join(self.data.maps) or 'none'}>"


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """The state of one run that had seen everything.

    Raises:
        TraceError: the maps do not fit, or two snapshots are of one run.
    """
    return Snapshot(merging.merge([item.data for item in snapshots]))


def _constant(data: MapData) -> Callable[[], MapData]:
    return lambda: data
