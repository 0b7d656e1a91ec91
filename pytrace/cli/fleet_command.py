"""``pytrace fleet``: one script on many hosts, and one answer."""

from __future__ import annotations

import re
import select
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypedDict, cast

from msgspec.structs import replace

import pytrace
from pytrace import pipeline
from pytrace.account import hosts
from pytrace.base.interruption import interruptions
from pytrace.cli import messages, request
from pytrace.cli.commands import COMMANDS
from pytrace.cli.options import OPTIONS, CommandLine, read
from pytrace.cli.request import Script
from pytrace.cli.subcommands import write_snapshot
from pytrace.core.diagnostics import Diagnostics, HiddenKernelError, ScriptError, TraceError, bytes_shown, did_you_mean
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import SAMPLE, CompileOptions, Config, RunOptions
from pytrace.interface import why
from pytrace.live.answer_view import AnswerView
from pytrace.remote.answer import trimmed
from pytrace.remote.fleet import PAUSE, Nodes, Program, lacking_features
from pytrace.remote.pods import Cluster
from pytrace.results import file_form
from pytrace.results.formats import table
from pytrace.results.snapshot import SnapshotData
from pytrace.runtime.load import remote_kernel
from pytrace.runtime.session.confinement import confine_view
from pytrace.runtime.session.metrics import Metrics

SHOWN = 1000
"""Entries of each map that a live view shows, the largest."""

def run(words: Sequence[str]) -> int:
    """Run ``pytrace fleet`` with the *words* after it. Returns the exit status.

    Raises:
        TraceError: an option is invalid, or ClusterShell is not installed.
        ScriptError: the script has errors; they have been printed.
    """
    if not words:
        sys.stderr.write(COMMANDS["fleet"].help_text())
        return 1
    own, rest = COMMANDS["fleet"].read_first(words)
    if rest[:1] == ["why"]:
        return _why(own, rest[1:])
    with _order_of_words(own):
        line = read(rest, request.find)
        request.complete(line)
        _check(line)
        options = request.run_options(line)
        script = request.script(line)
        options = request.of_script(options, script, line)
    # Wrong names of formats and files are errors before anything runs.
    table.chosen(options.format, options.output)
    nodes = _nodes(own)
    program = _program(own, line, options, script)
    _check_maps(own.many("map"), program)
    fleet = _fleet(own, line, options, program, nodes)
    with ExitStack() as stack:
        served = _served(options, program, fleet, stack)
        view = _view(options, fleet, stack)
        stack.enter_context(interruptions(fleet.interrupt))
        with fleet:
            _wait(fleet, served, view)
    if view is not None and view.error:
        raise TraceError(f"the live view failed ({view.error}), so the run was ended")
    _write(fleet.snapshot().data, options, own.many("map"))
    _report(fleet, options)
    return int(not fleet.complete)


_WHY = frozenset({"comm", "cgroup", "container", "uid", "duration", "all", "format", "output"})
"""Options of why that are for many hosts, too."""
_WHY_EXAMPLE = ("pytrace fleet --hosts 'web[1-9]' why --comm nginx --for 10",)


def _why(own: CommandLine, words: Sequence[str]) -> int:
    """The account of each host side by side. Returns the exit status.

    Raises:
        TraceError: an option is invalid, or nothing selects processes.
    """
    line = COMMANDS["why"].read(words)
    for key in line.values:
        if key not in _WHY:
            raise TraceError(f"--{line.table.by_key[key].long} of why is not for pytrace fleet", hints=_WHY_EXAMPLE)
    selected = {key: line.many(key) for key in ("comm", "cgroup", "container", "uid") if line.many(key)}
    duration = line.argument("duration", float)
    if not selected or duration is None:
        raise TraceError("fleet why needs --comm, --cgroup, --container or --uid, and --for", hints=_WHY_EXAMPLE)
    if own.argument("by", str) not in (None, "host"):
        raise TraceError("fleet why tells hosts apart: --by is host")
    arguments = _keywords(own)
    arguments["by"] = "host"
    fleet = pytrace.fleet(
        why.for_hosts(), _nodes(own), duration=duration, become=own.argument("become", str) == "sudo",
        tell=_write_line, parameters=why.parameters(), comm=line.many("comm"), cgroup=line.many("cgroup"),
        container=line.many("container"), uid=line.many("uid"), **arguments,
    )  # fmt: skip
    with interruptions(fleet.interrupt), fleet:
        fleet.wait()
    options = " ".join(f"--{key} {shlex.quote(name)}" for key, names in selected.items() for name in names)
    target = ", ".join(name for names in selected.values() for name in names)
    found = hosts.compared(fleet.snapshot().data, target, options)
    if (line.argument("format", str) or "text") == "json":
        data = hosts.json_text(found)
    else:
        data = messages.lines(hosts.screen(found, everything=line.flag("all")))
    messages.write_report(data, line.text("output"))
    _report(fleet, RunOptions())
    return int(not fleet.complete)


_UNKNOWN = re.compile(r"unknown option --([\w-]+)")
_NO_SCRIPT = re.compile(r"there is no tool and no file '(.*)'")


@contextmanager
def _order_of_words(own: CommandLine) -> Iterator[None]:
    """Say where words belong that stand elsewhere: options of the fleet after the script, a host in its place."""
    try:
        yield
    except TraceError as error:
        if (option := _UNKNOWN.fullmatch(error.message)) is not None and option[1] in own.table.long:
            message = f"--{option[1]} is an option of pytrace fleet, which stands before the script"
            hints = (f"pytrace fleet … --{option[1]} … SCRIPT [options of the run]",)
        elif (word := _NO_SCRIPT.fullmatch(error.message)) and not {"hosts", "kubernetes"} & own.values.keys():
            message, hints = error.message, (f"hosts are named with --hosts: pytrace fleet --hosts {word[1]} SCRIPT",)
        else:
            raise
        raise TraceError(message, hints=hints) from None


def _check_maps(names: Sequence[str], program: Program) -> None:
    """Refuse names of maps that the script does not have, as far as that is known before hosts compile it.

    Raises:
        TraceError: there is one.
    """
    if not names or not program.compiled:
        return
    known = [spec.name for spec in CompiledScript.from_bytes(program.compiled).manifest.maps]
    for name in names:
        if not {name, f"@{name}"} & {*known}:
            there = (f"there are {', '.join(known)}" if known else "it has no maps",)
            raise TraceError(f"the script has no map {name!r}", hints=did_you_mean(name, known) or there)


def _nodes(own: CommandLine) -> Nodes:
    hosts, image = own.text("hosts"), own.text("image")
    if bool(hosts) == own.flag("kubernetes"):
        hints = ("for example --hosts 'web[001-400]', or --kubernetes --image IMAGE",)
        raise TraceError("pytrace fleet asks either --hosts or the nodes of --kubernetes", hints=hints)
    if hosts:
        return hosts
    if not image:
        hints = ("share/kubernetes/Dockerfile makes one: pytrace help containers",)
        raise TraceError("--kubernetes needs an image of pytrace: --image", hints=hints)
    return Cluster(
        image=image, labels=own.text("nodes") or "", context=own.text("context"), namespace=own.text("namespace")
    )


class _Keywords(TypedDict, total=False):
    """Keywords of :func:`pytrace.fleet` that options of its own command stand for, by the same names."""

    by: str
    stage: str
    soak: float
    max_losses: int
    every: float
    max_bytes: int
    max_events: int
    max_keys: int
    agent: str
    push: str
    worker: str
    fanout: int
    ssh_options: str
    topology: str


def _keywords(own: CommandLine) -> _Keywords:
    return cast("_Keywords", {key: own.argument(key, object) for key in _Keywords.__annotations__ if key in own.values})


def _fleet(own: CommandLine, line: CommandLine, options: RunOptions, program: Program, nodes: Nodes) -> pytrace.Fleet:
    try:
        return pytrace.fleet(
            program, nodes, duration=options.duration, max_memory=options.max_memory,
            become=own.argument("become", str) == "sudo", **_keywords(own),
            tell=(lambda _: None) if options.quiet else _write_line,
            unsafe=line.flag("unsafe"), comm=line.many("comm"), uid=line.many("uid"),
            no_features=sorted(options.no_features), max_rate={rate.pattern: rate.hits for rate in options.max_rate},
            budget=options.budget.text if options.budget else None,
            over_budget=options.budget.action if options.budget else SAMPLE, debuginfo=options.debuginfo,
        )  # fmt: skip
    except ValueError as error:
        raise TraceError(f"pytrace fleet: {error}") from None


def _check(line: CommandLine) -> None:
    """Refuse options that make no sense on many hosts."""
    rows = {row.key: row for row in OPTIONS}
    for key in line.values:
        if not rows[key].many_hosts:
            raise TraceError(f"--{rows[key].long} is not for pytrace fleet", hints=("pytrace fleet --help",))


# ---------------------------------------------------------------------------------------------- the script


def _program(own: CommandLine, line: CommandLine, options: RunOptions, script: Script) -> Program:
    if script.wants_help:
        raise TraceError("--help of a script is shown without pytrace fleet")
    compile_options = replace(request.compile_options(line, options, script), ahead=True, live=False)
    if script.compiled or own.flag("compile_there"):
        return Program(options.script, script.source, compile_options, script.compiled or b"",
                       variants=bool(script.compiled and script.source.text))  # fmt: skip
    return _compiled(script, compile_options, options)


def _compiled(script: Script, compile_options: CompileOptions, options: RunOptions) -> Program:
    """The script, compiled ahead of time on this machine, with its parameters fixed; for hosts only if what it needs is
    not in this kernel.

    Raises:
        ScriptError, TraceError: it has other errors.
    """
    diagnostics, compiled, lacks = Diagnostics(), b"", ""
    kernel = request.live_kernel(options, ahead=True)
    try:
        compiled = pipeline.compile_script(script.source, compile_options, kernel, diagnostics).to_bytes()
    except ScriptError:
        if not diagnostics.kernel:
            raise
        lacks = diagnostics.errors[0].message
    except HiddenKernelError as error:
        lacks = error.message
    finally:
        if not lacks:
            messages.show(diagnostics, warnings=options.warnings)
            if diagnostics.failed:
                sys.stderr.write("HINT: with --compile-there each host compiles the script for itself\n")
    if lacks and not options.quiet:
        _write_line(lacking_features(lacks))
    questions = tuple(kernel.questions)
    matches = remote_kernel.probe_digest(kernel, questions) if compiled else ""
    return Program(
        options.script, script.source, compile_options, compiled, variants=True, questions=questions, matches=matches
    )


# ---------------------------------------------------------------------------------------------- the answer


def _served(options: RunOptions, program: Program, fleet: pytrace.Fleet, stack: ExitStack) -> Metrics | None:
    """What serves the metrics of the answer so far, until the end of *stack*; its address is there before any host is
    asked.

    Raises:
        TraceError: it cannot be listened on.
    """
    if options.metrics is None:
        return None
    manifest = CompiledScript.from_bytes(program.compiled).manifest if program.compiled else None
    config = Config() if manifest is None else manifest.config
    served = Metrics(options.metrics, config, lambda: fleet.snapshot().data, lambda text: _write_line(text.rstrip()))
    stack.callback(served.close)
    return served


def _view(options: RunOptions, fleet: pytrace.Fleet, stack: ExitStack) -> AnswerView | None:
    """The view of ``--live``, whose process begins before the threads of the fleet do."""
    if not options.live:
        return None
    title = " ".join((options.script if options.script != "-e" else options.text, *options.parameters))
    return AnswerView(
        " ".join(title.split()), lambda: fleet.snapshot().data, partial(trimmed, most=SHOWN),
        lambda: fleet.summary, confine_view, stack,
    )  # fmt: skip


def _wait(fleet: pytrace.Fleet, served: Metrics | None, view: AnswerView | None) -> None:
    """Wait for the end, and show and serve the answer so far."""
    if served is None and view is None:
        fleet.wait()
        return
    if view is not None:
        view.begin()
    if served is not None:
        served.begin()
    while not fleet.ended:
        select.select(served.descriptors if served else (), (), (), served.pause(PAUSE) if served else PAUSE)
        if served is not None:
            served.work(0)
        if view is not None:
            view.work()
            if view.over:
                fleet.stop()
                break
    if view is not None:
        view.close()
    fleet.wait()


def _write(snapshot: SnapshotData, options: RunOptions, maps: Sequence[str]) -> None:
    if options.save is not None:
        try:
            file_form.write(snapshot, options.save)
        except OSError as error:
            raise TraceError(f"cannot write {options.save!r}: {error.strerror}") from error
    row, form = table.chosen(options.format, options.output)
    shown = snapshot if maps else replace(snapshot, maps=snapshot.shown)
    write_snapshot(shown, row, form, maps, options.output)


def _write_line(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _report(fleet: pytrace.Fleet, options: RunOptions) -> None:
    """Who answered, and why others did not."""
    sys.stdout.flush()
    lines = fleet.report(warnings=options.warnings)
    if not (options.quiet and fleet.complete):
        lines.append(fleet.summary)
    sys.stderr.write(bytes_shown("".join(f"{text}\n" for text in lines)))
