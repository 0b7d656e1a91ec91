"""Snapshots of a run: its maps, rows and losses as plain data, during the run and after it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pytrace.core.manifest import Manifest
from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.output import messages
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.output.ring import RingReader
from pytrace.runtime.session.probes import Probes
from pytrace.runtime.session.services.losses import Losses
from pytrace.runtime.symbols.lazy import LazySymbols

if TYPE_CHECKING:
    from pytrace.core.costs import RunCost
    from pytrace.results.snapshot import MapData, SnapshotData
    from pytrace.runtime.capture.recording import Recording, RowKeeper
    from pytrace.runtime.session.services.costs import Costs


class Snapshots:
    """Takes snapshots of a run.

    *rows* has the rows that were printed, *costs* what the run costs; without them snapshots have none.
    """

    def __init__(
        self,
        manifest: Manifest,
        options: RunOptions,
        renderer: Renderer,
        ring: RingReader,
        symbols: LazySymbols,
        probes: Probes,
        losses: Losses,
        rows: RowKeeper | None,
        costs: Costs | None = None,
    ) -> None:
        self._manifest = manifest
        self._options = options
        self._renderer = renderer
        self._ring = ring
        self._symbols = symbols
        self._probes = probes
        self._losses = losses
        self._rows = rows
        self._costs = costs

    def take(self) -> SnapshotData:
        """A snapshot: of this moment, or of the end once the probes are detached."""
        return self._take(0)

    def last(self) -> SnapshotData:
        """The snapshot of the end: with what was printed of maps during the run, and which maps were never shown."""
        snapshot = self._take(0)
        for name, data in snapshot.maps.items():
            data.hidden |= name not in self._printed and not data.entries
        if (keeper := self._renderer.state.prints) is not None:
            snapshot.prints = self._recording.prints(keeper)
        return snapshot

    def greatest(self, count: int) -> tuple[SnapshotData, dict[str, int]]:
        """A snapshot with at most *count* entries of each map, the last ones as maps print, and none of the rows.

        Returns:
            the snapshot, and the number of entries that each map has besides.
        """
        return self._take(count), dict(self._recording.others)

    def clear(self, name: str) -> None:
        """Empty a map; of a double-buffered one no update is lost."""
        next(view for view in self._renderer.views() if view.spec.name == name).reset(self._collect)

    def _take(self, most: int) -> SnapshotData:
        self._symbols.poll()
        recording = self._recording
        totals = self._renderer.all_losses(self._losses.totals())
        losses = messages.by_kind(self._manifest, totals)
        start, end = self._probes.period()
        snapshot = recording.snapshot(
            start, end, losses, tuple(self._losses.gaps), None if most else self._rows, self._collect,
            None if most else self.cost(), most,
        )  # fmt: skip
        if not self._manifest.config.print_maps_on_exit:
            for name, data in snapshot.maps.items():
                data.hidden = name not in self._printed
        return snapshot

    @cached_property
    def _printed(self) -> set[str]:
        """The maps that statements of the script print."""
        from pytrace.core.event_layout import PrintedMap, Quantiles

        statics = (event.static for event in self._manifest.events)
        return {static.map for static in statics if isinstance(static, PrintedMap | Quantiles)}

    def cost(self) -> RunCost | None:
        """The costs of the run so far; None where they are not measured."""
        return None if self._costs is None else self._costs.read()

    def map_data(self, name: str) -> MapData:
        """The current content of the map *name*."""
        self._symbols.poll()
        return self._recording.map_data(name, self._collect)

    def element(self, name: str, key: bytes) -> MapData | None:
        """What the map *name* has at *key*, as a map of no more than that; None where one look-up is not enough."""
        self._symbols.poll()
        return self._recording.element(name, key)

    def change(self, name: str, key: bytes | None, value: bytes | None) -> bool:
        """Store *value* at *key*, or remove the key; without both empty the map."""
        view = next(view for view in self._renderer.views() if view.spec.name == name)
        if key is None and value is None:
            view.reset(self._collect)
            return True
        return view.change(key, value)

    @cached_property
    def _recording(self) -> Recording:
        from pytrace.runtime.capture.recording import Recording  # few runs take snapshots

        renderer = self._renderer
        return Recording(self._manifest, self._options, renderer.views(), renderer.forms.raw_texts, self._symbols)

    def _collect(self) -> None:
        """Free the ring for new events; the collected ones are handled later."""
        while self._ring.collect():
            pass
