"""Opening of a run: its programs are loaded, and its resources and services made, in order.

The run's :class:`ExitStack` closes everything that was opened, also on Ctrl-C, on SIGTERM and when attaching fails.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

from pytrace.base import terminal
from pytrace.base.interruption import EndRequests, postponed
from pytrace.base.terminal import colour, unicode
from pytrace.core.manifest import CompiledScript, Manifest, MapSpec
from pytrace.core.options import RunOptions
from pytrace.core.probe_kinds import BENCH, INTERVAL, TEST, known_kind, sampling_period
from pytrace.core.types import Stack, StackMode, parts
from pytrace.render.text import Bars
from pytrace.runtime.load.loaded_script import LOG_HINT, LoadedScript, LoadError
from pytrace.runtime.load.loader import LoadOptions, available_memory, load
from pytrace.runtime.load.map_reader import MapReader
from pytrace.runtime.machine import privileges
from pytrace.runtime.output.renderer import Renderer, RenderOptions, RunState
from pytrace.runtime.output.ring import RingReader, backlog_limit
from pytrace.runtime.output.streams import Flush, Output, create
from pytrace.runtime.session import processes
from pytrace.runtime.session.confinement import Confinement
from pytrace.runtime.session.probes import Probes
from pytrace.runtime.session.services import SKIPPED, Heat, Losses, NoHeartbeat, OwnModules, OwnProcess, Service
from pytrace.runtime.session.session import (
    Command,
    Consumer,
    Embedding,
    EventLoop,
    NoCommand,
    Notices,
    Resources,
    Session,
)
from pytrace.runtime.session.signals import Signals
from pytrace.runtime.stacks.lazy_symbols import LazySymbols

if TYPE_CHECKING:
    from pytrace.runtime.session.costs import Costs
    from pytrace.runtime.session.live_view import Screen
    from pytrace.runtime.session.saving import Export
    from pytrace.runtime.session.snapshots import RowKeeper
    from pytrace.runtime.session.watches import MemoryWatch
    from pytrace.runtime.stacks.unwinder import Unwound


def run(script: CompiledScript, options: RunOptions) -> int:
    """Run a script to its end.

    Returns:
        The exit status: that of the script's ``exit()``, else 0.

    Raises:
        TraceError: the kernel rejected a program or a probe, or the machine lacks a feature.
    """
    if options.mode == "run" and not (options.yes or options.tool or options.dry_run) and os.isatty(0) and os.isatty(2):
        from pytrace.runtime.session import hot_probes  # nobody can answer elsewhere

        _raise_limits(script.manifest)
        hot_probes.confirm(script, options)
    with ExitStack() as stack:
        opened = open_run(script, options, stack)
        if options.mode in (TEST, BENCH):
            from pytrace.runtime.session import test_runs  # tests and benchmarks

            return test_runs.run(opened)
        return Session(opened).run()


def open_run(
    script: CompiledScript, options: RunOptions, stack: ExitStack, embedding: Embedding | None = None
) -> Resources:
    """Open the resources of a run, load its programs, and handle signals; *stack* closes them.

    *embedding* takes the place of standard output, of printing and of signals.

    Raises:
        TraceError: the kernel rejected a program, or the machine lacks a feature; nothing has been traced by then.
    """
    manifest, embedded = script.manifest, embedding is not None
    _raise_limits(manifest)
    # Last of all: closing the others may ask for files of others, too.
    stack.callback(_end_opener_of_foreign_files)
    requests = EndRequests()
    functions = processes.python_functions(manifest)
    symbols = processes.symbols(manifest.config, options, requests, functions)
    screen = None
    if options.live and not embedded:
        from pytrace.runtime.session.live_view import Screen  # with --live

        screen = Screen(stack)
    signals = embedding.signals if embedding else stack.enter_context(Signals(requests, symbols.give_up_lines))
    namespace = None
    if options.netns is not None:
        from pytrace.runtime.machine.host_names import open_network_namespace  # with --netns

        namespace = open_network_namespace(options.netns)
        stack.callback(os.close, namespace)
    written = embedding.output if embedding else output(options, requests, stack, screen)
    if screen is not None:
        screen.cover(written, manifest, keep_privileges=options.keep_privileges)
    notices = Notices(written, options)
    exports = check_saving(manifest, options)
    memory = _memory_watch(manifest, options, embedded=embedded)
    with screen.streams.redirected() if screen is not None else nullcontext():
        traced = _command(options, namespace, notices, embedded=embedded, stack=stack)

    # The programs, and what they need of processes.
    if manifest.python is not None and manifest.python.calls:
        traced.run_to_interpreter(follow=options.follow, strict=manifest.config.missing_probes == "error")
    unwinding = processes.unwound(manifest, options, traced)
    loaded = load_programs(script, options, unwinding, memory, stack)
    loaded.fill_session_data(options, traced.pid)
    loaded.limit_rates(options.max_rate)
    followed = processes.follow(manifest, options, traced, symbols, functions, unwinding, loaded, notices, stack)
    heartbeat = _heartbeat(loaded, options, embedded, stack)

    # From the ring to the output. Probes are detached before the ring and the output are closed.
    rows = None
    if options.saves or embedded:
        from pytrace.runtime.session.snapshots import RowKeeper  # few runs take snapshots

        rows = RowKeeper()
    probes = Probes(loaded, options, traced.pid, followed, notices, heartbeat, interpreter=traced.interpreter)
    renderer = _renderer(loaded, options, written, symbols, namespace, requests, embedding, rows, probes.unwatch)
    stack.callback(renderer.close)
    ring = RingReader(loaded.map_fd(manifest.ring), stack, backlog=backlog_limit(available_memory()))
    if memory is not None:
        memory.loaded(loaded, ring, notices.tell, notices.warn)
    loop = EventLoop(ring, stack)
    stack.enter_context(probes.links)
    consumer = Consumer(ring, renderer, written, requests, probes, symbols)
    losses = Losses(loaded, probes, consumer, renderer, written, heartbeat, notices.detail)
    costs = _costs(options, loaded, written, notices.tell, stack)
    run = Resources(
        options=options, embedded=embedded, requests=requests, signals=signals, output=written, notices=notices,
        command=traced, loaded=loaded, symbols=symbols, renderer=renderer, ring=ring, loop=loop, consumer=consumer,
        processes=followed, probes=probes, losses=losses, heartbeat=heartbeat, rows=rows, costs=costs,
    )  # fmt: skip
    if not options.keep_privileges and (embedding is None or embedding.confined):
        # The first service, as others may start threads, which keep what they have.
        run.services.append(Confinement(options, loaded, probes, written, notices))
    run.services += _services(run, memory, exports, stack)
    if screen is not None and costs is not None:
        run.services.append(screen.service(run, costs))
    if traced.pid is None:
        renderer.no_child()
    signals.begin()
    return run


def _raise_limits(manifest: Manifest) -> None:
    """Let this process open as many files as the probes and maps of a script need."""
    targets = sum(len(program.targets) for program in manifest.programs)
    privileges.raise_limits(privileges.descriptors_needed(targets, len(manifest.programs), len(manifest.maps)))


def output(options: RunOptions, requests: EndRequests, stack: ExitStack, screen: Screen | None = None) -> Output:
    """Standard output, or the file of ``-o``; standard error where that is for a snapshot.

    With *screen* a live view may cover the terminal.
    """
    to_file = options.output is not None and not options.exports
    printed, errors = (1, 2) if screen is None else (screen.streams.output, screen.streams.errors)
    make = Output if screen is None else screen.output
    opened = make(
        create(options.output) if options.output is not None and to_file else errors if options.exports else printed,
        messages=errors, flush=Flush(options.buffering), json=options.format == "json", csv=options.format == "csv",
        colour=colour(), raw=options.raw, requests=requests, owned=to_file,
    )  # fmt: skip
    stack.callback(opened.close)
    return opened


def _command(
    options: RunOptions, namespace: int | None, notices: Notices, *, embedded: bool, stack: ExitStack
) -> Command:
    """The process of ``-c``, which waits until probes are attached (:func:`pytrace.runtime.session.child.start`)."""
    if options.command is None:
        return NoCommand()
    from pytrace.runtime.session import child  # most runs have none

    if word := child.shell_syntax(options.command):
        text = f"the command of -c is run without a shell: its program gets {word} as it is"
        notices.warn(text, hints=(child.in_shell(options.command),))
    if not embedded:
        # What waits in Python's standard streams comes before the command's output.
        sys.stdout.flush()
        sys.stderr.flush()
        return child.start(options.command, stack, namespace, options.surroundings)
    # In other programs Ctrl-C raises, and nobody would end the child.
    with postponed():
        return child.start(options.command, stack, namespace, options.surroundings)


def check_saving(manifest: Manifest, options: RunOptions) -> list[Export]:
    """Check that snapshots can be saved, and open the last one's output for a format of ``-f`` that shows it.

    Raises:
        TraceError: a file cannot be written, or the format shows nothing of the script.
    """
    if not options.saves:
        return []
    from pytrace.runtime.session import saving  # few runs save snapshots

    saving.check(options)
    return [saving.Export(manifest, options)] if options.exports else []


def _memory_watch(manifest: Manifest, options: RunOptions, *, embedded: bool) -> MemoryWatch | None:
    """The limit of memory; a script that has no probes and no keyed maps does not need one."""
    wanted = options.max_memory or manifest.config.max_memory
    small = all(known_kind(program.kind).special for program in manifest.programs)
    if small and not wanted and all(spec.key is None for spec in manifest.maps):
        return None
    from pytrace.runtime.session.watches import MemoryWatch  # keyed maps and attached programs

    return MemoryWatch(wanted, manifest, embedded=embedded)


def load_programs(
    script: CompiledScript,
    options: RunOptions,
    unwind: Unwound | None,
    memory: MemoryWatch | None,
    stack: ExitStack,
) -> LoadedScript:
    """The programs and maps of *script*, loaded.

    Raises:
        TraceError: the kernel refused them.
    """
    load_options = LoadOptions(
        libbpf_log=_to_stderr if "libbpf" in options.debug else None,
        verifier_log=_show_verifier if "verifier" in options.debug else None,
        btf_path=os.environ.get("PYTRACE_BTF", os.environ.get("BPFTRACE_BTF", "")),
        disabled=options.no_features,
        entries={} if unwind is None else unwind.entries(),
        admit=None if memory is None else memory.admit,
    )
    try:
        with terminal.step("loading programs into the kernel"):
            return load(script, options=load_options, stack=stack)
    except LoadError as error:
        if options.verbose and error.log and "verifier" not in options.debug:
            _show_refusal(error)
        raise


def _to_stderr(text: str) -> None:
    sys.stderr.write(text if text.endswith("\n") else f"{text}\n")


def _show_refusal(error: LoadError) -> None:
    """Print the log of an error, which needs no hint any more that says how to see it."""
    name = error.program.symbol if error.program is not None else "libbpf"
    note = "the log is longer than log_size: a part of it is shown\n" if error.cut else ""
    _show_verifier(name, f"{error.log.rstrip()}\n{note}")
    error.hints = tuple(hint for hint in error.hints if hint != LOG_HINT)


def _show_verifier(symbol: str, text: str) -> None:
    sys.stderr.write(f"verifier log of {symbol}:\n{text}\n")


def _renderer(
    loaded: LoadedScript,
    options: RunOptions,
    written: Output,
    lazy: LazySymbols,
    within: int | None,
    requests: EndRequests,
    embedding: Embedding | None,
    rows: RowKeeper | None,
    unwatch: Callable[[int], None],
) -> Renderer:
    """The printer of events and maps; *within* is the network namespace of interfaces. *rows* keeps rows, too."""
    shown = embedding is None and not written.json and written.terminal
    coloured = shown and not options.plain and colour(written.descriptor)
    render = RenderOptions(
        quiet=options.quiet,
        warnings=options.warnings,
        namespace=within,
        tool=options.tool,
        printable=shown and not options.raw,
        bars=Bars.COLOUR if coloured and unicode() else Bars.SIGNS,
        heat=(Bars.COLOUR if coloured else Bars.SIGNS) if options.heat else None,
    )
    prints = None
    if options.saves:
        from pytrace.runtime.output.map_output import PrintKeeper  # few runs take snapshots

        prints = PrintKeeper()
    join = None
    if loaded.manifest.images is not None:
        from pytrace.runtime.session.stack_rows import AlikeRows  # only for user stacks and symbols

        join = AlikeRows(lazy)
    return Renderer(
        loaded.manifest,
        written,
        lazy,
        MapReader(loaded, join),
        options=render,
        state=RunState(requests=requests, prints=prints),
        handlers=embedding.handlers(lazy) if embedding else None,
        keep_row=rows.keep if rows else None,
        unwatch=unwatch,
    )


def _end_opener_of_foreign_files() -> None:
    """End the process that opens files of others; few runs meet such a file, so nothing imports its module before."""
    module = sys.modules.get("pytrace.runtime.machine.foreign_files")
    if module is not None:
        module.close()


# ---------------------------------------------------------------------------------------------- services


def _services(
    run: Resources, memory: MemoryWatch | None, exports: Iterable[Export], stack: ExitStack
) -> list[Service]:
    """All services of a run but its confinement and its live view, in the order of their calls.

    Raises:
        TraceError: metrics cannot be served where they are to be, there is no process to trace, or no histogram for
            ``--heat``.
    """
    options, manifest = run.options, run.loaded.manifest
    services: list[Service] = [run.heartbeat, *(() if run.embedded else (OwnProcess(),)), run.processes, run.losses]
    services += [service for service in (run.costs, memory) if service is not None]
    if options.budget is not None and run.costs is not None:
        services.append(
            run.costs.keeper(options.budget, run.renderer, run.probes.detach_program, run.notices.warn)
        )
    services.append(OwnModules(manifest, options, embedded=run.embedded))
    if not all(known_kind(program.kind).special for program in manifest.programs):
        from pytrace.runtime.session.watches import FirstThreads, MachineChanges, SamplingClocks  # attached programs

        pids, warn = options.filters.pids, run.notices.warn
        services.append(MachineChanges(run.probes, run.symbols, run.loop, manifest, pids, warn, stack))
        if any(known_kind(program.kind).user for program in manifest.programs) and not options.follow:
            services.append(FirstThreads(run.probes, run.loop, warn, stack, embedded=run.embedded))
        sampling = (program.targets for program in manifest.programs if program.kind != INTERVAL)
        if any(sampling_period(target.place) for targets in sampling for target in targets):
            services.append(SamplingClocks(run.probes))
    return services + optional_services(run, exports, stack)


def optional_services(run: Resources, exports: Iterable[Export], stack: ExitStack) -> list[Service]:
    """Services that options or maps ask for, each imported for runs that have it. Errors: :func:`run_services`."""
    options, loaded = run.options, run.loaded
    wanted: list[Service] = []
    if specs := _maps_with_stacks(loaded.manifest, options):
        from pytrace.runtime.session.stack_rows import ReadingAhead  # maps with stacks

        wanted.append(ReadingAhead(specs, MapReader(loaded), run.symbols, saved=options.saves))
    if options.saves and not options.dry_run:
        from pytrace.runtime.session.saving import Saving  # runs that save or export

        wanted.append(Saving(options, exports, run.snapshots.take, run.notices.warn, last=run.snapshots.last))
    if options.metrics is not None:
        from pytrace.runtime.session.metrics import Metrics  # with --metrics

        served = Metrics(options.metrics, loaded.manifest.config, run.snapshots.take, run.notices.tell)
        stack.callback(served.close)
        wanted.append(served)
    if loaded.manifest.call_maps and not options.dry_run:
        from pytrace.runtime.session.calls import Calls  # scripts with call:

        wanted.append(
            Calls(
                loaded, run.command.pid, run.command.poll, run.notices.tell, run.notices.warn, run.calls,
                verbose=options.verbose,
            )
        )
    if options.heat:
        wanted.append(Heat(loaded.manifest, run.renderer))
    filters, descriptors = options.filters, run.command.descriptors
    if descriptors or filters.pids or filters.exec_wait or options.duration is not None:
        from pytrace.runtime.session.watches import RunEnd  # runs that end by a process or time

        wanted.append(RunEnd(options, descriptors, loaded, run.loop, stack))
    return wanted


def _heartbeat(loaded: LoadedScript, options: RunOptions, embedded: bool, stack: ExitStack) -> NoHeartbeat:
    """The heartbeat that programs watch, unless the watchdog is off or none of the programs has one."""
    manifest = loaded.manifest
    seconds = manifest.config.watchdog if options.watchdog is None else options.watchdog
    counters, data = manifest.counters, manifest.session
    if not seconds or counters is None or data is None or all(kind != SKIPPED for kind, _ in counters.names):
        return NoHeartbeat()
    from pytrace.runtime.session.watches import Heartbeat  # only for programs that are attached

    return Heartbeat(loaded, data, seconds, stack, embedded=embedded)


def _costs(
    options: RunOptions, loaded: LoadedScript, written: Output, tell: Callable[[str], None], stack: ExitStack
) -> Costs | None:
    """The measurement of the run's costs, if it is wanted."""
    if options.dry_run or not (options.measure or options.budget or options.live):
        return None
    from pytrace.runtime.session.costs import Costs  # if costs are measured

    return Costs(loaded, written, tell if options.measure and not options.quiet else None, stack)


def _maps_with_stacks(manifest: Manifest, options: RunOptions) -> list[MapSpec]:
    """Maps with functions of user stacks, which have source lines, and may have been compiled at run time."""
    return [] if options.dry_run else [spec for spec in manifest.maps if has_user_stacks(spec)]


def has_user_stacks(spec: MapSpec) -> bool:
    """Whether printing a map shows functions of user stacks."""
    stacks = (inner for inner in parts(spec.types) if isinstance(inner, Stack))
    return any(stack.user and stack.mode not in (StackMode.RAW, StackMode.BUILD_ID) for stack in stacks)
