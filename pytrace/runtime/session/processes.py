"""Processes of a run: what is known of those that are traced, as their programs need it and for names of addresses.

Mappings are followed, for names; unwind tables, for ``dw_ustack``; and interpreters of Python, for ``pystack``.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pytrace.base.interruption import EndRequests
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest
from pytrace.core.options import Config, RunOptions
from pytrace.render.events import each
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.output.ring import Handlers, RingReader
from pytrace.runtime.session.services import Service
from pytrace.runtime.stacks.lazy_symbols import LazySymbols

if TYPE_CHECKING:
    from pytrace.runtime.session.session import Command, Notices
    from pytrace.runtime.stacks.python_processes import PythonFunctions, Walker
    from pytrace.runtime.stacks.symbolizer import Symbolizer
    from pytrace.runtime.stacks.unwinder import Unwinder, Unwound

_REQUEST = struct.Struct("=8xQQ")
"""Process and address space after the head of an event (``codegen.walkers.unwinding``)."""
_TABLES_TURN = 0.005
"""Seconds in which unwind tables are read before events are handled again."""


class Processes(Service):
    """Follows mappings and unwind tables of traced processes, and the interpreters of Python in them.

    *requests* is the ring through which programs ask for unwind tables; *uncalled* tells at the end which Python
    functions of probes were not called.
    """

    def __init__(
        self,
        symbols: LazySymbols,
        unwinding: Unwinder | None,
        requests: RingReader | None,
        python: Walker | None = None,
        uncalled: Callable[[], None] = lambda: None,
    ) -> None:
        self._symbols = symbols
        self._unwinding = unwinding
        self._requests = requests
        self._python = python
        self._uncalled = uncalled
        self._handlers = Handlers((each(self._request),))

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors of the kernel's records of mappings, and of the ring of requests."""
        return (*self._symbols.descriptors, *(() if self._requests is None else (self._requests.fileno(),)))

    def _request(self, data: bytes, offset: int) -> None:
        """A program has met a process whose tables it lacks."""
        if self._unwinding is not None:
            self._unwinding.request(*_REQUEST.unpack_from(data, offset))

    def add(self, pid: int) -> None:
        """Read the unwind tables of a process, if the script unwinds stacks; again when its mappings have changed."""
        if self._unwinding is not None:
            self._unwinding.add(pid)
        if self._python is not None:
            self._python.add(pid)

    def attached(self) -> None:
        """From now on programs report what processes execute and unmap."""
        self._symbols.attached()

    def woken(self, _ready: list[int]) -> None:
        """Read changes of processes before waiting events, which have addresses of theirs."""
        self._symbols.poll()
        changes = self._symbols.changes()
        if self._python is not None:
            self._python.update(changes)  # first: tables may take seconds
        if self._unwinding is not None:
            self._unwinding.update(changes)
        if self._requests is not None:
            self._requests.drain(self._handlers)

    def pause(self, longest: float) -> float:
        """Do not wait while tables wait to be read."""
        return 0.0 if self._unwinding is not None and self._unwinding.waiting else self._symbols.pause(longest)

    def report(self) -> None:
        """Name Python functions that were not called, as a name with a mistake is called never."""
        self._uncalled()

    def work(self, _handled: int) -> None:
        """Read some of the tables that programs asked for."""
        if self._unwinding is not None and self._unwinding.waiting:
            self._unwinding.work(time.monotonic() + _TABLES_TURN)


def follow(
    manifest: Manifest,
    options: RunOptions,
    traced: Command,
    symbols: LazySymbols,
    functions: PythonFunctions | None,
    unwinding: Unwound | None,
    loaded: LoadedScript,
    notices: Notices,
    stack: ExitStack,
) -> Processes:
    """Begin to follow processes as far as the script needs it; *traced* is the command, which is held."""
    stack.callback(symbols.close)
    ring = manifest.unwind.requests if manifest.unwind is not None else ""
    requests = RingReader(loaded.map_fd(ring), stack) if ring else None
    tables = None if unwinding is None else unwinding.start(loaded, stack, notices.warn, notices.detail)
    if functions is not None:
        # Before mappings are followed: an execve that is noticed later would take away what was found for its process.
        traced.stop_after_exec()
    _follow_mappings(manifest, options, traced.pid, symbols, loaded, notices.warn)
    python = None
    if functions is not None and manifest.python is not None:
        # Without -p and -c these are all; the command is held after its exec.
        pids = set(options.filters.pids) if traced.pid is None else {traced.pid, *options.filters.pids}
        walked = None if _follows_all(options, traced.pid) else pids
        python = functions.walk(manifest.python, walked, loaded, stack, notices.warn)

    def uncalled() -> None:
        if functions is not None and manifest.python is not None and manifest.python.choices:
            for text in functions.uncalled(loaded.map_fd(manifest.python.choices), manifest.python.targets):
                notices.tell(f"{text}\n")

    return Processes(symbols, tables, requests, python, uncalled)


def _follow_mappings(
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
    if _follows_all(options, command):
        pid = None
    pids = None if pid is None else [pid, *options.filters.pids[1:], *options.dwarf_pids]
    maps = manifest.images
    images = None if maps is None else (loaded.map_fd(maps.images), loaded.map_fd(maps.reports))
    try:
        lazy.start(pids, prompt=unwinds, images=images)
    except TraceError as error:
        warn(error.message)


def _follows_all(options: RunOptions, command: int | None) -> bool:
    """Whether any process may be traced: without -p and -c, and as a followed one or that of --exec-wait."""
    pid = options.filters.pid if command is None else command
    return pid is None or (options.follow and command is None) or bool(options.filters.exec_wait)


def unwound(manifest: Manifest, options: RunOptions, traced: Command) -> Unwound | None:
    """The processes whose unwind tables are read at the start; the command is held after its exec for that.

    None for a script that does not unwind by tables.
    """
    if manifest.unwind is None:
        return None
    from pytrace.runtime.stacks.unwinder import Unwound  # stacks by tables

    traced.stop_after_exec()
    pids = {*options.filters.pids, *options.dwarf_pids}
    return Unwound(manifest, pids if traced.pid is None else pids | {traced.pid})


def python_functions(manifest: Manifest) -> PythonFunctions | None:
    """Names of the functions in Python stacks; None for a script without them."""
    if manifest.python is None:
        return None
    from pytrace.runtime.stacks.python_processes import PythonFunctions  # stacks of Python

    return PythonFunctions(lines=manifest.config.show_debug_info)


def symbols(
    config: Config, options: RunOptions, requests: EndRequests, python: PythonFunctions | None
) -> LazySymbols:
    """The symbolizer that the config asks for; after requests to end the run it gives up source lines early."""

    def make() -> Symbolizer:
        from pytrace.runtime.stacks.symbolizer import Symbolizer  # names of addresses

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
