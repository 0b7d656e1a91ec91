"""``-f`` with a format that is written at the end of a run, from a snapshot: ``-f folded``, ``-f pprof`` …"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytrace.base import whole_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Record
from pytrace.results.formats import table
from pytrace.results.formats.selection import select
from pytrace.results.snapshot import MapData, SnapshotData, Table
from pytrace.runtime.output.streams import Flush, Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.core.manifest import Manifest
    from pytrace.core.options.run_options import RunOptions


class Export:
    """Writes the last snapshot in the format of ``-f`` to the file of ``-o`` or standard output.

    Raises:
        TraceError: there is no such format, it shows nothing of what the script has, or it cannot be written there;
            nothing has been traced by then.
    """

    def __init__(self, manifest: Manifest, options: RunOptions) -> None:
        self._row, self._settings = table.chosen(options.format, None)
        self._path = options.output
        if self._row.binary and self._path is None and os.isatty(1):
            hints = (f"-o FILE writes it to a file, for example -o profile{self._row.suffixes[0]}",)
            raise TraceError(f"format {self._row.name} is nothing for a terminal", hints=hints)
        self._write = self._row.writer()
        empty = _without_values(manifest)
        if not empty.maps and not empty.tables:
            shown = ", ".join(sorted(held.value for held in self._row.shows))
            hints = (f"format {self._row.name} shows {shown}",)
            raise TraceError("the script has no maps and no rows that could be written", hints=hints)
        select(empty, self._row)
        if self._path is not None:
            try:
                whole_files.check(self._path)
            except OSError as error:
                raise TraceError(f"cannot write output to {self._path!r}: {error.strerror}") from error

    def write(self, snapshot: SnapshotData, warn: Callable[[str], None]) -> str:
        """Write what the format shows, and tell what it does not; gives what went wrong, as a sentence."""
        held = {name: data for name, data in snapshot.maps.items() if data.entries}
        file = io.BytesIO()
        try:
            chosen = select(replace(snapshot, maps=held), self._row)
            for sentence in chosen.left_out:
                warn(sentence)
            self._write(chosen.snapshot, self._settings, file)
            self._deliver(file.getvalue())
        except TraceError as error:
            return "; ".join((error.message, *error.hints))
        return ""

    def _deliver(self, data: bytes) -> None:
        if self._path is None:
            output = Output(1, flush=Flush.FULL)
            try:
                output.write(data)
            finally:
                output.close()
            return
        try:
            whole_files.write(self._path, data)
        except OSError as error:
            raise TraceError(f"cannot write output to {self._path!r}: {error.strerror}") from error


def _without_values(manifest: Manifest) -> SnapshotData:
    """What a snapshot of the script would have, as far as that is known before the run."""
    maps = {spec.name: MapData(spec.name, spec.key, spec.value) for spec in manifest.maps}
    rows = any(spec.kind == "row" for spec in manifest.events)
    return SnapshotData((), maps, (Table(Record((), ())),) if rows else ())
