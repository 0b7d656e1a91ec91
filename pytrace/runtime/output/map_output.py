"""Maps of a run as output: views of them, and their text in the format of the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import PrintedMap
from pytrace.core.types import Hist, LHist
from pytrace.render.maps import map_tables
from pytrace.render.maps.map_printer import Block, MapView, Reader, Shown
from pytrace.runtime.machine.syscalls import can_sort_records, sort_records

if TYPE_CHECKING:
    from pytrace.render.large_maps.printing import LargeMap
    from pytrace.render.maps.stack_layout import StackLayout
    from pytrace.runtime.capture.prints import PrintKeeper
    from pytrace.runtime.output.context import Context
    from pytrace.runtime.output.heat_output import HeatOutput


class MapOutput:
    """Shows the maps of a script, which *reader* reads."""

    def __init__(self, context: Context, reader: Reader) -> None:
        self._context = context
        self._output = context.output
        self._reader = reader
        self._views: dict[str, MapView] = {}
        self._specs = {item.name: item for item in context.manifest.maps}

    def view(self, name: str) -> MapView:
        """The view of a map of the script."""
        view = self._views.get(name)
        if view is None:
            spec = self._specs.get(name)
            if spec is None:
                raise InternalError(f"an event names {name}, a map that the script does not have")
            context = self._context
            texts = context.raw_texts if self._output.csv else context.texts  # tables have escapes of their own
            view = self._views[name] = MapView(
                spec, self._reader, context.decoders, texts, context.jsons, large_map, context.state.marks, self._layout
            )
        return view

    @cached_property
    def _layout(self) -> StackLayout | None:
        """The layout of maps with stacks, where the script asks for one."""
        words = self._context.manifest.stack_layout
        if not words:
            return None
        from pytrace.render.maps.stack_layout import StackLayout  # few scripts ask

        return StackLayout.of(words)

    def printer(self, static: PrintedMap) -> Callable[[], bytes]:
        """The text of ``print()`` of a map."""
        shown = Shown(static.top, static.div, static.order, static.clear)
        view = self.view(static.map)
        keeper = self._context.state.prints
        if keeper is not None and keeper.keeps(view) and not self._output.csv:
            text = partial(self._kept, keeper, view, shown)
        else:
            text = partial(self._form(view), shown, always=True)
        if self._context.options.heat is None or not isinstance(view.value_type, Hist | LHist):
            return text
        return lambda: text() if self._context.state.resumed else self.heat.text(view, shown)

    def _kept(self, keeper: PrintKeeper, view: MapView, shown: Shown) -> bytes:
        """The text of a map, whose entries are kept, too."""
        entries = view.entries(shown, always=True)
        keeper.keep(view, entries, div=shown.div, clear=shown.clear)
        return view.entries_json(entries, shown) if self._output.json else view.entries_text(entries, shown)

    def _form(self, view: MapView) -> Callable[..., bytes]:
        """The form of a map: ``form(shown, always=…)``."""
        if self._output.csv:
            return partial(map_tables.entries, view, self._context.rows.page)
        return view.json if self._output.json else view.text

    @cached_property
    def heat(self) -> HeatOutput:
        """The lines of ``--heat``."""
        from pytrace.runtime.output.heat_output import HeatOutput  # few runs have the option

        return HeatOutput(self._context)

    def heat_line(self, name: str, *, rest: bool) -> bytes:
        """The line of a map; *rest*: empty if it has counted nothing since the last one."""
        return self.heat.text(self.view(name), Shown(), rest=rest)

    def clear(self, name: str) -> None:
        """Empty a map, unless it is a result."""
        if name not in self._context.state.shown_at_end:
            self.view(name).clear()
            self._emptied(name)

    def zero(self, name: str) -> None:
        """Set all values of a map to zero."""
        self.view(name).zero()
        self._emptied(name)

    def _emptied(self, name: str) -> None:
        if self._context.options.heat is not None:
            self.heat.forget(name)
        if self._context.state.prints is not None:
            self._context.state.prints.emptied(name)

    def parts(self, name: str) -> Iterator[bytes]:
        """The whole text of a map, in parts."""
        view = self.view(name)
        if self._output.csv:
            return iter((self._form(view)(),))
        return view.json_parts() if self._output.json else view.text_parts()

    def quantiles(self, name: str) -> Callable[[Sequence[str]], bytes]:
        """The text of percentiles of a map."""
        view = self.view(name)
        if self._output.csv:
            return partial(map_tables.quantiles, view, self._context.rows.page)
        return view.quantiles_json if self._output.json else view.quantiles_text


def large_map(view: MapView, block: Block, shown: Shown) -> LargeMap | None:
    """The printer of a map with very many keys; *block* has some of them."""
    from pytrace.render.large_maps import printing  # few runs have such maps

    return printing.large_map(view, block, shown, sort_records if can_sort_records() else None)
