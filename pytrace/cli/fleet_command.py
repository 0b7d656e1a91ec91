"""``pytrace fleet``: one script on many hosts, and one answer."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypedDict

import msgspec
from msgspec.structs import replace

from pytrace.cli import commands, messages, request, script_finder
from pytrace.cli.options import OPTIONS, CommandLine, read
from pytrace.cli.request import Script
from pytrace.cli.scripts.command_parser import CommandParser
from pytrace.core.diagnostics import Diagnostics, TraceError, bytes_shown
from pytrace.core.manifest import CompiledScript
from pytrace.core.options.run_options import RunOptions
from pytrace.remote import hosts as fleet_hosts
from pytrace.remote import messages as protocol
from pytrace.remote import top_keys
from pytrace.remote.answer import Answer
from pytrace.remote.carriage import AGENT, PYTHON, WORKERS, Carriage, Stopping, interruptions
from pytrace.remote.controller import Controller, folder
from pytrace.remote.messages import Limits, Options, Request
from pytrace.remote.push import Pusher, bootstrap
from pytrace.remote.rollout import SOAK, Rollout, stages
from pytrace.remote.variants import Compile
from pytrace.results import file_form
from pytrace.results.formats import table
from pytrace.results.formats.format_row import Format, WriteOptions
from pytrace.results.snapshot import SnapshotData

OF_A_RUN = frozenset({
    "program", "comm", "uid", "duration", "format", "output", "save", "quiet", "no_warnings", "unsafe", "budget",
    "over_budget", "max_rate", "probe_filter", "no_feature", "max_memory", "include_directories", "includes",
})  # fmt: skip
"""Options of a run that hold for one on many hosts."""


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


class _Own(TypedDict, total=False):
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


OWN: dict[str, _Own] = {
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
    "--max-keys": {"type": _positive, "default": top_keys.MOST_KEYS, "metavar": "N",
                   "help": "entries of a map of the answer; of more, the largest (1000000)"},
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
    for name, keywords in OWN.items():
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
    line = read(rest, script_finder.find)
    script_finder.complete(line)
    _check(line)
    options = request.run_options(line)
    script = request.script(line)
    options = request.of_script(options, script, line)
    # Wrong names of formats and files are errors before anything runs.
    table.chosen(options.format, options.output)
    fleet = _fleet(arguments)
    sizes = stages(arguments.stage, len(fleet.names))
    asked = _request(arguments, line, options, script)
    with folder() as private:
        variants = _variants(line, options, script) if asked.variants else None
        answer = Answer(fleet.label, arguments.by or "", fleet.named, arguments.max_keys)
        pusher = Pusher(once=arguments.push == "once") if arguments.push else None
        controller = Controller(fleet.names, asked, answer, private, variants, pusher)
        rollout = Rollout(fleet.names, sizes, arguments.soak, arguments.max_losses)
        tell: Callable[[str], object] = (lambda _: None) if options.quiet else _tell
        with interruptions() as stopping:
            fleet.ask(asked.limits, controller, rollout, tell, stopping)
    merged = controller.result()
    _write(merged, options, write)
    _report(controller, merged, options, fleet.fold)
    return controller.status


class _Fleet(msgspec.Struct, frozen=True):
    """The hosts, and what carries messages to them."""

    names: list[str]
    label: Callable[[str], str] | None
    """The label of a host for ``--by``."""
    fold: fleet_hosts.Folded
    ask: Callable[[Limits, Controller, Rollout, Callable[[str], object], Stopping], None]
    named: Callable[[SnapshotData], SnapshotData] | None = None
    """Of :class:`pytrace.remote.answer.Answer`."""


def _fleet(arguments: Namespace) -> _Fleet:
    if bool(arguments.hosts) == arguments.kubernetes:
        hints = ("for example --hosts 'web[001-400]', or --kubernetes --image IMAGE",)
        raise TraceError("pytrace fleet asks either --hosts or the nodes of --kubernetes", hints=hints)
    if arguments.push and arguments.kubernetes:
        raise TraceError("--push is for --hosts: the image of the pods has pytrace")
    return _cluster(arguments) if arguments.kubernetes else _hosts(arguments)


def _hosts(arguments: Namespace) -> _Fleet:
    try:
        from pytrace.remote import clustershell  # an extra
    except ImportError as error:
        hints = ("pip install 'pytrace[fleet]'",)
        raise TraceError(f"pytrace fleet needs ClusterShell: {error}", hints=hints) from None
    names = clustershell.names(arguments.hosts)
    carriage = Carriage(
        command=arguments.agent or (PYTHON if arguments.push else AGENT),
        program=bootstrap() if arguments.push else "", become=arguments.become == "sudo", worker=arguments.worker,
        fanout=arguments.fanout, ssh_options=arguments.ssh_options,
    )  # fmt: skip
    label = clustershell.label(arguments.by, names)
    return _Fleet(names, label, clustershell.fold, partial(clustershell.ask, carriage))


def _cluster(arguments: Namespace) -> _Fleet:
    try:
        from pytrace.remote import kubernetes_api, kubernetes_carrier  # an extra
    except ImportError as error:
        hints = ("pip install 'pytrace[kubernetes]'",)
        raise TraceError(f"--kubernetes needs the Kubernetes client: {error}", hints=hints) from None
    if not arguments.image:
        hints = ("share/kubernetes/Dockerfile makes one: docs/fleet.md#kubernetes",)
        raise TraceError("--kubernetes needs an image of pytrace: --image", hints=hints)
    access = kubernetes_api.Client(kubernetes_api.Cluster(
        context=arguments.context, namespace=arguments.namespace, selector=arguments.nodes,
        image=arguments.image, command=arguments.agent or AGENT,
    ))  # fmt: skip
    labels = access.nodes()
    label = None if arguments.by is None else kubernetes_api.node_labels(labels, arguments.by).__getitem__
    return _Fleet(sorted(labels), label, ",".join, partial(kubernetes_carrier.ask, access), access.named)


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of the fleet, and the words of the run."""
    own, rest = [], list(words)
    while rest and (keywords := OWN.get(rest[0].partition("=")[0])) is not None:
        own.append(rest.pop(0))
        if not keywords.keys() & {"action", "nargs"} and "=" not in own[-1] and rest:
            own.append(rest.pop(0))
    return own, rest


def _check(line: CommandLine) -> None:
    """Refuse options that make no sense on many hosts."""
    longs = {row.key: row.long for row in OPTIONS}
    for key in line.values:
        if key not in OF_A_RUN:
            raise TraceError(f"--{longs[key]} is not for pytrace fleet", hints=("pytrace fleet --help",))


# ---------------------------------------------------------------------------------------------- the request


def _request(arguments: Namespace, line: CommandLine, options: RunOptions, script: Script) -> Request:
    if script.wants_help:
        raise TraceError("--help of a script is shown without pytrace fleet")
    compiled = script.compiled
    if compiled is None and not arguments.compile_there:
        compiled = _compiled(line, options, script).to_bytes()
    try:
        limits = Limits(
            duration=protocol.LONGEST_TIME if options.duration is None else options.duration, every=arguments.every,
            budget=options.budget.text if options.budget else "", max_memory=options.max_memory,
            over_budget=options.budget.action if options.budget else "sample",
            bytes=arguments.max_bytes, events=arguments.max_events,
        )  # fmt: skip
    except ValueError as error:
        raise TraceError(f"pytrace fleet: {error}") from None
    asked = Request(
        protocol=protocol.PROTOCOL, script=options.script, text=script.source.text, compiled=compiled or b"",
        parameters=script.positional, named=script.named, limits=limits,
        variants=script.compiled is None and not arguments.compile_there,
        options=Options(
            unsafe=line.flag("unsafe"), comm=tuple(line.many("comm")), uid=tuple(line.many("uid")),
            no_features=tuple(sorted(options.disabled)),
            max_rate={rate.pattern: rate.hits for rate in options.rates},
        ),
    )  # fmt: skip
    return protocol.checked(asked)


def _compiled(line: CommandLine, options: RunOptions, script: Script) -> CompiledScript:
    """The script, compiled ahead of time on this machine, with its parameters fixed.

    Raises:
        ScriptError, TraceError: it cannot be.
    """
    diagnostics = Diagnostics()
    try:
        return _built(line, options, script, diagnostics)
    finally:
        messages.show(diagnostics, warnings=options.warnings)
        if diagnostics.failed:
            sys.stderr.write("HINT: with --compile-there each host compiles the script for itself\n")


def _built(
    line: CommandLine, options: RunOptions, script: Script, diagnostics: Diagnostics,
    lacks: frozenset[str] = frozenset(), cpus: int = 0,
) -> CompiledScript:  # fmt: skip
    from pytrace import pipeline  # with it the compiler

    options = replace(options, disabled=options.disabled | lacks)
    compile_options = replace(request.compile_options(line, options, script), ahead=True)
    kernel = commands.live_kernel(options, ahead=True, cpus=cpus)
    return pipeline.compile_script(script.source, compile_options, kernel, diagnostics)


def _variants(line: CommandLine, options: RunOptions, script: Script) -> Compile:
    def compile_(lacks: frozenset[str], cpus: int) -> bytes:
        return _built(line, options, script, Diagnostics(), lacks, cpus).to_bytes()

    return compile_


# ---------------------------------------------------------------------------------------------- the answer


def _write(snapshot: SnapshotData, options: RunOptions, write: WriteSnapshot) -> None:
    if options.save is not None:
        try:
            file_form.write(snapshot, options.save)
        except OSError as error:
            raise TraceError(f"cannot write {options.save!r}: {error.strerror}") from error
    row, form = table.chosen(options.format, options.output)
    write(snapshot, row, form, Namespace(map=None, output=options.output))


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _report(controller: Controller, answer: SnapshotData, options: RunOptions, fold: fleet_hosts.Folded) -> None:
    """Who answered, and why others did not."""
    sys.stdout.flush()
    hosts = controller.hosts.values()
    lines = []
    if options.warnings:
        texts = [*fleet_hosts.warnings(hosts, fold), *top_keys.warnings(answer)]
        lines += [f"WARNING: {text}" for text in texts]
    lines += fleet_hosts.clocks(hosts, fold)
    lines += fleet_hosts.complaints(hosts, fold)
    if not options.quiet or controller.status:
        lines.append(fleet_hosts.summary(hosts, time.monotonic()))
    sys.stderr.write(bytes_shown("".join(f"{text}\n" for text in lines)))
