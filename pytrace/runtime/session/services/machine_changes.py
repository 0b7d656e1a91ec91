"""Changes of the machine while a run lasts: CPUs, its clock, a suspension, and modules and files that are probed.

The kernel ends perf events of a CPU that goes offline, and does not begin them again. Their probes are attached again,
or what they do not observe is reported. A file that is replaced is another one for the kernel, and kprobes of a module
end with it (other probes keep it loaded), which is reported too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, TextIO

from pytrace.core.manifest import Manifest
from pytrace.core.probes.targets import FileTarget, KernelFunctionTarget
from pytrace.runtime.machine import perf, procfs, syscalls
from pytrace.runtime.session.services.service import Service

if TYPE_CHECKING:
    from pytrace.runtime.session.consumer import EventLoop

MOVES_APART = 0.025
"""Minimum seconds between two moves of sampling clocks; those that become due meanwhile are moved together."""


class ClockProbes(Protocol):
    """Attached probes (:class:`pytrace.runtime.session.probes.Probes`)."""

    def move_clocks(self, now: int) -> int:
        """Move the periods of clocks that are due. Returns when the next is, in monotonic nanoseconds."""


class SamplingClocks(Service):
    """Moves the periods of the clocks that sample CPUs (:class:`pytrace.runtime.attach.opened.SamplingClock`)."""

    def __init__(self, probes: ClockProbes) -> None:
        self._probes = probes
        self._next = float("inf")

    def begin(self) -> None:
        """The phases of the clocks are random by now, and their next periods are due."""
        self._move()

    def pause(self, longest: float) -> float:
        """Seconds until the next move, at most *longest*."""
        return max(0.0, min(longest, self._next - time.monotonic()))

    def work(self, _handled: int) -> None:
        """Move the clocks that are due."""
        if time.monotonic() >= self._next:
            self._move()

    def stop(self) -> None:
        """The run ends."""
        self._next = float("inf")

    def _move(self) -> None:
        due = self._probes.move_clocks(time.monotonic_ns()) / 1e9
        self._next = max(due, time.monotonic() + MOVES_APART)


LOOK_EVERY = 1.0
"""Seconds between two looks at the clocks."""
FILES_EVERY = 5.0
"""Seconds between two looks at the probed files."""
_AGAIN = "start pytrace again to trace the new one"
STEP = 500_000_000
"""Nanoseconds: a smaller change within a second is that of a clock that is corrected slowly, or of two readings."""


class Warn(Protocol):
    """Prints a warning (:meth:`pytrace.runtime.session.resources.Notices.warn`)."""

    def __call__(self, text: str, hints: tuple[str, ...] = ()) -> None:
        """Print *text*, and *hints* after it."""


class Probes(Protocol):
    """Attached probes (:class:`pytrace.runtime.session.probes.Probes`)."""

    def renew(self, cpu: int, *, online: bool) -> tuple[list[str], list[str]]:
        """Attach probes whose events belong to CPUs after a CPU came or went. Returns them, and what failed."""


class Symbols(Protocol):
    """Followed mappings (:class:`pytrace.runtime.symbols.lazy.LazySymbols`)."""

    def renew(self, cpu: int) -> list[int]:
        """Follow mappings on a CPU that came online. Returns the new descriptors."""


class MachineChanges(Service):
    """Looks for changes, and reports them by *warn*.

    *pids* are the processes of ``-p``.
    """

    def __init__(
        self,
        probes: Probes,
        symbols: Symbols,
        loop: EventLoop,
        manifest: Manifest,
        pids: Iterable[int],
        warn: Warn,
        stack: ExitStack,
    ) -> None:
        self._probes = probes
        self._symbols = symbols
        self._loop = loop
        self._pids = tuple(pids)
        self._warn = warn
        self._events = _subscribed(stack)
        self._online: set[int] = set()
        self._files: dict[str, tuple[int, ...]] = dict.fromkeys(probed_files(manifest), ())
        self._functions = probed_functions(manifest)
        self._unloaded: set[str] = set()
        self._kernel_symbols = _opened_symbols(stack) if self._functions else None
        self._clocks = (0, 0)
        self._next = self._next_files = float("inf")

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptor of the kernel's events."""
        return () if self._events is None else (self._events,)

    def attached(self) -> None:
        """Remember the state in which the probes were attached."""
        self._files = {path: _identity(path) for path in self._files}
        for pid in self._pids if self._files else ():
            for path in sorted(_outdated(pid, self._files)):
                hint = "probes attach to the file that has the name now; restart the process"
                self._warn(f"process {pid} runs an older {path}, which was replaced or removed", (hint,))
        self._online = set(perf.online_cpus())
        self._clocks = _clocks()
        self._next, self._next_files = time.monotonic() + LOOK_EVERY, time.monotonic() + FILES_EVERY

    def woken(self, ready: list[int]) -> None:
        """Look at what has changed, when the kernel says so or it is time."""
        if self._events in ready:
            self._read_events()
        now = time.monotonic()
        if now >= self._next:
            self._next = now + LOOK_EVERY
            self._look_at_cpus()
            self._look_at_clocks()
        if now >= self._next_files:
            self._next_files = now + FILES_EVERY
            self._look_at_files()

    def stop(self) -> None:
        """Look for the last time."""
        self._look_at_clocks()
        self._look_at_files()

    # ---- CPUs

    def _read_events(self) -> None:
        assert self._events is not None
        try:
            cpus, modules = syscalls.read_device_events(self._events)
        except OSError:
            # There were more than the socket holds.
            self._renew("CPUs went offline and came back", perf.online_cpus())
            return
        for cpu, online in cpus:
            self._renew(f"CPU {cpu} {'came online' if online else 'went offline'}", [cpu], online=online)
        for module, loaded in modules:
            self._module_changed(module, loaded=loaded)

    def _look_at_cpus(self) -> None:
        """Without events, for example in a user namespace, CPUs are looked for."""
        if self._events is not None:
            return
        before, self._online = self._online, set(perf.online_cpus())
        for cpu in sorted(before ^ self._online):
            online = cpu in self._online
            self._renew(f"CPU {cpu} {'came online' if online else 'went offline'}", [cpu], online=online)

    def _renew(self, what: str, cpus: Iterable[int], *, online: bool = True) -> None:
        probes: dict[str, None] = {}
        failures: dict[str, None] = {}
        for cpu in cpus:
            renewed, failed = self._probes.renew(cpu, online=online)
            probes |= dict.fromkeys(renewed)
            failures |= dict.fromkeys(failed)
            for descriptor in self._symbols.renew(cpu) if online else ():
                self._loop.watch(descriptor)
        if probes:
            first, *others = probes
            named = f"{first} and {len(others)} more were" if others else f"{first} was"
            self._warn(f"{what}: {named} attached again")
        for failure in failures:
            self._warn(f"{what}: {failure}")

    # ---- modules

    def _module_changed(self, module: str, *, loaded: bool) -> None:
        if loaded:
            if module in self._unloaded:
                self._warn(f"module {module} was loaded again, but its probes are not", (_AGAIN,))
            return
        if self._kernel_symbols is None:
            return
        gone = self._functions - _known(self._functions, self._kernel_symbols)
        self._functions -= gone
        if gone:
            self._unloaded.add(module)
            first, *others = sorted(gone)
            named = f"{first} and {len(others)} more" if others else first
            self._warn(f"module {module} was unloaded: kprobes of {named} ended with it")

    # ---- clocks

    def _look_at_clocks(self) -> None:
        before, self._clocks = self._clocks, _clocks()
        wall, asleep = (now - then for now, then in zip(self._clocks, before, strict=True))
        if asleep > STEP:
            what = f"the machine was suspended for {asleep / 1e9:.1f} s"
            self._warn(what)
            # All CPUs but one went offline, without events.
            self._renew(what, perf.online_cpus())
        if abs(wall) > STEP:
            way = "forward" if wall > 0 else "back"
            hint = "wall times of this run are those of the clock at its start"
            self._warn(f"the clock was set {way} by {abs(wall) / 1e9:.1f} s", (hint,))

    # ---- files

    def _look_at_files(self) -> None:
        for path, before in list(self._files.items()):
            now = _identity(path)
            if now == before or not before:
                continue
            del self._files[path]
            if now[:2] == before[:2]:
                text = f"{path} was overwritten while it was traced: probes in it may be at wrong instructions"
            else:
                what = "replaced" if now else "removed"
                text = f"{path} was {what} while it was traced: only the old file is observed"
            self._warn(text, (_AGAIN,) if now else ())


def probed_files(manifest: Manifest) -> set[str]:
    """Paths of files with user probes; not those of other mount namespaces, which end with their processes."""
    targets = (target.place for program in manifest.programs for target in program.targets)
    return {place.path for place in targets if isinstance(place, FileTarget) and not place.path.startswith("/proc/")}


def probed_functions(manifest: Manifest) -> set[str]:
    """Names of kernel functions with kprobes, which hold no module."""
    targets = (target.place for program in manifest.programs for target in program.targets)
    return {place.function for place in targets if isinstance(place, KernelFunctionTarget) and place.function}


def _opened_symbols(stack: ExitStack) -> TextIO | None:
    """The kernel's symbols: opened early, as a run that is confined opens no more files. None where they are hidden."""
    try:
        return stack.enter_context(open("/proc/kallsyms", encoding="ascii", errors="replace"))
    except OSError:
        return None


def _known(names: set[str], symbols: TextIO) -> set[str]:
    """Those of *names* that the kernel and its loaded modules have now."""
    symbols.seek(0)
    return names.intersection(line.split(maxsplit=3)[2] for line in symbols)


def _subscribed(stack: ExitStack) -> int | None:
    try:
        descriptor = syscalls.subscribe_device_events()
    except OSError:
        # Without them the list of CPUs is read.
        return None
    stack.callback(os.close, descriptor)
    return descriptor


def _identity(path: str) -> tuple[int, ...]:
    """Device, number, size and time of change of a file; nothing when there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _outdated(pid: int, files: Iterable[str]) -> set[str]:
    """Those of *files* of which a process has mapped a deleted one of the same name, and not the one of now."""
    if procfs.root_prefix(pid):
        return set()
    # A name may have what other functions take for the end of a line.
    rows = (line.split(maxsplit=5) for line in procfs.read_maps(pid).split(b"\n"))
    mapped = {row[5] for row in rows if len(row) == 6}
    names = {path: os.fsencode(os.path.realpath(path)) for path in files}
    return {path for path, name in names.items() if name + b" (deleted)" in mapped and name not in mapped}


def _clocks() -> tuple[int, int]:
    """Wall time and boot time, in nanoseconds: minus boot time, and minus the time without suspensions."""
    boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.time_ns() - boot, boot - time.monotonic_ns()
