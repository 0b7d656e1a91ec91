"""Snapshots of a run as files: ``--save``, ``--save-every``, and formats of ``-f`` that show the last one."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from pytrace.base import whole_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest
from pytrace.core.options import RunOptions
from pytrace.core.types import Hist, LHist, Record
from pytrace.results import file_form
from pytrace.results.findings import findings, nothing_counted
from pytrace.results.formats import table
from pytrace.results.formats.report_data import findings_over_time
from pytrace.results.snapshot import MapData, SnapshotData, Table
from pytrace.runtime.output.streams import Flush, Output
from pytrace.runtime.session.services import EndOfRun, Service

_PICTURES = frozenset({"html", "svg"})
"""Formats after which the terminal says what was found."""
_UNSAVED = "no snapshot was saved at the end because of the interrupt"


def check(options: RunOptions) -> None:
    """Check that snapshots can be written, before anything is traced. A missing directory is created.

    Raises:
        TraceError: a file or the directory cannot be written.
    """
    if options.save is not None:
        _check(options.save)
    if options.save_every is not None:
        _check(options.save_every[1], folder=True)


class Export:
    """Writes the last snapshot in the format of ``-f`` to the file of ``-o`` or standard output.

    Raises:
        TraceError: there is no such format, it shows nothing of what the script has, or it cannot be written there;
            nothing has been traced by then.
    """

    def __init__(self, manifest: Manifest, options: RunOptions) -> None:
        self._row, self._settings = table.chosen(options.format, None)
        self._path = options.output
        self.written: list[str] = []
        """The file that was written, with its size, if there is one."""
        self.found: list[str] = []
        """What its picture shows, in lines."""
        if self._row.binary and self._path is None and os.isatty(1):
            hints = (f"-o FILE writes it to a file, for example -o profile{self._row.suffixes[0]}",)
            raise TraceError(f"format {self._row.name} is nothing for a terminal", hints=hints)
        self._write = self._row.writer()
        empty = _without_values(manifest)
        if not empty.maps and not empty.tables:
            shown = ", ".join(sorted(held.value for held in self._row.shows))
            hints = (f"format {self._row.name} shows {shown}",)
            raise TraceError("the script has no maps and no rows that could be written", hints=hints)
        table.select(empty, self._row)
        if self._path is not None:
            try:
                whole_files.check(self._path)
            except OSError as error:
                raise TraceError(f"cannot write output to {self._path!r}: {error.strerror}") from error

    def write(self, snapshot: SnapshotData, warn: Callable[[str], None], earlier: Sequence[str] = ()) -> str:
        """Write what the format shows, and warn of the rest. Returns an error as a sentence, or an empty text.

        *earlier* are files with snapshots of the run: a format that shows several writes them, too.
        """
        printed = {item.map for item in snapshot.prints} if self._row.series is not None else set()
        held = {name: data for name, data in snapshot.shown.items() if data.entries or name in printed}
        file = io.BytesIO()
        try:
            chosen = table.select(replace(snapshot, maps=held), self._row)
            for sentence in chosen.left_out:
                warn(sentence)
            if self._row.series is not None and earlier:
                states = [file_form.read(path) for path in earlier]
                states.append(snapshot)
                self._deliver(self._row.series(states, self._settings))
                if self._path is not None:
                    self.found += findings_over_time(states) or nothing_counted(snapshot)
                    if not any(isinstance(data.value, Hist | LHist) for data in snapshot.shown.values()):
                        self.found.append(
                            "no heat map, as there are no histograms: numbers are lines, others tables; tools with one:"
                            " biolatency, cpudist, fsdist, runqlat; in a script: @us = hist(…)"
                        )
                    folder = os.path.dirname(earlier[0])
                    self.written.append(f"{len(earlier)} snapshot{'s' if len(earlier) > 1 else ''} in {folder}")
                return ""
            self._write(chosen.snapshot, self._settings, file)
            self._deliver(file.getvalue())
            if self._path is not None and self._row.name in _PICTURES:
                self.found += findings(chosen.snapshot)
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
        self.written.append(f"{self._path} ({max(1, len(data) // 1000):,} kB)")


def _without_values(manifest: Manifest) -> SnapshotData:
    """A snapshot of the script without values, as it is known before the run."""
    maps = {spec.name: MapData(spec.name, spec.key, spec.value) for spec in manifest.maps}
    rows = any(spec.kind == "row" for spec in manifest.events)
    return SnapshotData((), maps, (Table(Record((), ())),) if rows else ())


class Saving(Service):
    """Saves snapshots, which *take* returns; *warn* reports what could not be saved while the run goes on.

    *last* returns that of the end of the run.

    *exports* write the last snapshot as the output of the run, in place of printing the maps.
    """

    def __init__(
        self,
        options: RunOptions,
        exports: Iterable[Export],
        take: Callable[[], SnapshotData],
        warn: Callable[[str], None],
        *,
        last: Callable[[], SnapshotData] | None = None,
    ) -> None:
        self._last = last or take
        self._path = options.save
        self._interval, self._folder = options.save_every or (float("inf"), "")
        self._take = take
        self._warn = warn
        self._exports = tuple(exports)
        self._next = time.monotonic() + self._interval
        self._saved: list[str] = []
        """The files of the interval."""
        self._failure = ""
        """Why the last one could not be saved; it is reported once."""
        self._finished = False

    def attached(self) -> None:
        """The interval begins."""
        self._next = time.monotonic() + self._interval

    def pause(self, longest: float) -> float:
        """Seconds until the next snapshot, at most *longest*."""
        return max(0.0, min(longest, self._next - time.monotonic()))

    def work(self, _handled: int) -> None:
        """Save a snapshot in the directory when it is time to."""
        now = time.monotonic()
        if now < self._next:
            return
        # What took too long leaves out those that should have come meanwhile.
        self._next += self._interval * (1 + (now - self._next) // self._interval)
        path = self._dated()
        failure = _save(self._take(), path)
        if not failure:
            self._saved.append(path)
        if failure and failure != self._failure:
            self._warn(f"{_unsaved(path, failure)}; the run goes on")
        self._failure = failure

    def finish(self, end: EndOfRun) -> None:
        """Save the last snapshot, and write it in the format of ``-f``: then the maps are not printed."""
        snapshot = self._last()
        paths = [self._dated()] if self._folder else []
        paths += [self._path] if self._path is not None else []
        failures = [(path, _save(snapshot, path)) for path in paths]
        end.errors += [_unsaved(path, failure) for path, failure in failures if failure]
        for export in self._exports:
            # Maps that could not be written in another format are printed, so that they are not lost.
            if error := export.write(snapshot, self._warn, self._saved):
                end.errors.append(error)
            else:
                end.print_maps = False
                end.written += export.written
                end.found += export.found
        self._finished = True

    def break_off(self) -> None:
        """Warn that the last snapshot is missing."""
        if not self._finished:
            self._warn(_UNSAVED)

    def _dated(self) -> str:
        """A name in the directory that sorts by time (UTC)."""
        seconds, rest = divmod(time.time_ns(), 1_000_000_000)
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
        return os.path.join(self._folder, f"{moment}.{rest // 1_000_000:03}Z{file_form.SUFFIX}")


def _save(snapshot: SnapshotData, path: str) -> str:
    """Write a file whole or not at all. Returns why that was not possible, or an empty text."""
    try:
        file_form.write(snapshot, path)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _unsaved(path: str, failure: str) -> str:
    return f"the snapshot {path!r} could not be saved: {failure}"


def _check(path: str, *, folder: bool = False) -> None:
    """Check that a file can be written, or files in a folder, which is created if missing."""
    try:
        if folder:
            os.makedirs(path, exist_ok=True)
        whole_files.check(os.path.join(path, file_form.SUFFIX) if folder else path)
    except OSError as error:
        where = "in" if folder else "as"
        raise TraceError(f"snapshots cannot be saved {where} {path!r}: {error.strerror}") from error
