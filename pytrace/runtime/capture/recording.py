"""A run as snapshots tell of it."""

from __future__ import annotations

import hashlib
import os
import uuid
from typing import TYPE_CHECKING

import pytrace
from pytrace.render.forms import PortableForms
from pytrace.results.snapshot import MapData, Run, SnapshotData
from pytrace.runtime.capture.maps import map_data, read
from pytrace.runtime.capture.stack_traces import StackTraces, Symbols

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytrace.core.manifest import Manifest
    from pytrace.core.options.run_options import RunOptions
    from pytrace.render.forms import TextForms
    from pytrace.render.maps.map_printer import MapView
    from pytrace.runtime.capture.row_keeper import RowKeeper

Moment = tuple[int, int]
"""Wall time and monotonic time, in nanoseconds."""


class Recording:
    """Takes snapshots of one run, of the maps behind *views*."""

    def __init__(
        self,
        manifest: Manifest,
        options: RunOptions,
        views: Iterable[MapView],
        texts: TextForms,
        symbols: Symbols,
    ) -> None:
        self._manifest = manifest
        self._options = options
        self._views = tuple(views)
        self._texts = texts
        self._symbols = symbols
        self._identity = str(uuid.uuid4())
        self._script_hash = _script_hash(manifest, options)

    def snapshot(
        self,
        start: Moment,
        end: Moment,
        losses: dict[str, dict[str, int]],
        rows: RowKeeper | None,
        pause: Callable[[], None],
    ) -> SnapshotData:
        """All that there is at this moment.

        Args:
            start: when the probes were attached.
            end: now, or when they were detached.
            losses: see :func:`pytrace.runtime.output.messages.by_kind`.
            rows: the rows that were kept, where rows are kept.
            pause: called now and then while it takes long, for what must not wait.
        """
        forms = PortableForms(self._texts, StackTraces(self._symbols))
        # All are read before any is converted, which takes longer: they are to be of one moment as far as may be.
        found = []
        for view in self._views:
            found.append(read(view))
            pause()
        maps = {item.view.spec.name: map_data(item, forms, pause) for item in found}
        moments = {item.view.spec.name: item.time for item in found}
        tables = () if rows is None else rows.tables(self._identity, forms)
        return SnapshotData((self._run(start, end),), maps, tables, losses, moments)

    def map_data(self, name: str, pause: Callable[[], None]) -> MapData:
        """What one map holds at this moment."""
        view = next(view for view in self._views if view.spec.name == name)
        return map_data(read(view), PortableForms(self._texts, StackTraces(self._symbols)), pause)

    def _run(self, start: Moment, end: Moment) -> Run:
        system = os.uname()
        return Run(
            identity=self._identity,
            host=system.nodename,
            kernel=system.release,
            machine=system.machine,
            script=self._options.script,
            script_hash=self._script_hash,
            parameters=_parameters(self._manifest, self._options),
            start=start[0],
            end=end[0],
            start_monotonic=start[1],
            end_monotonic=end[1],
            version=pytrace.__version__,
        )


def _script_hash(manifest: Manifest, options: RunOptions) -> str:
    """SHA-256 of the script's text; an ahead-of-time file, which has no text any more, has it from its compilation."""
    if manifest.ahead is not None:
        return manifest.ahead.script_hash
    return hashlib.sha256(options.text.encode("utf-8", "surrogateescape")).hexdigest()


def _parameters(manifest: Manifest, options: RunOptions) -> tuple[str, ...]:
    """Parameters as they were given; those that an ahead-of-time file fixed need not be given again."""
    if manifest.ahead is None:
        return options.parameters
    fixed = manifest.ahead.parameters
    positional = [text for text in options.parameters if not text.startswith("--")]
    named = [text for text in options.parameters if text.startswith("--")]
    positional += fixed.positional[len(positional) :]
    named += [f"--{name}" if value is None else f"--{name}={value}" for name, value in fixed.fixed]
    return (*positional, *dict.fromkeys(named))
