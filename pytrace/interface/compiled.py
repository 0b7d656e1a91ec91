"""Compiling scripts from Python, and descriptions of compiled scripts."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from pytrace import cache
from pytrace.base import whole_files
from pytrace.core import manifest, script_files
from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.diagnostics import ScriptError as FailedPass
from pytrace.core.kernel_info import known_features
from pytrace.core.manifest import MapSpec
from pytrace.core.options import (
    SAMPLE,
    Budget,
    CompileOptions,
    ProcessFilters,
    Rate,
    RunOptions,
    TracingOptions,
    debug_folders,
    environment,
)
from pytrace.core.script_options import JOINT
from pytrace.core.source import Source
from pytrace.core.types import Type
from pytrace.interface.errors import TraceWarning, placed, warn
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.load.ahead_of_time import RunParameters, prepare
from pytrace.runtime.machine import selected_processes as selected

if TYPE_CHECKING:
    from pytrace.runtime.load.live_kernel import LiveKernel


Script: TypeAlias = str | os.PathLike[str]
"""The text of a script, or the path of a file; a string without ``{``, ``<`` and line ends is a path."""

Parameters: TypeAlias = Sequence[object] | Mapping[str, object]
"""Positional parameters (``$1`` …), or named ones (``getopt``); for a named one, None stands for a flag, and a list for
the values of a repeated option."""

Command: TypeAlias = str | Sequence[str | os.PathLike[str]]
"""A list of words, or a string that is split as by a shell (without expansions)."""

_COMPILING = threading.RLock()
"""Serialises compilation: threads share the parser, LLVM and the facts about this machine."""


class MapDescription(msgspec.Struct, frozen=True):
    """A map of a script: its name, the types of key (None: no keys) and value, and its maximum number of keys."""

    name: str
    key: Type | None
    value: Type
    max_entries: int


class ProgramDescription(msgspec.Struct, frozen=True):
    """A BPF program of a script."""

    name: str
    kind: str
    """Kind of the probe (``kprobe`` …)."""
    probes: tuple[str, ...]
    """Full names of the probes to which it is attached."""
    line: int
    """Line of the script."""
    instructions: int
    """Number of instructions from LLVM, before the kernel's rewrites."""


class CompiledScript:
    """A compiled script: its probes, its maps, and its programs."""

    def __init__(self, script: manifest.CompiledScript, source: Source, options: CompileOptions) -> None:
        self._script = script
        self._source = source
        self._options = options

    @property
    def name(self) -> str:
        """Name of the script's file; ``script`` for a text."""
        return self._source.name

    @property
    def ahead(self) -> bool:
        """It comes from a file that :meth:`save` or ``--aot`` wrote."""
        return self._script.manifest.ahead is not None

    @property
    def probes(self) -> tuple[str, ...]:
        """Full names of all probes, in the order of the script."""
        programs = (item for item in self._script.manifest.programs if not item.service)
        return tuple(target.probe for program in programs for target in program.targets)

    @property
    def maps(self) -> Mapping[str, MapDescription]:
        """The maps by name."""
        return {item.name: _described(item) for item in self._script.manifest.maps}

    @property
    def programs(self) -> tuple[ProgramDescription, ...]:
        """The BPF programs."""
        with ElfFile(self._script.elf, self.name) as elf:
            sizes = {section.name: section.size for section in elf.sections}
        return tuple(
            ProgramDescription(
                item.symbol,
                item.kind,
                tuple(target.probe for target in item.targets),
                item.location.line,
                sizes.get(f"pytrace/{item.symbol}", 0) // 8,
            )
            for item in self._script.manifest.programs
        )

    @property
    def instructions(self) -> int:
        """Instructions of all programs together."""
        return sum(program.instructions for program in self.programs)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the compilation, as the command prints them."""
        return self._script.manifest.warnings

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that :func:`compile`, :func:`open` and the command run without a compiler, here or elsewhere.

        Raises:
            TraceError: the file cannot be written, or the script has parts that only this machine can compile.
        """
        ahead = self.ahead_of_time()
        try:
            whole_files.write(os.fspath(path), ahead.to_bytes(executable=True), executable=True)
        except OSError as error:
            raise TraceError(f"cannot write {os.fspath(path)!r}: {error.strerror}") from error

    def ahead_of_time(self) -> manifest.CompiledScript:
        """What :meth:`save` writes.

        Raises:
            ScriptError, TraceError: the script has parts that only this machine can compile.
        """
        return self._script if self.ahead else ahead_of_time(self._source, self._options)

    def prepared(self, options: RunOptions) -> manifest.CompiledScript:
        """The script for a session to load: a saved script is prepared for this machine and its parameters."""
        if self._script.manifest.ahead is None:
            return self._script
        parameters = RunParameters(self._options.positional, self._options.named)
        kernel = live_kernel(replace(self._options, no_features=options.no_features, debuginfo=options.debuginfo))
        with _COMPILING:
            prepared = prepare(self._script, parameters, options, kernel)
        for text in prepared.warnings:
            warn(text, TraceWarning)
        return prepared.script

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters, as on a command line."""
        named = (f"--{name}" if value is None else f"--{name}={value}" for name, value in self._options.named)
        return (*self._options.positional, *named)

    @property
    def source(self) -> Source:
        """The script."""
        return self._source

    @property
    def options(self) -> CompileOptions:
        """The options it was compiled with."""
        return self._options

    def __repr__(self) -> str:
        return f"<CompiledScript {self.name!r}: {len(self.probes)} probes, maps {', '.join(self.maps) or 'none'}>"


def _described(spec: MapSpec) -> MapDescription:
    return MapDescription(spec.name, spec.key, spec.value, spec.max_entries)


# ---------------------------------------------------------------------------------------------- compiling


class Arguments(TypedDict, total=False):
    """Keyword arguments of :func:`compile`, :func:`pytrace.open` and :func:`pytrace.run`."""

    parameters: Parameters
    """Positional parameters (a sequence), or named ones (a mapping)."""
    pid: int | None
    """Trace only this process; the run ends when it does."""
    pids: Sequence[int]
    """Trace only these processes; the run ends when all have ended."""
    comm: Names
    """Trace only threads with this name (or these)."""
    uid: Users
    """Trace only processes of this user (or these): names or numbers."""
    cgroup: Names
    """Trace only processes in this cgroup of version 2 (or these), and those below it."""
    container: Names
    """Trace only processes of this container (or these): id, UID of a pod, or name."""
    netns: str | None
    """Trace only processes of this network namespace (name or path), also the command and interface names."""
    command: Command | None
    """Run this (a list of words, or a string that is split as by a shell); the run ends when it does, and it is ended
    when the trace is closed. A command that was started by a thread other than the main thread survives if this process
    is killed (SIGKILL)."""
    follow: bool
    """Also trace processes that *pid* or *command* starts."""
    unsafe: bool
    """Allow functions that change the system (``system``, ``signal`` …)."""
    include_directories: Sequence[str]
    """Folders of C headers."""
    includes: Sequence[str]
    """C headers that come before those of the script."""
    own_threads: bool
    """Whether threads of this process are traced while they are in calls of the trace (the default), and the thread
    that keeps its watchdog. False leaves them out: for programs that trace themselves."""
    probe_filter: str | None
    """A regular expression; probes whose name does not match it are left out."""
    budget: str | None
    """What tracing may cost: ``1%`` of one processor, ``1%machine`` of all. Probes over it are sampled or detached."""
    over_budget: str
    """``sample`` (1 in N hits; what they count is scaled and has a mark) or ``detach``."""
    max_rate: float | Mapping[str, float]
    """Hits per second of each block that are handled; or by probe (shell patterns of full names)."""
    debuginfo: Sequence[str]
    """Folders with debug information."""
    no_features: Sequence[str]
    """Kernel features that must not be used."""
    mark_unreadable: bool
    """Show ``<unreadable>`` for strings that cannot be read, and count failed reads."""
    cached: bool
    """Use the cached result of an earlier compilation, and cache this one (the default)."""


FIXED = ("unsafe", "include_directories", "includes", "probe_filter", "mark_unreadable")
"""Arguments that have no effect on compiled scripts."""


def compile(script: Script, **arguments: Unpack[Arguments]) -> CompiledScript:  # noqa: A001  (as in re)
    """Compile a script: a text, or the path of a file (a script, or what :meth:`CompiledScript.save` wrote).

    *arguments* are those of :class:`Arguments`. The arguments of probes may depend on *pid* and *command*.

    Raises:
        ScriptError: the script has errors.
        TraceError: the file cannot be read, or this machine cannot compile it.
    """
    check_names(arguments)
    options = compile_options(arguments)
    source, data = read(script)
    if data is not None:
        refuse(arguments, FIXED, "the file is compiled already; give {} when it is compiled")
        return CompiledScript(manifest.CompiledScript.from_bytes(data), source, options)
    with _COMPILING:
        return CompiledScript(build(source, options, arguments.get("cached", True)), source, options)


def ahead_of_time(source: Source, options: CompileOptions, kernel: LiveKernel | None = None) -> manifest.CompiledScript:
    """A script compiled for other machines, by the facts about *kernel* (None: this machine).

    Raises:
        ScriptError, TraceError: it has errors, or parts that only this machine can compile.
    """
    with _COMPILING:
        return _compiled(source, replace(options, ahead=True), kernel)


def live_kernel(options: CompileOptions, *, ahead: bool = False, cpus: int = 0) -> LiveKernel:
    """Facts about this machine; *ahead* and *cpus* as for :class:`pytrace.runtime.load.live_kernel.LiveKernel`."""
    from pytrace.runtime.load.live_kernel import LiveKernel  # facts that a compilation asks for

    return LiveKernel(disabled=options.no_features, debuginfo=options.debuginfo, ahead=ahead, cpus=cpus)


def check_names(arguments: Arguments) -> None:
    """Reject arguments of other names.

    Raises:
        TypeError: there is one.
    """
    for name in arguments.keys() - Arguments.__annotations__.keys():
        raise TypeError(f"unexpected keyword argument {name!r}")


def compile_options(arguments: Arguments) -> CompileOptions:
    """The options of a compilation that the arguments select."""
    positional, named = _parameters(arguments.get("parameters", ()))
    command = command_text(arguments.get("command"))
    values = converted(arguments, CompileOptions) | {
        "positional": positional,
        "named": named,
        "filters": process_filters(arguments),
        "child": command is not None,
        "child_command": command or "",
        "limited": bool(arguments.get("max_rate")),
        "sampled": arguments.get("budget") is not None and arguments.get("over_budget", SAMPLE) == SAMPLE,
        "provenance": True,
        "environment": environment(mark_unreadable=arguments.get("mark_unreadable", False)),
    }
    return replace(CompileOptions(), **values)


def converted(arguments: Arguments, kind: type[TracingOptions]) -> dict[str, object]:
    """The values of the arguments that are members of *kind*, by the same names.

    Raises:
        TypeError, ValueError, TraceError: a value is invalid.
    """
    members = kind.__struct_fields__
    values = {
        name: _CONVERSIONS[name](value) if name in _CONVERSIONS else value
        for name, value in arguments.items() if name in members
    }  # fmt: skip
    if "budget" in members:
        values["budget"] = Budget.chosen(arguments.get("budget"), arguments.get("over_budget", SAMPLE))
    return values


def command_text(command: Command | None) -> str | None:
    """A command as a string that is split again."""
    return command if command is None or isinstance(command, str) else shlex.join(os.fspath(word) for word in command)


def _sequence(name: str, value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"{name} must be a sequence of names, not a string")
    return tuple(value)


def _rates(limits: float | Mapping[str, float]) -> tuple[Rate, ...]:
    by_probe = limits if isinstance(limits, Mapping) else {"": limits}
    if any(hits <= 0 for hits in by_probe.values()):
        raise ValueError("max_rate must be more than 0 hits per second")
    return tuple(Rate(hits, pattern) for pattern, hits in by_probe.items())


_CONVERSIONS: Mapping[str, Callable[..., object]] = {
    "command": command_text,
    "include_directories": partial(_sequence, "include_directories"),
    "includes": partial(_sequence, "includes"),
    "no_features": lambda value: known_features(_sequence("no_features", value)),
    "debuginfo": debug_folders,
    "max_rate": _rates,
}
"""Of arguments whose members of the options are of another type."""


def process_filters(arguments: Arguments) -> ProcessFilters:
    """The process filters that the arguments select.

    Raises:
        TraceError: a value names something that does not exist.
        TypeError: a process id is not an integer.
    """
    return filters(
        arguments.get("pid"),
        arguments.get("pids", ()),
        comm=arguments.get("comm", ()),
        uid=arguments.get("uid", ()),
        cgroup=arguments.get("cgroup", ()),
        container=arguments.get("container", ()),
        netns=arguments.get("netns"),
        own_threads=arguments.get("own_threads", True),
    )


def build(source: Source, options: CompileOptions, cached: bool = False) -> manifest.CompiledScript:
    """Compile *source*, or use the cached result of an earlier run.

    Raises:
        ScriptError: the script has errors.
    """
    if not cached:
        return _compiled(source, options)
    script, _ = cache.load_or_compile(source, options, lambda: _compiled(source, options))
    return script


def _compiled(source: Source, options: CompileOptions, kernel: LiveKernel | None = None) -> manifest.CompiledScript:
    from pytrace import pipeline  # the compiler

    diagnostics = Diagnostics()
    with placed(diagnostics):
        kernel = kernel or live_kernel(options, ahead=options.ahead)
        try:
            return pipeline.compile_script(source, options, kernel, diagnostics)
        except FailedPass:
            absent = kernel.absent_types()
            if absent is None:
                raise
            raise absent from None


def read(script: Script) -> tuple[Source, bytes | None]:
    """The source of a script, and its compiled form if it is a compiled file.

    Raises:
        TraceError: the file cannot be read.
    """
    if isinstance(script, str) and any(mark in script for mark in "{<\n"):
        return Source("script", script), None
    path = os.fspath(script)
    if not isinstance(path, str):
        raise TypeError("a script is a str (its text, or a path) or a path object, not bytes")
    try:
        return script_files.read(path)
    except OSError as error:
        hints = () if os.path.exists(path) else ("the text of a script has braces: begin { … }",)
        raise TraceError(f"cannot read script {path!r}: {error.strerror}", hints=hints) from error
    except ValueError as error:
        raise TraceError(f"cannot read script {path!r}: {error}") from error


def refuse(arguments: Mapping[str, object], names: Iterable[str], text: str) -> None:
    """Reject arguments that cannot have an effect any more: *text* is the message, with the name of the argument.

    Raises:
        TraceError: one of the arguments *names* is set.
    """
    for name in names:
        if arguments.get(name):
            raise TraceError(text.format(name))


def _parameters(parameters: Parameters) -> tuple[tuple[str, ...], tuple[tuple[str, str | None], ...]]:
    if isinstance(parameters, Mapping):
        return (), tuple((str(name), _text(value)) for name, value in parameters.items())
    if isinstance(parameters, str):
        raise TypeError("parameters must be a sequence or a mapping, not a string")
    if any(item is None for item in parameters):
        raise TypeError("a positional parameter must be a text or a number, not None")
    return tuple(str(item) for item in parameters), ()


def _text(value: object) -> str | None:
    if value is None or value is True:
        return None
    if isinstance(value, list | tuple):
        return JOINT.join(map(str, value))
    return "false" if value is False else str(value)


# ---------------------------------------------------------------------------------------------- processes


Names: TypeAlias = str | Sequence[str]
Users: TypeAlias = str | int | Sequence[str | int]


def filters(
    pid: object,
    pids: Sequence[int],
    *,
    comm: Names = (),
    uid: Users = (),
    cgroup: Names = (),
    container: Names = (),
    netns: str | None = None,
    own_threads: bool = True,
) -> ProcessFilters:
    """The process filters that the arguments select.

    Raises:
        TraceError: a value names something that does not exist.
        TypeError: a process id is not an integer.
    """
    if pid is not None and pids:
        raise TraceError("pid and pids cannot be used together")
    if isinstance(pids, int | str):
        raise TypeError(f"pids must be a sequence of ints, not {type(pids).__name__}; pid takes one")
    numbers = tuple(pids) if pid is None else (pid,)
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(f"pid must be an int, not {type(number).__name__}")
    users = (uid,) if isinstance(uid, str | int) else uid
    return ProcessFilters(
        tuple(dict.fromkeys(number for number in numbers if isinstance(number, int))),
        selected.uids(str(user) for user in users),
        selected.comms(_names(comm), "comm"),
        selected.cgroups(_names(cgroup), _names(container)),
        () if netns is None else (selected.namespace(netns),),
        without_own_threads=not own_threads,
    )


def _names(names: Names) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names
