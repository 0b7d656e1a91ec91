"""Services that options or scripts ask for: each function returns them, none for a run that does not need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.types import Stack, StackMode, parts
from pytrace.runtime.load.map_reader import MapReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import ExitStack

    from pytrace.core.config import Config
    from pytrace.core.manifest import MapSpec
    from pytrace.core.options.run_options import RunOptions
    from pytrace.results.snapshot import SnapshotData
    from pytrace.runtime.load.loaded_script import LoadedScript
    from pytrace.runtime.ring.reader import EventLoop
    from pytrace.runtime.session.notices import Notices
    from pytrace.runtime.session.resources import Command
    from pytrace.runtime.session.services.exporting import Export
    from pytrace.runtime.session.services.service import Service
    from pytrace.runtime.session.snapshots import Snapshots
    from pytrace.runtime.symbols.lazy import LazySymbols

# Imports inside the functions: few runs need these services.


def all_of(
    options: RunOptions,
    exports: Iterable[Export],
    loaded: LoadedScript,
    lazy: LazySymbols,
    snapshots: Snapshots,
    notices: Notices,
    command: Command,
    loop: EventLoop,
    stack: ExitStack,
) -> list[Service]:
    """All that a run needs, in the order in which they are called: source lines are read before maps are saved."""
    config, take = loaded.manifest.config, snapshots.take
    return [
        *reading_ahead(loaded, options, lazy),
        *saving(options, exports, take, notices.warn),
        *metrics(options, config, take, notices.tell, stack),
        *run_end(options, command.descriptors, loaded, loop, stack),
    ]


def reading_ahead(loaded: LoadedScript, options: RunOptions, lazy: LazySymbols) -> list[Service]:
    """Reading of the source lines of stacks in maps before these are printed or saved."""
    config = loaded.manifest.config
    shown = config.show_debug_info and (config.print_maps_on_exit or options.saves) and not options.dry_run
    specs = [spec for spec in loaded.manifest.maps if has_user_stacks(spec)] if shown else []
    if not specs:
        return []
    from pytrace.runtime.session.services.reading_ahead import ReadingAhead

    return [ReadingAhead(specs, MapReader(loaded), lazy, saved=options.saves)]


def has_user_stacks(spec: MapSpec) -> bool:
    """Whether printing a map shows functions of user stacks."""
    roots = [type_ for type_ in (spec.key, spec.value) if type_ is not None]
    stacks = (inner for inner in parts(roots) if isinstance(inner, Stack))
    return any(stack.user and stack.mode not in (StackMode.RAW, StackMode.BUILD_ID) for stack in stacks)


def saving(
    options: RunOptions, exports: Iterable[Export], take: Callable[[], SnapshotData], warn: Callable[[str], None]
) -> list[Service]:
    """Saving of snapshots (``--save``, ``--save-every``), and writing of the last one in the format of ``-f``."""
    if not options.saves or options.dry_run:
        return []
    from pytrace.runtime.session.services.saving import Saving

    return [Saving(options, exports, take, warn)]


def metrics(
    options: RunOptions, config: Config, take: Callable[[], SnapshotData], tell: Callable[[str], None], stack: ExitStack
) -> list[Service]:
    """Serving of metrics (``--metrics``).

    Raises:
        TraceError: they cannot be served where they are to be.
    """
    if options.metrics is None:
        return []
    from pytrace.runtime.session.services.metrics import Metrics

    served = Metrics(options.metrics, config, take, tell)
    stack.callback(served.close)
    return [served]


def run_end(
    options: RunOptions, command: tuple[int, ...], loaded: LoadedScript, loop: EventLoop, stack: ExitStack
) -> list[Service]:
    """The end of the run with that of the traced processes (*command* is that of ``-c``), or when its time is over.

    Raises:
        TraceError: there is no such process.
    """
    if not command and not options.filters.pids and not options.filters.exec_wait and options.duration is None:
        return []
    from pytrace.runtime.session.services.run_end import RunEnd

    return [RunEnd(options, command, loaded, loop, stack)]
