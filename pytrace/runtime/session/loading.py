"""Loading of a run's programs, and what they need of processes: unwind tables, interpreters, mappings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pytrace.base import progress
from pytrace.base.interruption import EndRequests
from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import CompiledScript, Manifest
from pytrace.core.options.run_options import RunOptions
from pytrace.core.probes.kinds import known_kind
from pytrace.runtime.load.loaded_script import LOG_HINT, LoadedScript, LoadError
from pytrace.runtime.load.loader import LoadOptions, load
from pytrace.runtime.machine import privileges
from pytrace.runtime.output.ring import RingReader
from pytrace.runtime.session.resources import Command, Notices
from pytrace.runtime.session.services.processes import NothingUnwound, Processes
from pytrace.runtime.symbols.lazy import LazySymbols

if TYPE_CHECKING:
    from pytrace.runtime.python.functions import PythonFunctions
    from pytrace.runtime.python.processes import Walker
    from pytrace.runtime.session.services.memory_watch import MemoryWatch
    from pytrace.runtime.symbols.symbolizer import Symbolizer
    from pytrace.runtime.unwind.unwinder import Unwound


def load_run(
    script: CompiledScript,
    options: RunOptions,
    traced: Command,
    lazy: LazySymbols,
    functions: PythonFunctions | None,
    notices: Notices,
    memory: MemoryWatch | None,
    stack: ExitStack,
) -> tuple[LoadedScript, Processes]:
    """Load the programs, and begin to follow processes; *traced* is the command, which is held."""
    manifest = script.manifest
    if manifest.python is not None and manifest.python.calls:
        run_to_interpreter(traced, strict=manifest.config.missing_probes == "error")
    unwinding = unwound(manifest, options, traced)
    loaded = programs(script, options, unwinding, memory, stack)
    loaded.fill_session_data(options, traced.pid)
    loaded.limit_rates(options.rates)
    stack.callback(lazy.close)
    ring = manifest.unwind.requests if manifest.unwind is not None else ""
    requests = RingReader(loaded.map_fd(ring), stack) if ring else None
    tables = unwinding.start(loaded, stack, notices.warn, notices.detail)
    if functions is not None:
        # Before mappings are followed: an execve that is noticed later would take away what was found for its process.
        traced.stop_after_exec()
    follow_mappings(manifest, options, traced.pid, lazy, loaded, notices.warn)
    python = None if functions is None else walker(manifest, options, traced, functions, loaded, stack, notices.warn)
    return loaded, Processes(lazy, tables, requests, python)


def run_to_interpreter(traced: Command, *, strict: bool) -> None:
    """Let the command, which may be a chain of wrappers (env, a version manager), run until it has executed a CPython.

    Functions are probed in the interpreter's file: a library, which the dynamic loader has to map first.

    Raises:
        TraceError: it has executed none, as it has ended or does something else, and *strict* is set.
    """
    if traced.pid is None:
        return
    from pytrace.runtime.python.processes import runs_python
    from pytrace.runtime.session.child import EXEC_PATIENCE

    traced.stop_after_exec()
    if runs_python(traced.pid):
        return
    for _ in range(_MOST_PROGRAMS):
        if traced.run_to_entry() and runs_python(traced.pid):
            return
        if not traced.run_to_next_program():
            break
    if not strict:
        return
    if traced.poll() is None:
        from pytrace.runtime.machine import procfs

        text = f"process {traced.pid} ({procfs.executable(traced.pid)}) has executed none in {EXEC_PATIENCE:g} s"
    else:
        text = f"process {traced.pid} has ended, and executed none"
    hints = (
        "give the interpreter itself, or its process with -p",
        "processes that the command forks are not waited for",
    )
    raise TraceError(f"the command runs no CPython that is known: {text}", hints=hints)


_MOST_PROGRAMS = 32
"""Programs that a command executes one after another, in one process, before its interpreter."""


def raise_limits(manifest: Manifest) -> None:
    """Let this process open as many files as the probes and maps of a script need."""
    targets = sum(len(program.targets) for program in manifest.programs)
    privileges.raise_limits(privileges.descriptors_needed(targets, len(manifest.programs), len(manifest.maps)))


def unwound(manifest: Manifest, options: RunOptions, traced: Command) -> Unwound | NothingUnwound:
    """The processes whose unwind tables are read at the start; the command is held after its exec for that."""
    if manifest.unwind is None:
        return NothingUnwound()
    from pytrace.runtime.unwind.unwinder import Unwound

    traced.stop_after_exec()
    pids = {*options.filters.pids, *options.dwarf_pids}
    return Unwound(manifest, pids if traced.pid is None else pids | {traced.pid})


def python_functions(manifest: Manifest) -> PythonFunctions | None:
    """Names of the functions in Python stacks; None for a script without them."""
    if manifest.python is None:
        return None
    from pytrace.runtime.python.functions import PythonFunctions

    return PythonFunctions(lines=manifest.config.show_debug_info)


def walker(
    manifest: Manifest,
    options: RunOptions,
    traced: Command,
    functions: PythonFunctions,
    loaded: LoadedScript,
    stack: ExitStack,
    warn: Callable[[str], None],
) -> Walker:
    """Keeps where the interpreters of the processes are whose Python stacks are walked, as of now.

    Without -p and -c these are all; the command is held after its exec.
    """
    from pytrace.runtime.python.processes import WalkedProcesses

    pids = set(options.filters.pids) if traced.pid is None else {traced.pid, *options.filters.pids}
    walked = WalkedProcesses(manifest, None if follows_all(options, traced.pid) else pids, functions)
    return walked.start(loaded, stack, warn)


def memory_watch(manifest: Manifest, options: RunOptions, *, embedded: bool) -> MemoryWatch | None:
    """The limit of memory; a script that has no probes and no keyed maps does not need one."""
    wanted = options.max_memory or manifest.config.max_memory
    small = all(known_kind(program.kind).special for program in manifest.programs)
    if small and not wanted and all(spec.key is None for spec in manifest.maps):
        return None
    from pytrace.runtime.session.services.memory_watch import MemoryWatch

    return MemoryWatch(wanted, manifest, embedded=embedded)


def programs(
    script: CompiledScript,
    options: RunOptions,
    unwind: Unwound | NothingUnwound,
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
        disabled=options.disabled,
        entries=unwind.entries(),
        admit=None if memory is None else memory.admit,
    )
    try:
        with progress.step("loading programs into the kernel"):
            return load(script, options=load_options, stack=stack)
    except LoadError as error:
        if options.verbose and error.log and "verifier" not in options.debug:
            _show_refusal(error)
        raise


def follow_mappings(
    manifest: Manifest,
    options: RunOptions,
    command: int | None,
    lazy: LazySymbols,
    loaded: LoadedScript,
    warn: Callable[[str], None],
) -> None:
    """Follow the mappings of processes, if the script shows user addresses: processes may end before the output."""
    unwinds = (manifest.unwind is not None and manifest.unwind.selected) or manifest.python is not None
    if not unwinds and not manifest.shows_user_addresses():
        return
    pid = options.filters.pid if command is None else command
    if follows_all(options, command):
        pid = None
    pids = None if pid is None else [pid, *options.filters.pids[1:], *options.dwarf_pids]
    maps = manifest.images
    images = None if maps is None else (loaded.map_fd(maps.images), loaded.map_fd(maps.reports))
    try:
        lazy.start(pids, prompt=unwinds, images=images)
    except TraceError as error:
        warn(error.message)


def follows_all(options: RunOptions, command: int | None) -> bool:
    """Whether any process may be traced: without -p and -c, and as a followed one or that of --exec-wait."""
    pid = options.filters.pid if command is None else command
    return pid is None or (options.follow and command is None) or bool(options.filters.exec_wait)


def symbols(
    config: Config, options: RunOptions, requests: EndRequests, python: PythonFunctions | None
) -> LazySymbols:
    """The symbolizer that the config asks for; after requests to end the run it gives up source lines early."""

    def make() -> Symbolizer:
        from pytrace.runtime.symbols.symbolizer import Symbolizer

        return Symbolizer(
            cache=config.cache_user_symbols,
            demangled=config.cpp_demangle,
            short=config.short_generics,
            lines=config.show_debug_info,
            fetched=config.debuginfod_lines,
            debuginfo=options.debuginfo,
            places=options.places,
            vmlinux=os.environ.get("PYTRACE_VMLINUX", os.environ.get("BPFTRACE_VMLINUX", "")),
            requests=requests,
            python=python,
        )

    return LazySymbols(make)


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
