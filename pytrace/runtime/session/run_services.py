"""The services of a run: what it does beside handling events, and which of that its options and its script ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pytrace.core.manifest import Manifest, MapSpec
from pytrace.core.options.run_options import RunOptions
from pytrace.core.probes.kinds import INTERVAL, known_kind
from pytrace.core.probes.targets import sampling_period
from pytrace.core.types import Stack, StackMode, parts
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.load.map_reader import MapReader
from pytrace.runtime.output.streams import Output
from pytrace.runtime.session.confinement import Confinement
from pytrace.runtime.session.resources import Resources
from pytrace.runtime.session.services.losses import SKIPPED, NoHeartbeat
from pytrace.runtime.session.services.processes import OwnModules, OwnProcess
from pytrace.runtime.session.services.service import Service

if TYPE_CHECKING:
    from pytrace.live.view_process import ViewProcess
    from pytrace.runtime.session.services.costs import Costs
    from pytrace.runtime.session.services.memory_watch import MemoryWatch
    from pytrace.runtime.session.services.saving import Export


def run_services(
    run: Resources,
    heart: NoHeartbeat,
    measured: Costs | None,
    memory: MemoryWatch | None,
    exports: Iterable[Export],
    stack: ExitStack,
) -> list[Service]:
    """All services of a run but its confinement and its live view, in the order of their calls.

    *heart*, *measured* and *memory* were made before, as other parts of the run use them.

    Raises:
        TraceError: metrics cannot be served where they are to be, there is no process to trace, or no histogram for
            ``--heat``.
    """
    options, manifest = run.options, run.loaded.manifest
    services: list[Service] = [heart, *(() if run.embedded else (OwnProcess(),)), run.processes, run.losses]
    services += [service for service in (measured, memory) if service is not None]
    if options.budget is not None and measured is not None:
        from pytrace.runtime.session.services.costs import BudgetKeeper

        detach, warn = run.probes.detach_program, run.notices.warn
        services.append(BudgetKeeper(options.budget, run.loaded, measured, run.renderer, detach, run.output, warn))
    services.append(OwnModules(manifest, options, embedded=run.embedded))
    if not all(known_kind(program.kind).special for program in manifest.programs):
        from pytrace.runtime.session.services.machine_changes import MachineChanges, SamplingClocks

        pids, warn = options.filters.pids, run.notices.warn
        services.append(MachineChanges(run.probes, run.symbols, run.loop, manifest, pids, warn, stack))
        sampling = (program.targets for program in manifest.programs if program.kind != INTERVAL)
        if any(sampling_period(target.place) for targets in sampling for target in targets):
            services.append(SamplingClocks(run.probes))
    return services + optional_services(run, exports, stack)


def confinement(run: Resources) -> Service:
    """The service that gives up privileges: the first one, as others may start threads, which keep what they have."""
    return Confinement(run.options, run.loaded, run.probes, run.output, run.notices)


def optional_services(run: Resources, exports: Iterable[Export], stack: ExitStack) -> list[Service]:
    """Services that options or maps ask for, each imported for runs that have it. Errors: :func:`run_services`."""
    options, loaded = run.options, run.loaded
    wanted: list[Service] = []
    if specs := maps_with_stacks(loaded.manifest, options):
        from pytrace.runtime.session.services.reading_ahead import ReadingAhead

        wanted.append(ReadingAhead(specs, MapReader(loaded), run.symbols, saved=options.saves))
    if options.saves and not options.dry_run:
        from pytrace.runtime.session.services.saving import Saving

        wanted.append(Saving(options, exports, run.snapshots.take, run.notices.warn, last=run.snapshots.last))
    if options.metrics is not None:
        from pytrace.runtime.session.services.metrics import Metrics

        served = Metrics(options.metrics, loaded.manifest.config, run.snapshots.take, run.notices.tell)
        stack.callback(served.close)
        wanted.append(served)
    if options.heat:
        from pytrace.runtime.session.services.heat import Heat

        wanted.append(Heat(loaded.manifest, run.renderer))
    filters, descriptors = options.filters, run.command.descriptors
    if descriptors or filters.pids or filters.exec_wait or options.duration is not None:
        from pytrace.runtime.session.services.run_end import RunEnd

        wanted.append(RunEnd(options, descriptors, loaded, run.loop, stack))
    return wanted


def heartbeat(loaded: LoadedScript, options: RunOptions, embedded: bool, stack: ExitStack) -> NoHeartbeat:
    """The heartbeat that programs watch, unless the watchdog is off or none of the programs has one."""
    manifest = loaded.manifest
    seconds = manifest.config.watchdog if options.watchdog is None else options.watchdog
    counters, data = manifest.counters, manifest.session
    if not seconds or counters is None or data is None or all(kind != SKIPPED for kind, _ in counters.names):
        return NoHeartbeat()
    from pytrace.runtime.session.services.heartbeat import Heartbeat  # only for programs that are attached

    return Heartbeat(loaded, data, seconds, stack, embedded=embedded)


def costs(
    options: RunOptions, loaded: LoadedScript, written: Output, tell: Callable[[str], None], stack: ExitStack
) -> Costs | None:
    """The measurement of the run's costs, if it is wanted."""
    if options.dry_run or not (options.measure or options.budget or options.live):
        return None
    from pytrace.runtime.session.services.costs import Costs

    return Costs(loaded, written, tell if options.measure and not options.quiet else None, stack)


def live_view(run: Resources, view: ViewProcess, costs: Costs) -> Service:
    """The service that sends the state of the run to its live view."""
    from pytrace.runtime.output.covered_output import CoveredOutput
    from pytrace.runtime.session.services.live_view import LiveView

    assert isinstance(run.output, CoveredOutput)
    return LiveView(view, run.output, run.snapshots, costs, run.loaded.manifest, run.options)


def maps_with_stacks(manifest: Manifest, options: RunOptions) -> list[MapSpec]:
    """Maps with functions of user stacks, which have source lines, and may have been compiled at run time."""
    return [] if options.dry_run else [spec for spec in manifest.maps if has_user_stacks(spec)]


def has_user_stacks(spec: MapSpec) -> bool:
    """Whether printing a map shows functions of user stacks."""
    stacks = (inner for inner in parts(spec.types) if isinstance(inner, Stack))
    return any(stack.user and stack.mode not in (StackMode.RAW, StackMode.BUILD_ID) for stack in stacks)
