"""``pytrace fleet``: one script on many hosts, and one answer."""

from __future__ import annotations

import re
import select
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from msgspec.structs import replace

import pytrace
from pytrace.base.interruption import interruptions
from pytrace.cli import messages, request
from pytrace.cli.options import OPTIONS, CommandLine, read
from pytrace.cli.request import Script
from pytrace.cli.shortcuts import CommandParser
from pytrace.core.diagnostics import Diagnostics, HiddenKernelError, ScriptError, TraceError, bytes_shown, did_you_mean
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import SAMPLE, CompileOptions, Config, RunOptions
from pytrace.interface.fleet import PAUSE, Nodes, Program, lacking_features
from pytrace.remote import messages as protocol
from pytrace.remote.answer import MOST_KEYS, trimmed
from pytrace.remote.carriage import SOAK, WORKERS
from pytrace.remote.pods import Cluster
from pytrace.results import file_form
from pytrace.results.formats import table
from pytrace.results.formats.format_row import Format, WriteOptions
from pytrace.results.snapshot import SnapshotData

if TYPE_CHECKING:
    from pytrace.live.answer_view import AnswerView
    from pytrace.runtime.session.metrics import Metrics

SHOWN = 1000
"""Entries of each map that a live view shows, the largest."""
def _natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ValueError(text)
    return int(text)


def _positive(text: str) -> int:
    if not _natural(text):
        raise ValueError(text)
    return int(text)


def _seconds(text: str) -> float:
    if not 0 <= float(text) <= protocol.LONGEST_TIME:
        raise ValueError(text)
    return float(text)


class _ParserKeywords(TypedDict, total=False):
    """Arguments of :meth:`argparse.ArgumentParser.add_argument`."""

    action: str
    choices: tuple[str, ...]
    default: str | int | float
    help: str
    const: str
    metavar: str
    nargs: str
    required: bool
    type: Callable[[str], int | float]


FLEET_OPTIONS: dict[str, _ParserKeywords] = {
    "--hosts": {"metavar": "NODESET", "help": "hosts, in ClusterShell's notation; @GROUP"},
    "--kubernetes": {"action": "store_true", "help": "ask the nodes of a Kubernetes cluster, from pods"},
    "--nodes": {"default": "", "metavar": "LABELS", "help": "nodes of the cluster with these labels (all)"},
    "--image": {"metavar": "IMAGE", "help": "the image of the pods (share/kubernetes/Dockerfile)"},
    "--context": {"metavar": "NAME", "help": "of your Kubernetes configuration (the current one)"},
    "--namespace": {"metavar": "NAME", "help": "of the pods (that of the context)"},
    "--by": {"metavar": "LABEL", "help": "keys begin with the host (--by host), or with its group in a source of "
             "groups of ClusterShell, or the value of a label of the node"},
    "--become": {"choices": ("sudo",), "help": "start agents through sudo, without a password"},
    "--worker": {"default": "ssh", "choices": WORKERS, "help": "ClusterShell's worker"},
    "--ssh-options": {"default": "", "metavar": "OPTIONS", "help": "for ssh, beside your own configuration"},
    "--fanout": {"type": _positive, "default": 1000, "metavar": "N", "help": "hosts at a time (1000)"},
    "--topology": {"default": "", "metavar": "FILE", "help": "gateways, in ClusterShell's form (topology.conf of its "
                   "configuration); none: all hosts are reached directly"},
    "--agent": {"metavar": "COMMAND", "help": "the command on the hosts (pytrace agent)"},
    "--stage": {"default": "all", "metavar": "1,10,all", "help": "run on so many hosts first; stop when one "
                "refuses, is over its budget, loses more than --max-losses, or is lost"},
    "--soak": {"type": _seconds, "default": SOAK, "metavar": "SECONDS", "help": "watch a stage this long (10)"},
    "--max-losses": {"type": _natural, "default": 0, "metavar": "N", "help": "losses of a host that do not stop a "
                     "roll-out (0)"},
    "--push": {"nargs": "?", "const": "keep", "choices": ("keep", "once"), "metavar": "once", "help": "send what hosts "
               "without pytrace need, which they keep, or remove with --push=once; --agent is their Python (python3)"},
    "--compile-there": {"action": "store_true", "help": "send the text only: each host compiles it"},
    "--every": {"type": float, "default": 5.0, "metavar": "SECONDS", "help": "between two snapshots of a host (5)"},
    "--max-bytes": {"type": _positive, "default": 256 << 20, "metavar": "N", "help": "bytes that a host may send"},
    "--max-keys": {"type": _positive, "default": MOST_KEYS, "metavar": "N",
                   "help": "entries of a map of the answer; of more, the largest (1000000)"},
    "--map": {"action": "append", "metavar": "NAME", "help": "print only this map of the answer (may be given again)"},
    "--max-events": {"type": _positive, "default": 10_000_000, "metavar": "N",
                     "help": "what a script may print on a host, or send with row()"},
}  # fmt: skip
"""Options of the fleet, with the arguments of :meth:`argparse.ArgumentParser.add_argument`."""


def parser() -> CommandParser:
    """The parser of the options of the fleet, which come before those of the run."""
    made = CommandParser(
        "fleet", "Run a script or a tool on many hosts, and merge what it counts to one answer.",
        "examples:\n  pytrace fleet --hosts 'web[001-400]' biolatency --duration 30\n"
        "  pytrace fleet --hosts @db --by host -e 't:syscalls:sys_enter_fsync { @ = count(); }' --duration 10 -f json\n"
        "The script's options, --duration, --budget, -f, -o, --save and others of a run come after those above.",
        usage="pytrace fleet --hosts NODESET|--kubernetes [options] SCRIPT|TOOL|-e PROGRAM [options of the run]",
    )  # fmt: skip
    for name, keywords in FLEET_OPTIONS.items():
        made.add_argument(name, **keywords)
    return made


WriteSnapshot = Callable[[SnapshotData, Format, WriteOptions, Namespace], None]
"""``subcommands.write_snapshot``."""


def run(words: Sequence[str], write: WriteSnapshot) -> int:
    """Run ``pytrace fleet`` with the *words* after it. Returns the exit status.

    Raises:
        TraceError: an option is invalid, or ClusterShell is not installed.
        ScriptError: the script has errors; they have been printed.
    """
    own, rest = _split(words)
    if not words or rest[:1] in (["-h"], ["--help"]):
        (sys.stdout if words else sys.stderr).write(parser().format_help())
        return int(not words)
    arguments = parser().parse_args(own)
    with _order_of_words(asked=bool(arguments.hosts or arguments.kubernetes)):
        line = read(rest, request.find)
        request.complete(line)
        _check(line)
        options = request.run_options(line)
        script = request.script(line)
        options = request.of_script(options, script, line)
    # Wrong names of formats and files are errors before anything runs.
    table.chosen(options.format, options.output)
    nodes = _nodes(arguments)
    program = _program(arguments, line, options, script)
    _check_maps(arguments.map or (), program)
    fleet = _fleet(arguments, line, options, program, nodes)
    with ExitStack() as stack:
        served = _served(options, program, fleet, stack)
        view = _view(options, fleet, stack)
        stack.enter_context(interruptions(fleet.interrupt))
        with fleet:
            _wait(fleet, served, view)
    if view is not None and view.error:
        raise TraceError(f"the live view failed ({view.error}), so the run was ended")
    _write(fleet.snapshot().data, options, write, arguments.map)
    _report(fleet, options)
    return int(not fleet.complete)


_UNKNOWN = re.compile(r"unknown option (--[\w-]+)")
_NO_SCRIPT = re.compile(r"there is no tool and no file '(.*)'")


@contextmanager
def _order_of_words(*, asked: bool) -> Iterator[None]:
    """Say where words belong that stand elsewhere: options of the fleet after the script, a host in its place.

    *asked*: whether it is known which hosts are asked.
    """
    try:
        yield
    except TraceError as error:
        if (option := _UNKNOWN.fullmatch(error.message)) is not None and option[1] in FLEET_OPTIONS:
            message = f"{option[1]} is an option of pytrace fleet, which stands before the script"
            hints = (f"pytrace fleet … {option[1]} … SCRIPT [options of the run]",)
        elif (word := _NO_SCRIPT.fullmatch(error.message)) is not None and not asked:
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


def _nodes(arguments: Namespace) -> Nodes:
    if bool(arguments.hosts) == arguments.kubernetes:
        hints = ("for example --hosts 'web[001-400]', or --kubernetes --image IMAGE",)
        raise TraceError("pytrace fleet asks either --hosts or the nodes of --kubernetes", hints=hints)
    if arguments.hosts:
        return str(arguments.hosts)
    if not arguments.image:
        hints = ("share/kubernetes/Dockerfile makes one: pytrace help containers",)
        raise TraceError("--kubernetes needs an image of pytrace: --image", hints=hints)
    return Cluster(
        image=arguments.image, labels=arguments.nodes, context=arguments.context, namespace=arguments.namespace
    )


def _fleet(
    arguments: Namespace, line: CommandLine, options: RunOptions, program: Program, nodes: Nodes
) -> pytrace.Fleet:
    try:
        return pytrace.fleet(
            program, nodes, duration=options.duration, by=arguments.by, stage=arguments.stage, soak=arguments.soak,
            max_losses=arguments.max_losses, every=arguments.every, max_memory=options.max_memory,
            max_bytes=arguments.max_bytes, max_events=arguments.max_events, max_keys=arguments.max_keys,
            agent=arguments.agent or "", push=arguments.push or "", become=arguments.become == "sudo",
            worker=arguments.worker, fanout=arguments.fanout, ssh_options=arguments.ssh_options,
            topology=arguments.topology,
            tell=(lambda _: None) if options.quiet else _write_line,
            unsafe=line.flag("unsafe"), comm=line.many("comm"), uid=line.many("uid"),
            no_features=sorted(options.disabled), max_rate={rate.pattern: rate.hits for rate in options.rates},
            budget=options.budget.text if options.budget else None,
            over_budget=options.budget.action if options.budget else SAMPLE, debuginfo=options.debuginfo,
        )  # fmt: skip
    except ValueError as error:
        raise TraceError(f"pytrace fleet: {error}") from None


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of the fleet, and the words of the run."""
    own, rest = [], list(words)
    while rest and (keywords := FLEET_OPTIONS.get(rest[0].partition("=")[0])) is not None:
        own.append(rest.pop(0))
        alone = keywords.get("action") == "store_true" or "nargs" in keywords
        if not alone and "=" not in own[-1] and rest:
            # In one word, as values may begin with "-": those of --ssh-options do.
            own[-1] += f"={rest.pop(0)}"
    return own, rest


def _check(line: CommandLine) -> None:
    """Refuse options that make no sense on many hosts."""
    rows = {row.key: row for row in OPTIONS}
    for key in line.values:
        if not rows[key].many_hosts:
            raise TraceError(f"--{rows[key].long} is not for pytrace fleet", hints=("pytrace fleet --help",))


# ---------------------------------------------------------------------------------------------- the script


def _program(arguments: Namespace, line: CommandLine, options: RunOptions, script: Script) -> Program:
    if script.wants_help:
        raise TraceError("--help of a script is shown without pytrace fleet")
    compile_options = replace(request.compile_options(line, options, script), ahead=True, resets=False)
    if script.compiled or arguments.compile_there:
        return Program(options.script, script.source, compile_options, script.compiled or b"",
                       variants=bool(script.compiled and script.source.text))  # fmt: skip
    return _compiled(script, compile_options, options)


def _compiled(script: Script, compile_options: CompileOptions, options: RunOptions) -> Program:
    """The script, compiled ahead of time on this machine, with its parameters fixed; for hosts only if what it needs is
    not in this kernel.

    Raises:
        ScriptError, TraceError: it has other errors.
    """
    from pytrace import pipeline  # with it the compiler
    from pytrace.runtime.load import remote_kernel

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
    from pytrace.runtime.session.metrics import Metrics  # few ask for it

    manifest = CompiledScript.from_bytes(program.compiled).manifest if program.compiled else None
    config = Config() if manifest is None else manifest.config
    served = Metrics(options.metrics, config, lambda: fleet.snapshot().data, lambda text: _write_line(text.rstrip()))
    stack.callback(served.close)
    return served


def _view(options: RunOptions, fleet: pytrace.Fleet, stack: ExitStack) -> AnswerView | None:
    """The view of ``--live``, whose process begins before the threads of the fleet do."""
    if not options.live:
        return None
    from pytrace.live.answer_view import AnswerView  # few ask for it
    from pytrace.runtime.session.confinement import confine_view

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


def _write(snapshot: SnapshotData, options: RunOptions, write: WriteSnapshot, maps: Sequence[str] | None) -> None:
    if options.save is not None:
        try:
            file_form.write(snapshot, options.save)
        except OSError as error:
            raise TraceError(f"cannot write {options.save!r}: {error.strerror}") from error
    row, form = table.chosen(options.format, options.output)
    shown = snapshot if maps else replace(snapshot, maps=snapshot.shown)
    write(shown, row, form, Namespace(map=maps, output=options.output))


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
