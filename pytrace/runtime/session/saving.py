"""What is written of a run's snapshots: ``--save``, ``--save-every``, formats of ``-f`` that show one."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from pytrace.base import whole_files
from pytrace.core.diagnostics import TraceError
from pytrace.results import file_form

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.core.options.run_options import RunOptions
    from pytrace.results.snapshot import SnapshotData
    from pytrace.runtime.session.exporting import Export


class Saving:
    """Saves what *take* gives; *warn* tells what could not be saved while the run goes on.

    *export* writes the last snapshot as the output of the run.

    Raises:
        TraceError: a file or the directory cannot be written; nothing has been traced by then.
    """

    def __init__(
        self,
        options: RunOptions,
        take: Callable[[], SnapshotData],
        warn: Callable[[str], None],
        export: Export | None = None,
    ) -> None:
        self._path = options.save
        self._interval, self._folder = options.save_every or (float("inf"), "")
        self._take = take
        self._warn = warn
        self._export = export
        self.exported = False
        """Whether the maps have been written, in place of being printed."""
        self._next = time.monotonic() + self._interval
        self._failure = ""
        """Why the last one could not be saved; it is told once."""
        self.finished = False
        """Whether all was done that can be done at the end."""
        if self._path is not None:
            _check(self._path)
        if self._folder:
            _check(self._folder, folder=True)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Nothing but the time makes it work."""
        return ()

    def begin(self) -> None:
        """The probes are attached: from here on time counts."""
        self._next = time.monotonic() + self._interval

    def pause(self, longest: float) -> float:
        """How long to wait for events before :meth:`work` is called, at most *longest* seconds."""
        return max(0.0, min(longest, self._next - time.monotonic()))

    def work(self) -> None:
        """Save a snapshot in the directory when it is time to."""
        now = time.monotonic()
        if now < self._next:
            return
        # What took too long leaves out those that should have come meanwhile.
        self._next += self._interval * (1 + (now - self._next) // self._interval)
        path = self._dated()
        failure = _save(self._take(), path)
        if failure and failure != self._failure:
            self._warn(f"{_unsaved(path, failure)}; the run goes on")
        self._failure = failure

    def finish(self) -> str:
        """Save the last snapshot; gives what went wrong, as a sentence."""
        snapshot = self._take()
        paths = [self._dated()] if self._folder else []
        paths += [self._path] if self._path is not None else []
        failures = [(path, _save(snapshot, path)) for path in paths]
        sentences = [_unsaved(path, failure) for path, failure in failures if failure]
        if self._export is not None:
            sentence = self._export.write(snapshot, self._warn)
            self.exported = not sentence
            sentences += [sentence] if sentence else []
        self.finished = True
        return "; ".join(sentences)

    def _dated(self) -> str:
        """A name in the directory that sorts by time (UTC)."""
        seconds, rest = divmod(time.time_ns(), 1_000_000_000)
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
        return os.path.join(self._folder, f"{moment}.{rest // 1_000_000:03}Z{file_form.SUFFIX}")


def _save(snapshot: SnapshotData, path: str) -> str:
    """Write a file whole or not at all; gives why that was not possible, empty when it was."""
    try:
        file_form.write(snapshot, path)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _unsaved(path: str, failure: str) -> str:
    return f"the snapshot {path!r} could not be saved: {failure}"


def _check(path: str, *, folder: bool = False) -> None:
    """See whether a file can be written, or files in a folder, which is made where there is none."""
    try:
        if folder:
            os.makedirs(path, exist_ok=True)
        whole_files.check(os.path.join(path, file_form.SUFFIX) if folder else path)
    except OSError as error:
        where = "in" if folder else "as"
        raise TraceError(f"snapshots cannot be saved {where} {path!r}: {error.strerror}") from error
