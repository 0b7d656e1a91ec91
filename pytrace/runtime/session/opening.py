"""Opening of a run and its resources, in order (:func:`open_run`); the run's :class:`ExitStack` closes them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

from pytrace.base.interruption import EndRequests, postponed
from pytrace.base.terminal import colour, unicode
from pytrace.core.manifest import CompiledScript, Manifest
from pytrace.core.options.run_options import RunOptions
from pytrace.render.text import Bars
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.load.loader import available_memory
from pytrace.runtime.load.map_reader import MapReader
from pytrace.runtime.output.renderer import Renderer, RenderOptions, RunState
from pytrace.runtime.output.ring import RingReader, backlog_limit
from pytrace.runtime.output.streams import Flush, Output, create
from pytrace.runtime.session import loading, run_services
from pytrace.runtime.session.confinement import confine_view
from pytrace.runtime.session.consumer import Consumer, EventLoop
from pytrace.runtime.session.probes import Probes
from pytrace.runtime.session.resources import Command, NoCommand, Notices, Resources
from pytrace.runtime.session.services.losses import Losses
from pytrace.runtime.session.signals import Signals
from pytrace.runtime.session.snapshots import Snapshots
from pytrace.runtime.symbols.lazy import LazySymbols

if TYPE_CHECKING:
    from pytrace.live.view_process import Streams, ViewProcess
    from pytrace.runtime.capture.recording import RowKeeper
    from pytrace.runtime.session.resources import Embedding
    from pytrace.runtime.session.services.saving import Export


def open_run(
    script: CompiledScript, options: RunOptions, stack: ExitStack, embedding: Embedding | None = None
) -> Resources:
    """Open the resources of a run, load its programs, and handle signals; *stack* closes them.

    *embedding* takes the place of standard output, of printing and of signals.

    Raises:
        TraceError: the kernel rejected a program, or the machine lacks a feature; nothing has been traced by then.
    """
    manifest = script.manifest
    loading.raise_limits(manifest)
    # Last of all: closing the others may ask for files of others, too.
    stack.callback(_end_opener_of_foreign_files)
    requests = EndRequests()
    functions = loading.python_functions(manifest)
    lazy = loading.symbols(manifest.config, options, requests, functions)
    streams = terminal_streams(options, stack) if embedding is None else None
    signals = embedding.signals if embedding else stack.enter_context(Signals(requests, lazy.give_up_lines))
    within = namespace(options, stack)
    written = embedding.output if embedding else output(options, requests, stack, streams)
    view = view_process(options, written, streams, stack)
    notices = Notices(written, options)
    exports = check_saving(manifest, options)
    memory = loading.memory_watch(manifest, options, embedded=embedding is not None)
    with streams.redirected() if streams is not None else nullcontext():
        traced = command(options, within, notices, embedded=embedding is not None, stack=stack)
    loaded, processes = loading.load_run(script, options, traced, lazy, functions, notices, memory, stack)
    heart = run_services.heartbeat(loaded, options, embedding is not None, stack)
    rows = None
    if options.saves or embedding:
        from pytrace.runtime.capture.recording import RowKeeper  # few runs take snapshots

        rows = RowKeeper()
    probes = Probes(loaded, options, traced.pid, processes, notices, heart)
    printer = renderer(loaded, options, written, lazy, within, stack, requests, embedding, rows, probes.unwatch)
    ring = RingReader(loaded.map_fd(manifest.ring), stack, backlog=backlog_limit(available_memory()))
    if memory is not None:
        memory.loaded(loaded, ring, notices.tell, notices.warn)
    loop = EventLoop(ring, stack)
    stack.enter_context(probes.links)
    consumer = Consumer(ring, printer, written, requests, probes, lazy)
    losses = Losses(loaded, probes, consumer, printer, written, heart, notices.detail)
    measured = run_services.costs(options, loaded, written, notices.tell, stack)
    snapshots = Snapshots(manifest, options, printer, ring, lazy, probes, losses, rows, measured)
    run = Resources(
        options=options, embedded=embedding is not None, requests=requests, signals=signals, output=written,
        notices=notices, command=traced, loaded=loaded, symbols=lazy, renderer=printer, ring=ring, loop=loop,
        consumer=consumer, processes=processes, probes=probes, losses=losses, snapshots=snapshots,
    )  # fmt: skip
    if not options.keep_privileges and (embedding is None or embedding.confined):
        run.services.append(run_services.confinement(run))
    run.services += run_services.run_services(run, heart, measured, memory, exports, stack)
    if view is not None:
        loaded.add_own_process(view.pid)
    if view is not None and measured is not None:
        run.services.append(run_services.live_view(run, view, measured))
    if traced.pid is None:
        printer.no_child()
    signals.begin()
    return run


def namespace(options: RunOptions, stack: ExitStack) -> int | None:
    """The network namespace of ``--netns``, None without that.

    Raises:
        TraceError: there is no such namespace.
    """
    if options.netns is None:
        return None
    from pytrace.runtime.machine.host_names import open_network_namespace

    descriptor = open_network_namespace(options.netns)
    stack.callback(os.close, descriptor)
    return descriptor


def output(options: RunOptions, requests: EndRequests, stack: ExitStack, streams: Streams | None = None) -> Output:
    """Standard output, or the file of ``-o``; standard error where that is for a snapshot.

    With *streams* a live view may cover the terminal.
    """
    to_file = options.output is not None and not options.exports
    printed, errors = (1, 2) if streams is None else (streams.output, streams.errors)
    make: type[Output] = Output
    if streams is not None:
        from pytrace.runtime.output import covered_output

        make = covered_output.CoveredOutput
    opened = make(
        create(options.output) if options.output is not None and to_file else errors if options.exports else printed,
        messages=errors, flush=Flush(options.buffering), json=options.format == "json", csv=options.format == "csv",
        colour=colour(), raw=options.raw, requests=requests, owned=to_file,
    )  # fmt: skip
    stack.callback(opened.close)
    return opened


def command(
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
    from pytrace.runtime.session.services import saving  # see services()

    saving.check(options)
    return [saving.Export(manifest, options)] if options.exports else []


def terminal_streams(options: RunOptions, stack: ExitStack) -> Streams | None:
    """The standard streams of a run that is shown live."""
    if not options.live:
        return None
    from pytrace.live.view_process import Streams

    return Streams(stack)


def view_process(
    options: RunOptions, written: Output, streams: Streams | None, stack: ExitStack
) -> ViewProcess | None:
    """The process of a live view, which imports what it needs while the programs are loaded."""
    if streams is None:
        return None
    from pytrace.live.view_process import ViewProcess
    from pytrace.runtime.output.covered_output import CoveredOutput

    assert isinstance(written, CoveredOutput)
    stack.callback(written.uncover)
    confine = (lambda: None) if options.keep_privileges else confine_view
    return ViewProcess(streams, confine, written.collect, stack)


def renderer(
    loaded: LoadedScript,
    options: RunOptions,
    written: Output,
    lazy: LazySymbols,
    within: int | None,
    stack: ExitStack,
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
        from pytrace.runtime.session.alike_rows import AlikeRows  # only for user stacks and symbols

        join = AlikeRows(lazy)
    opened = Renderer(
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
    stack.callback(opened.close)
    return opened


def _end_opener_of_foreign_files() -> None:
    """End the process that opens files of others; few runs meet such a file, so nothing imports its module before."""
    module = sys.modules.get("pytrace.runtime.machine.foreign_files")
    if module is not None:
        module.close()
