"""Who is asked by a fleet, and what carries messages there: hosts of a node set, or nodes of a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Self, TypeAlias, Unpack

import msgspec
from msgspec.structs import replace

from pytrace.base import extras, limited_process, typed_json
from pytrace.core import kernel_info, manifest
from pytrace.core.diagnostics import Error, HiddenKernelError, TraceError, counted, render_error
from pytrace.core.kernel_info import MOST_QUESTIONS, Questions
from pytrace.core.options import SAMPLE, CompileOptions, Config, debug_folders
from pytrace.core.source import Source
from pytrace.core.types import Type
from pytrace.interface.compiled import (
    Arguments,
    CompiledScript,
    Script,
    Users,
    ahead_of_time,
    check_names,
    compile_options,
    live_kernel,
    read,
)
from pytrace.interface.errors import ScriptError
from pytrace.interface.snapshots import Snapshot
from pytrace.remote import controller, messages
from pytrace.remote.answer import BOUND, LEFT_OUT, MOST_KEYS, Answer, renamed
from pytrace.remote.carriage import AGENT, ALL, SOAK, Carriage, Rollout, Stopping
from pytrace.remote.controller import Controller, Tree
from pytrace.remote.hosts import Folded, Host, Hosts, Offset
from pytrace.remote.messages import LONGEST_REQUEST, Limits, NamedPlace, Options, Place, Relay, Request, Route, encode
from pytrace.remote.naming import Naming, has_stacks, place_of, places
from pytrace.remote.pods import Cluster
from pytrace.remote.push import Pusher, bootstrap
from pytrace.remote.variants import Kind, Outcome, unpacked
from pytrace.results.snapshot import WITHOUT_ANSWER, Frame, SnapshotData, StackTrace
from pytrace.runtime.binaries import debug_files
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.load import remote_kernel
from pytrace.runtime.load.remote_kernel import RemoteKernel
from pytrace.runtime.machine.demangle import demangle, short_name
from pytrace.runtime.stacks.image_places import Detail, detail
from pytrace.runtime.stacks.images import Images, LineReading

Nodes: TypeAlias = str | Iterable[str] | Cluster
"""A node set of ClusterShell, names of hosts, or the nodes of a cluster."""

_PYTHON = "python3"
"""The command on the hosts, and that with ``--push``."""


class AskedHosts(msgspec.Struct, frozen=True):
    """The hosts, and what carries messages to them."""

    names: list[str]
    label: Callable[[str], str] | None
    """The label of a host, which keys begin with; None: answers are merged."""
    fold: Folded
    ask: Callable[[Limits, Controller, Rollout, Callable[[str], object], Stopping], None]
    tree: Callable[[Relay], Tree] | None = None
    """The gateways, told what this has."""
    rounds: int = 1
    """Runs one after another, as not all hosts are asked at a time."""
    named: Callable[[SnapshotData], SnapshotData] | None = None
    """Of :class:`pytrace.remote.answer.Answer`."""


def of_node_set(nodes: str | Iterable[str], by: str | None, carriage: Carriage, topology: str = "") -> AskedHosts:
    """The hosts of a node set, through ClusterShell, and the gateways of the *topology*.

    Raises:
        TraceError: it is invalid, or ClusterShell is not installed.
    """
    try:
        from pytrace.remote import clustershell  # an extra
    except ImportError as error:
        hints = (extras.hint("fleet"),)
        raise TraceError(f"asking hosts needs ClusterShell: {error}", hints=hints) from None
    names = clustershell.names(nodes if isinstance(nodes, str) else ",".join(nodes))
    label = clustershell.label(by, names)
    routes = clustershell.routes(names, topology)

    def tree(relay: Relay) -> Tree:
        return Tree(routes, replace(
            relay, command=carriage.command, program=carriage.program, become=carriage.become, worker=carriage.worker,
            fanout=carriage.fanout, ssh_options=carriage.ssh_options, by=by or "",
            labels=None if label is None else {name: label(name) for name in names},
        ))  # fmt: skip

    through = {name for route in routes for name in route.names}
    most = max(len(set(names) - through), *(len(route.hosts) for route in _every(routes)), 1)
    rounds = -(-most // carriage.fanout)
    return AskedHosts(names, label, clustershell.fold, partial(clustershell.ask, carriage), tree, rounds)


def _every(routes: Iterable[Route]) -> Iterator[Route]:
    for route in routes:
        yield route
        yield from _every(route.routes)


def of_cluster(cluster: Cluster, by: str | None, command: str) -> AskedHosts:
    """The nodes of a Kubernetes cluster. *command* starts an agent in a pod.

    Raises:
        TraceError: there are none, the cluster refuses, or the client of Kubernetes is not installed.
    """
    try:
        from pytrace.remote import kubernetes  # an extra
    except ImportError as error:
        hints = (extras.hint("kubernetes"),)
        raise TraceError(f"asking a cluster needs the Kubernetes client: {error}", hints=hints) from None
    access = kubernetes.Client(cluster, command or AGENT)
    labels = access.nodes()
    label = None if by is None else kubernetes.node_labels(labels, by).__getitem__
    return AskedHosts(sorted(labels), label, ",".join, partial(kubernetes.ask, access), named=access.named)


# ------------------------------------------------------------------------------------------------------- kinds of hosts

# Compiles a script for kinds of hosts: by features and CPUs here, for the facts that a host states in a process.
#
# What a host states may be made to harm whoever reads it. So the process has limits of memory and time, and whatever
# becomes of it is no more than a variant that cannot be had.


COMPILER_MEMORY = 4 << 30
"""Bytes of the address space of the process; LLVM takes up to one GiB."""
COMPILER_TIME, COMPILER_LONGEST = 120, 300.0
"""Seconds of processor time, and until it is killed."""
MOST_COMPILER_ERROR = 1 << 16


class Program(msgspec.Struct, frozen=True):
    """A script that is ready to be sent."""

    name: str
    source: Source
    options: CompileOptions
    """With its parameters, and for variants of it."""
    compiled: bytes = b""
    """Its ahead-of-time file; empty if it cannot be compiled for this kernel."""
    variants: bool = False
    """Whether it is compiled for hosts that the file does not fit."""
    questions: Questions = ()
    """What was asked about this kernel."""
    matches: str = ""
    """Which probes its patterns match here."""

    def variant(self, lacks: frozenset[str], cpus: int) -> bytes:
        """The file for hosts that lack features of the kernel, or have more CPUs.

        Raises:
            Error: there is none.
        """
        options = replace(self.options, no_features=self.options.no_features | lacks)
        return ahead_of_time(self.source, options, live_kernel(options, ahead=True, cpus=cpus)).to_bytes()


def lacking_features(why: str) -> str:
    """A line about errors that other kernels may not have."""
    return f"this kernel lacks what the script needs ({why}): it is compiled for each kind of host"


class CompileJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is to do."""

    name: str
    text: str
    path: str | None
    options: CompileOptions
    facts: bytes
    """Compressed."""


class Compiler:
    """Compiles for kinds of hosts, for their facts one after the other."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._threads = ThreadPoolExecutor(1, "pytrace-variants")
        self._running: dict[Kind, Future[Outcome]] = {}
        self._process: limited_process.Program | None = None
        self._closed = False

    def __call__(self, kind: Kind, facts: bytes) -> Outcome | None:
        """As :data:`pytrace.remote.variants.Compile`."""
        if not kind.facts:
            return Outcome(self._program.variant(kind.lacks, kind.cpus))
        if kind not in self._running:
            if not facts:
                return Outcome(wanted=True)
            self._running[kind] = self._threads.submit(self._compiled, facts)
        future = self._running[kind]
        return self._running.pop(kind).result() if future.done() else None

    def close(self) -> None:
        """End what is running."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._process is not None:
            self._process.kill()

    def _compiled(self, facts: bytes) -> Outcome:
        source = self._program.source
        options = self._program.options
        job = CompileJob(name=source.name, text=source.text, path=source.path, options=options, facts=facts)
        try:
            process = limited_process.Program(
                compile_job, memory=COMPILER_MEMORY, seconds=COMPILER_TIME, longest=COMPILER_LONGEST
            )
        except OSError as error:
            return _failed(str(error))
        self._process = process
        if self._closed:
            process.kill()
        try:
            return typed_json.decode(process.result(typed_json.encode(job)), Outcome)
        except limited_process.LimitError as error:
            return _failed(str(error))
        except msgspec.ValidationError:
            return _failed("the compiler's answer is damaged")
        finally:
            self._process = None


def _failed(why: str) -> Outcome:
    return Outcome(error=f"ERROR: compiling for the facts about this kernel failed: {why}\n")


def compile_job(data: bytes) -> bytes:
    """In the process: the outcome of a job, both encoded."""
    return typed_json.encode(job_outcome(typed_json.decode(data, CompileJob)))


def job_outcome(job: CompileJob) -> Outcome:
    """The outcome of a job."""
    options, kernel, error, data = job.options, None, "", b""
    try:
        facts = kernel_info.decoded_facts(unpacked(job.facts))
        kernel = RemoteKernel(facts, debuginfo=options.debuginfo, disabled=options.no_features)
        data = ahead_of_time(Source(job.name, job.text, job.path), options, kernel).to_bytes()
    except TraceError as raised:
        error = render_error(raised)
    except Error as raised:
        error = f"{raised}\n"
    unanswered = tuple(kernel.unanswered) if kernel is not None else ()
    if len(unanswered) > MOST_QUESTIONS:
        return Outcome(error="ERROR: the script asks too much about a kernel\n")
    # What was compiled without answers is of no use.
    return Outcome(questions=unanswered) if unanswered else Outcome(data, error[-MOST_COMPILER_ERROR:])


# ---------------------------------------------------------------------------------------------------------------- fleet

# Running one script on many hosts from Python.


NOT_HERE = frozenset({"pid", "pids", "command", "follow", "netns", "cached", "mark_unreadable",
                      "own_threads"})  # fmt: skip
"""Arguments of a run that say nothing about many hosts."""
PAUSE = 0.1
"""Seconds between two looks for news."""


class HostReport(msgspec.Struct, frozen=True):
    """What became of a host."""

    name: str
    state: str
    """``answered``, ``cut short``, ``refused``, ``failed``, ``lost``, ``silent``, ``not asked``; or ``waiting``,
    ``running``."""
    reason: str
    """Why it did not answer; one line."""
    status: int
    """Exit status of its run."""
    lost: int
    """Losses and failures of its run."""
    kernel: str
    warnings: tuple[str, ...]
    clock: tuple[float, float] | None
    """Seconds by which its clock is ahead of this machine's, and the error of that."""


def left_out_warnings(snapshot: SnapshotData) -> list[str]:
    """A sentence for each map of which entries were left out."""
    bounds = snapshot.losses.get(BOUND, {})
    return [
        f"{name}: {counted(number, 'key')} of hosts left out, as the answer was too large"
        + (f"; numbers may be wrong by {bounds[name]} at most" if name in bounds else "")
        for name, number in snapshot.losses.get(LEFT_OUT, {}).items()
    ]


class Fleet:
    """A script on many hosts: :func:`fleet` makes it, ``with`` or ``async with`` starts it.

    Iterating gives the answer so far, as a snapshot, each time there is news of hosts, and the final answer at last.
    """

    def __init__(
        self, request: Request, asked: AskedHosts, answer: Answer, stages: Rollout, compiler: Compiler,
        pusher: Pusher | None, tell: Callable[[str], object], tree: Tree | None, stacks: StackNames,
    ) -> None:  # fmt: skip
        self._stopping = Stopping()
        self._request, self._hosts, self._answer, self._stages = request, asked, answer, stages
        self._compiler, self._pusher, self._tell = compiler, pusher, tell
        self._tree, self._stacks, self._naming = tree, stacks, Naming(stacks.detail)
        self._controller: controller.Controller | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._final: Snapshot | None = None

    # ---- life

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("a fleet is asked once")
        self._folder = controller.folder()
        self._controller = controller.Controller(
            self._hosts.names, self._request, self._answer, self._folder.name,
            self._compiler if self._request.variants else None, self._pusher, tree=self._tree, naming=self._naming,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._ask, name="pytrace-fleet", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(wait=error is None)
        self._join()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(wait=error is None)
        await asyncio.to_thread(self._join)

    def _ask(self) -> None:
        try:
            self._hosts.ask(self._request.limits, self._asked, self._stages, self._tell, self._stopping)
        except BaseException as error:  # noqa: BLE001  (raised again in the thread that waits)
            self._error = error
        finally:
            self._compiler.close()

    def _join(self) -> None:
        assert self._thread is not None
        self._thread.join()
        if self._final is None:
            asked = self._stopping.count
            answer, names = self._asked.result(), self._naming.names
            result = self._stacks.final(answer, lambda: self._stopping.count > asked, names)
            self._final = self._with_silence(result)
            self._folder.cleanup()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    @property
    def _asked(self) -> controller.Controller:
        if self._controller is None:
            raise RuntimeError("the fleet was not asked yet: with pytrace.fleet(…) as fleet")
        return self._controller

    def stop(self, *, wait: bool = True) -> None:
        """End the runs on all hosts, as ``exit()`` does; from any thread. *wait*: for their last results.

        Called again it does the same: a loop may call it at each snapshot until the end.
        """
        self._stopping.count = max(self._stopping.count, 1 if wait else 2)

    def interrupt(self) -> None:
        """Ctrl-C: end the runs; the second time results are not waited for, the next ones not their names."""
        self._stopping.count += 1

    def wait(self) -> None:
        """Wait until all hosts have answered, or were given up."""
        assert self._thread is not None
        self._thread.join()

    def run(self) -> Snapshot:
        """Ask all hosts and wait for the end. Returns the answer."""
        with self:
            self.wait()
        return self.snapshot()

    # ---- results

    @property
    def ended(self) -> bool:
        """Whether all hosts have answered, or were given up."""
        return self._thread is not None and not self._thread.is_alive()

    def snapshot(self) -> Snapshot:
        """The answer so far, with the newest results of each host."""
        if self._final is None and self.ended:
            self._join()
        if self._final is not None:
            return self._final
        return self._with_silence(self._stacks.named(self._asked.current(), self._naming.names))

    def _with_silence(self, answer: SnapshotData) -> Snapshot:
        """An answer whose losses say which hosts it lacks."""
        missing = self._report_of_hosts.without_answer(self._hosts.label)
        if not missing:
            return Snapshot(answer)
        return Snapshot(replace(answer, losses={**answer.losses, WITHOUT_ANSWER: missing}))

    @property
    def hosts(self) -> dict[str, HostReport]:
        """What became of each host."""
        return {name: _report(host) for name, host in self._asked.hosts.items()}

    @property
    def summary(self) -> str:
        """``398 of 400 hosts answered; 1 refused (kernel 4.19), 1 silent since 12 s``."""
        return self._report_of_hosts.summary(time.monotonic())

    @property
    def _report_of_hosts(self) -> Hosts:
        return Hosts(self._asked.hosts.values(), self._hosts.fold)

    def report(self, *, warnings: bool = True) -> list[str]:
        """A line for each reason not to answer, each clock that was wrong and, with *warnings*, each warning."""
        hosts, lines = self._report_of_hosts, []
        if warnings:
            texts = [*hosts.warnings(), *left_out_warnings(self.snapshot().data)]
            lines += [f"WARNING: {text}" for text in texts]
        return [*lines, *hosts.clocks(), *hosts.complaints()]

    @property
    def complete(self) -> bool:
        """Whether all hosts have answered, and their scripts ended with 0."""
        return self._asked.status == 0

    def __iter__(self) -> Iterator[Snapshot]:
        seen = 0
        while not self.ended:
            if (news := self._asked.news) != seen:
                seen = news
                yield self.snapshot()
            self._thread_pause()
        yield self.snapshot()

    def _thread_pause(self) -> None:
        assert self._thread is not None
        self._thread.join(PAUSE)

    async def __aiter__(self) -> AsyncIterator[Snapshot]:
        seen = 0
        while not self.ended:
            if (news := self._asked.news) != seen:
                seen = news
                yield await asyncio.to_thread(self.snapshot)
            await asyncio.to_thread(self._thread_pause)
        yield await asyncio.to_thread(self.snapshot)


def _report(host: Host) -> HostReport:
    kernel = "" if host.hello is None else host.hello.kernel
    return HostReport(
        host.name, host.state.value, host.text, host.status, host.lost, kernel, host.told, _clock(host.clock)
    )


def _clock(offset: Offset | None) -> tuple[float, float] | None:
    return None if offset is None else (offset.ahead / 1e9, offset.error / 1e9)


# ---------------------------------------------------------------------------------------------- asking


def stage_sizes(text: str, hosts: int) -> list[int]:
    """The numbers of hosts of ``1,10,all``, each with those of the stages before; the last one is *hosts*.

    Raises:
        TraceError: it is no such list.
    """
    words = text.split(",")
    numbers = [int(word) for word in words[:-1] if word.isascii() and word.isdecimal() and len(word) < 10]
    if words != [*map(str, sorted({*numbers} - {0})), ALL]:
        hints = ("for example --stage 1,10,all: one host, then nine more, then all others",)
        raise TraceError(f"--stage takes rising numbers of hosts and 'all' at the end, not {text!r}", hints=hints)
    return [*(number for number in numbers if number < hosts), hosts]


def fleet(
    script: Script | CompiledScript | Program,
    nodes: Nodes,
    *,
    duration: float | None = None,
    by: str | None = None,
    stage: str = ALL,
    soak: float = SOAK,
    max_losses: int = 0,
    every: float = 5.0,
    max_memory: str = "",
    max_bytes: int = 256 << 20,
    max_events: int = 10_000_000,
    max_keys: int = MOST_KEYS,
    compile_there: bool = False,
    agent: str = "",
    push: str = "",
    become: bool = False,
    worker: str = "ssh",
    fanout: int = 1000,
    ssh_options: str = "",
    topology: str = "",
    tell: Callable[[str], object] = lambda _: None,
    **arguments: Unpack[Arguments],
) -> Fleet:
    """A script on many hosts, as ``pytrace fleet`` runs it (docs/guides/many-hosts.md). Nothing is asked before
    it is entered.

    Args:
        script: the text of a script, the path of a file, or a result of :func:`compile`.
        nodes: hosts: a node set of ClusterShell (``"web[001-400]"``, ``"@db"``), or names; or the nodes of a
            :class:`Cluster` of Kubernetes.
        duration: seconds of the run on each host; without it :meth:`Fleet.stop` ends it.
        by: ``"host"``, or a source of groups of ClusterShell, or a label of nodes: keys of maps then begin with it.
        stage: stages of a roll-out: ``"1,10,all"``.
        soak: seconds that a stage is watched.
        max_losses: losses of a host that do not stop a roll-out.
        every: seconds between two snapshots of a host.
        max_memory: what the maps and the agent may take on a host: ``"512M"``, ``"10%"``.
        max_bytes: bytes that a host may send.
        max_events: events that the script may send on a host.
        max_keys: entries of a map of the answer; of more, the largest.
        compile_there: send the text only.
        agent: the command on the hosts (``"pytrace agent"``); with *push* their Python (``"python3"``).
        push: what hosts without pytrace need is sent, and there ``"keep"`` or used ``"once"``.
        become: start it through sudo, without a password.
        worker: ClusterShell's worker: ``"ssh"``, ``"rsh"``, ``"exec"``.
        fanout: hosts at a time.
        ssh_options: options for ssh.
        topology: a file of gateways, in ClusterShell's form; without it that of its configuration, if any; ``"none"``.
        tell: is called with a line when the script is attached on all hosts of a stage on which it can be, and before
            if this machine's kernel lacks what the script needs.
        arguments: those of :class:`pytrace.interface.compiled.Arguments` that say something about each host;
            ``debuginfo`` is for this machine, which names functions of user stacks.

    Raises:
        ScriptError: the script has errors.
        TraceError: a node set is invalid, the cluster refuses, or the packages of the extra ``fleet`` or ``kubernetes``
            are not installed.
    """
    check_names(arguments)
    for name in sorted(NOT_HERE & arguments.keys()):
        raise TypeError(f"fleet() takes no argument {name!r}")
    if push not in ("", "keep", "once"):
        raise ValueError(f"push is 'keep' or 'once', not {push!r}")
    if isinstance(nodes, Cluster):
        if push or become:
            raise TraceError("push and become are for hosts: the image of the pods has pytrace, which runs as root")
        asked = of_cluster(nodes, by, agent)
    else:
        asked = of_node_set(nodes, by, Carriage(
            command=agent or (_PYTHON if push else AGENT), program=bootstrap() if push else "", become=become,
            worker=worker, fanout=fanout, ssh_options=ssh_options,
        ), topology)  # fmt: skip
    stages = Rollout(asked.names, stage_sizes(stage, len(asked.names)), soak, max_losses)
    if asked.rounds > 1:
        tell(_batches(asked.rounds, len(asked.names), fanout, duration))
    limits = Limits(
        duration=messages.LONGEST_TIME if duration is None else duration, every=every, max_memory=max_memory,
        budget=arguments.get("budget") or "", over_budget=arguments.get("over_budget", SAMPLE),
        bytes=max_bytes, events=max_events,
    )  # fmt: skip
    program = script if isinstance(script, Program) else _program(script, arguments, compile_there, tell)
    request = _request(program, limits, arguments)
    config = manifest.CompiledScript.from_bytes(program.compiled).manifest.config if program.compiled else None
    stacks = StackNames(debug_folders(arguments.get("debuginfo", ())), config)
    answer = Answer(asked.label, by or "", asked.named, max_keys)
    pusher = Pusher(once=push == "once") if push else None
    relay = Relay(protocol=messages.PROTOCOL, request=request, route=Route(gateway=""), command="", push=push,
                  most_keys=max_keys)  # fmt: skip
    tree = asked.tree(relay) if asked.tree is not None else None
    return Fleet(request, asked, answer, stages, Compiler(program), pusher, tell, tree, stacks)


def _batches(rounds: int, number: int, fanout: int, duration: float | None) -> str:
    """The line that not all hosts are asked at a time."""
    line = f"{number} hosts, {fanout} at a time (--fanout): {rounds} batches one after another"
    if duration is None:
        return f"{line}; without --duration the first one does not end before Ctrl-C"
    return f"{line}, which take {rounds * duration:g} s and more"


def _checked(request: Request) -> Request:
    """A request that an agent reads.

    Raises:
        TraceError: it is too large.
    """
    if (size := len(encode(request))) > LONGEST_REQUEST:
        hints = ("--compile-there sends the text only",)
        raise TraceError(f"the request has {size} bytes, and agents read {LONGEST_REQUEST} at most", hints=hints)
    return request


def _request(program: Program, limits: Limits, arguments: Arguments) -> Request:
    rates = arguments.get("max_rate", {})
    return _checked(Request(
        protocol=messages.PROTOCOL, script=program.name, text=program.source.text, limits=limits,
        compiled=program.compiled, variants=program.variants, questions=program.questions, matches=program.matches,
        places=bool(program.compiled), parameters=program.options.positional, named=program.options.named,
        options=Options(
            unsafe=arguments.get("unsafe", False), comm=_names(arguments.get("comm", ())),
            uid=_names(arguments.get("uid", ())), cgroup=_names(arguments.get("cgroup", ())),
            container=_names(arguments.get("container", ())), no_features=tuple(arguments.get("no_features", ())),
            max_rate=dict(rates) if isinstance(rates, Mapping) else {"": rates},
        ),
    ))  # fmt: skip


def _program(
    script: Script | CompiledScript, arguments: Arguments, compile_there: bool, tell: Callable[[str], object]
) -> Program:
    if isinstance(script, CompiledScript):
        source, options = script.source, script.options
        data = script.ahead_of_time().to_bytes() if script.ahead else None
    else:
        options = compile_options(arguments)
        source, data = read(script)
    if data is not None or compile_there:
        return Program(source.name, source, options, data or b"", variants=bool(data and source.text))
    kernel = live_kernel(options, ahead=True)
    try:
        compiled = ahead_of_time(source, options, kernel).to_bytes()
    except ScriptError as error:
        if not error.kernel:
            raise
        compiled = b""
        tell(lacking_features(error.first))
    except HiddenKernelError as error:
        compiled = b""
        tell(lacking_features(error.message))
    questions = tuple(kernel.questions)
    matches = remote_kernel.probe_digest(kernel, questions) if compiled else ""
    return Program(source.name, source, options, compiled, variants=True, questions=questions, matches=matches)


def _names(value: Users) -> tuple[str, ...]:
    return (str(value),) if isinstance(value, (str, int)) else tuple(map(str, value))


# ---------------------------------------------------------------------------------------------- names in stacks


Names = Mapping[Place, NamedPlace]
"""What hosts have said (:attr:`pytrace.remote.naming.Naming.names`)."""
NONE: Names = MappingProxyType({})


class _Files:
    """Files of this machine by build id."""

    def __init__(
        self, debuginfo: Iterable[str], named: Callable[[str], str], *, lines: bool, fetched: bool = False
    ) -> None:
        self._search = [folder.removeprefix("+") for folder in debug_files.directories(debuginfo)]
        self.reading = LineReading()
        self.images = Images(
            {}, named=named, lines=lines, fetched=fetched, debuginfo=debuginfo, reading=self.reading
        )
        self._binaries: dict[tuple[str, str], tuple[Binary, Detail] | None] = {}
        self._fetched: dict[str, Binary | None] = {}

    def binary(self, build_id: str, path: str) -> tuple[Binary | None, Detail]:
        """A file with a build id, and how much it says: the binary itself if it is here, or else its debug file."""
        key = build_id, path
        if key not in self._binaries:
            binary = self._binary(build_id, path)
            self._binaries[key] = None if binary is None else (binary, detail(binary))
        return self._binaries[key] or (None, Detail.NOTHING)

    def _binary(self, build_id: str, path: str) -> Binary | None:
        for candidate in (path, *debug_files.of_build_id(build_id, self._search)):
            if _is_file(candidate) and debug_files.has_build_id(candidate, build_id):
                return self._opened(candidate)
        return None

    def fetched(self, build_id: str) -> Binary | None:
        """The debug file of a build id from a server, if one has it, and the user waits for that."""
        if build_id not in self._fetched:
            downloaded: list[str] = []
            asked = self.reading.download(lambda stop: downloaded.extend(self._fetch(build_id, stop)))
            if not asked:
                return None
            self._fetched[build_id] = self._opened(downloaded[0]) if downloaded else None
        return self._fetched[build_id]

    def _fetch(self, build_id: str, stop: Callable[[], bool]) -> list[str]:
        path, problems = debug_files.fetch(build_id, stop)
        if problems:
            # The next question would take as long.
            self.reading.no_downloads()
        return [] if path is None else [path]

    def _opened(self, path: str) -> Binary | None:
        try:
            return self.images.binary(path, os.stat(path))
        except (TraceError, OSError):
            return None

    def prepare(self, frames: Iterable[Frame]) -> Iterator[None]:
        """Read the source lines of places in short steps."""
        wanted = []
        for frame in frames:
            place = place_of(frame)
            binary = None if place is None else self.binary(place.build_id, frame.module)[0]
            if binary is not None and place is not None:
                wanted.append((binary, place.address))
        yield from self.images.prepare(wanted)


class StackNames:
    """Names the functions of snapshots of hosts."""

    def __init__(self, debuginfo: Iterable[str] = (), config: Config | None = None) -> None:
        """*debuginfo*: directories with debug files, instead of ``/usr/lib/debug``; *config*: of the script."""
        config, debuginfo = config or Config(), tuple(debuginfo)
        named: Callable[[str], str] = str
        if config.cpp_demangle:
            named = short_name if config.short_generics else demangle
        self._so_far = _Files(debuginfo, named, lines=False)
        self._whole = _Files(debuginfo, named, lines=config.show_debug_info, fetched=config.debuginfod_lines)
        self._looked = _Files(debuginfo, str, lines=False)
        """For :meth:`detail`, which another thread asks."""
        self._lock = threading.Lock()
        """As answers so far are made in several threads."""

    def detail(self, build_id: str, path: str) -> int:
        """How much this machine knows of a binary (:class:`Detail`); nothing is downloaded, no symbols are read."""
        return self._looked.binary(build_id, path)[1]

    def named(self, snapshot: SnapshotData, names: Names = NONE) -> SnapshotData:
        """The answer so far, in which functions have names, as far as files with their build ids are here."""
        with self._lock:
            return _named(snapshot, self._so_far, names)

    def final(self, snapshot: SnapshotData, stop: Callable[[], bool], names: Names = NONE) -> SnapshotData:
        """The final answer, named with lines: servers of ``DEBUGINFOD_URLS`` are asked, until one fails.

        When *stop* says so, nothing more is downloaded, and functions that are left have no lines.
        """
        files = self._whole
        with self._lock:
            if os.environ.get("DEBUGINFOD_URLS"):
                files.reading.hurry(None, "stacks", stop)
            for _ in files.prepare(places(snapshot)):
                if stop():
                    files.reading.given_up = True
                    break
            named = _named(snapshot, files, names)
            files.images.keep()
            return named


def _named(snapshot: SnapshotData, files: _Files, names: Names) -> SnapshotData:
    known: dict[Frame, tuple[Frame, ...]] = {}

    def functions(frame: Frame) -> tuple[Frame, ...]:
        if frame not in known:
            place = place_of(frame)
            known[frame] = (frame,) if place is None else _functions(frame, place, files, names)
        return known[frame]

    def leaf(type_: Type | None, value: object) -> object:
        if isinstance(value, StackTrace) and has_stacks(type_):
            return value._replace(frames=tuple(one for frame in value.frames for one in functions(frame)))
        return value

    return renamed(snapshot, has_stacks, leaf)


def _functions(frame: Frame, place: Place, files: _Files, names: Names) -> tuple[Frame, ...]:
    """The functions of a place, by whoever knows most of its binary; the place itself where none is known."""
    binary, own = files.binary(place.build_id, frame.module)
    said = names.get(place)
    if said is not None and said.functions and said.detail > own:
        return tuple(
            _frame(frame, place, one.name, one.offset, one.file, one.line, one.inlined) for one in said.functions
        )
    found = [] if binary is None else files.images.frames(binary, frame.module, place.address)
    if binary is None and (fetched := files.fetched(place.build_id)) is not None:
        found = files.images.frames(fetched, frame.module, place.address)
    if not found or not found[0].name:
        return (frame._replace(offset=frame.address),)
    return tuple(_frame(frame, place, one.name, one.offset, one.file, one.line, one.inlined) for one in found)


def _frame(frame: Frame, place: Place, name: str, offset: int, file: str, line: int, inlined: bool) -> Frame:
    """A function of a place, which is that of an address or of the byte before."""
    start = offset + frame.address - place.address
    return Frame(name, start, frame.module, frame.build_id, file, line, inlined, frame.address)


def _is_file(path: str) -> bool:
    try:
        return os.path.isabs(path) and stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
