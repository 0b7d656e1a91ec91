"""Services: the tasks of a run beside the handling of events, called at each phase of the run; and those of every run.

Every run counts what is lost. The command notifies systemd and test benches, starts the garbage collector, and imports
what the end of a long run needs.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import PrintedMap
from pytrace.core.manifest import CALL_COUNTS, HITS, Counters, Manifest
from pytrace.core.options import RunOptions
from pytrace.core.probe_kinds import INTERVAL, PROFILE, known_kind
from pytrace.core.types import Hist, KSym, LHist, Stack, USym
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.output import messages
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.output.streams import Output

if TYPE_CHECKING:
    import socket

    from pytrace.runtime.session.probes import Probes
    from pytrace.runtime.session.session import Consumer


class EndOfRun(msgspec.Struct):
    """Decisions about the end of a run, which services change in :meth:`Service.finish`."""

    print_maps: bool
    """Whether the maps are printed."""
    found: list[str] = msgspec.field(default_factory=list)
    """Lines on what pictures that were written show, reported before their files."""
    written: list[str] = msgspec.field(default_factory=list)
    """Files that were written in place of output, each with its size, reported unless ``-q`` says not to."""
    errors: list[str] = msgspec.field(default_factory=list)
    """Errors, each a sentence, that are reported after everything else."""


class Service:
    """A service of a run, called by the thread that handles events. Each method is a phase of the run."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that end a wait for events when they become readable; asked once, after :meth:`begin`."""
        return ()

    @property
    def over(self) -> bool:
        """Whether the run is to end."""
        return False

    def attached(self) -> None:
        """All probes are attached; a dry run ends here."""

    def begin(self) -> None:
        """The traced command runs, and events are waited for from now on."""

    def pause(self, longest: float) -> float:
        """Seconds to wait for events, at most *longest*."""
        return longest

    def woken(self, ready: list[int]) -> None:
        """A wait has ended, *ready* are the readable descriptors; events have not been handled yet."""

    def work(self, handled: int) -> None:
        """Events have been handled, *handled* in number."""

    def exited(self) -> None:
        """The script called ``exit()``: what runs beside the run's thread ends, as its calls are still traced."""

    def stop(self) -> None:
        """The run ends; probes are still attached."""

    def finish(self, end: EndOfRun) -> None:
        """All events have been handled, and maps are about to be printed."""

    def report(self) -> None:
        """The run is over, and all of its output and losses have been printed."""

    def break_off(self) -> None:
        """The user does not wait for the end of the run: nothing more is printed or saved."""


# ---------------------------------------------------------------------------------------------- losses

Key = tuple[str, int]
"""Kind and subject of a counter, as in :attr:`pytrace.core.manifest.Counters.names`."""


class CounterReader:
    """Reads the counters of one loaded script, if it has any."""

    def __init__(self, loaded: LoadedScript) -> None:
        counters = loaded.manifest.counters
        self._layout: Counters | None = counters if counters is not None and counters.names else None
        self._memory = loaded.section(self._layout.section) if self._layout is not None else memoryview(b"")

    def totals(self) -> dict[Key, int]:
        """Nonzero counters, summed over the CPUs, in the manifest's order."""
        layout = self._layout
        if layout is None:
            return {}
        row = struct.Struct(f"={len(layout.names)}Q")
        step = max(1, layout.stride)
        starts = range(layout.offset, layout.offset + layout.copies * step, step)
        sums = map(sum, zip(*(row.unpack_from(self._memory, start) for start in starts), strict=True))
        # What is subtracted on another CPU than it was added on leaves a negative number there.
        return {key: value & _WORD for key, value in zip(layout.names, sums, strict=True) if value & _WORD}

    def losses(self) -> dict[Key, int]:
        """:meth:`totals` without what is no failure."""
        return {key: value for key, value in self.totals().items() if key[0] not in _NO_FAILURES}


WAITING = "waiting"
"""Kind of the counters of programs that wait for memory: how many do so now, which is no loss."""

STACKS = {
    "stack_early": "followed frame pointers, before the unwind tables of their process were read",
    "stack_end": "were truncated at code without unwind tables and frame pointers",
}
"""Kinds of counters of a ``ustack`` that chooses how it unwinds, which are told with ``-v``."""

_NO_FAILURES = (HITS, WAITING, *CALL_COUNTS, *STACKS)
_WORD = (1 << 64) - 1


REPORT_EVERY = 1.0
"""Seconds between two readings of the counters of lost events."""


Gap = tuple[int, int]
"""A time in which programs returned at once: wall time and duration, in nanoseconds."""

SKIPPED = "skipped"
"""Counter of hits that the watchdog of programs skipped, by program."""


class NoHeartbeat(Service):
    """The heartbeat of a run whose programs have no watchdog, or one that is switched off."""

    thread = 0
    """The id of the thread that beats; 0 for none."""

    def attaching(self) -> None:
        """A target is about to be attached, or was attached."""

    def gaps(self) -> list[Gap]:
        """Times in which programs returned at once, since the last call."""
        return []


class Losses(Service):
    """Counts of losses and failures by kind and subject; those that are new are reported while the run goes on."""

    def __init__(
        self,
        loaded: LoadedScript,
        probes: Probes,
        consumer: Consumer,
        renderer: Renderer,
        output: Output,
        heartbeat: NoHeartbeat,
        tell: Callable[[str], None],
    ) -> None:
        self._counters = CounterReader(loaded)
        self._manifest = loaded.manifest
        self._probes = probes
        self._consumer = consumer
        self._renderer = renderer
        self._output = output
        self._heartbeat = heartbeat
        self._tell = tell
        self._next = 0.0
        self._skipped: dict[Key, int] = {}
        self.gaps: list[Gap] = []
        """Times in which programs skipped hits, as far as they have been reported."""

    def traced(self) -> dict[Key, int]:
        """Losses so far, as counted by programs and the kernel."""
        return {**self._counters.losses(), **self._probes.missed()}

    def waiting(self, *, user: bool) -> list[str]:
        """Names of the programs that wait for memory in a traced thread now: of user probes, or of others."""
        programs = self._manifest.programs
        return [
            messages.subject_name(self._manifest, "lost", subject)
            for kind, subject in self._counters.totals()
            if kind == WAITING and known_kind(programs[subject].kind).user == user
        ]

    def totals(self) -> dict[Key, int]:
        """Losses so far, unprinted events included."""
        return {**self.traced(), **self._consumer.totals()}

    def by_kind(self) -> dict[str, dict[str, int]]:
        """Losses so far: counts by kind, and by the name of the subject."""
        return messages.by_kind(self._manifest, self.totals())

    def woken(self, _ready: list[int]) -> None:
        """Report new losses, once in :data:`REPORT_EVERY` seconds."""
        now = time.monotonic()
        # A message follows the output before it; do not wait for a slow reader here.
        if now >= self._next and self._output.advance():
            self._next = now + REPORT_EVERY
            totals = self.report_gaps()
            # A call that is under way may still return.
            self._renderer.losses({key: count for key, count in totals.items() if key[0] != "unfinished"})

    def report_gaps(self) -> dict[Key, int]:
        """Report the times, since the last call, in which programs skipped hits. Returns the losses so far."""
        # A gap that is known is over, so that all that was skipped in it has been counted. Counters are read until no
        # gap began and ended meanwhile, whose hits would be told with an earlier one, and itself not at all.
        gaps = self._heartbeat.gaps()
        totals = self.traced()
        while more := self._heartbeat.gaps():
            gaps += more
            totals = self.traced()
        skipped = {key: count for key, count in totals.items() if key[0] == SKIPPED}
        fresh = {key: count - self._skipped.get(key, 0) for key, count in skipped.items()}
        if gaps and any(fresh.values()):
            self._skipped = skipped
            self.gaps += gaps
            self._renderer.gaps(gaps, fresh)
        return totals

    def report(self) -> None:
        """Tell how user stacks were unwound."""
        counts: dict[str, int] = {}
        for (kind, _), count in self._counters.totals().items():
            counts[kind] = counts.get(kind, 0) + count
        for kind, text in STACKS.items():
            if counts.get(kind):
                self._tell(f"{counts[kind]} user stacks {text}\n")

    def report_all(self) -> None:
        """Report all losses, at the end of ``--test`` and ``--bench``."""
        totals = self.traced()
        self._renderer.losses(totals, ended=True)
        self._renderer.summary(totals)


# ---------------------------------------------------------------------------------------------- the own process

ATTACHED_HOOKS = ("__PYTRACE_NOTIFY_PROBES_ATTACHED", "__BPFTRACE_NOTIFY_PROBES_ATTACHED")
"""Environment variables that make the tracer print the variable's own name once everything is attached."""


class OwnProcess(Service):
    """Notices and garbage collection of the command; programs that embed a session see to their own."""

    def __init__(self) -> None:
        self._manager: socket.socket | None = None

    def attached(self) -> None:
        """Notify test benches and the service manager that tracing has begun."""
        attached_hooks()
        self._manager = _service_manager()
        notify(self._manager, "READY=1")

    def begin(self) -> None:
        """Enable the garbage collector, which is off during a start. Objects allocated so far are long-lived."""
        if not gc.isenabled():
            gc.freeze()
            gc.enable()

    def stop(self) -> None:
        """Notify the service manager that tracing ends."""
        notify(self._manager, "STOPPING=1")
        if self._manager is not None:
            self._manager.close()
            self._manager = None


MODULES_AFTER = 1.0
"""Seconds after which a run imports ahead: what ends earlier is not delayed by that."""
_REST = 0.002
"""Seconds between two imports, which take some milliseconds each: events are handled meanwhile."""


class OwnModules(Service):
    """Imports modules and libraries that the run may need until its end ahead: an upgrade may remove their files.

    A start imports what it needs at once. While a tracer runs for hours, the package may be upgraded or removed. The
    end of the run, which prints and saves what was traced, must not depend on files that are gone, or of another
    version.
    """

    def __init__(self, manifest: Manifest, options: RunOptions, *, embedded: bool) -> None:
        self._run = (manifest, options, embedded)
        self._next = float("inf")
        self._steps: Iterator[None] | None = None

    def begin(self) -> None:
        """The time of the run begins."""
        self._next = time.monotonic() + MODULES_AFTER

    def pause(self, longest: float) -> float:
        """Seconds until the next import, at most *longest*."""
        return max(0.0, min(longest, self._next - time.monotonic()))

    def work(self, _handled: int) -> None:
        """Import one module, if its time has come."""
        if time.monotonic() < self._next:
            return
        self._steps = self._steps or import_steps(late_modules(*self._run))
        over = next(self._steps, True)
        self._next = float("inf") if over else time.monotonic() + _REST


def _service_manager() -> socket.socket | None:
    """A socket to the service manager, if one waits for notices; open during the run, which may open none later.

    The protocol is one datagram for each to the socket that ``NOTIFY_SOCKET`` names; a leading ``@`` means the abstract
    name space (sd_notify(3)).
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return None
    if address.startswith("@"):
        address = "\0" + address[1:]
    import socket  # milliseconds, and only for services

    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        sender.connect(address)
    except OSError as error:
        sender.close()
        sys.stderr.write(f"WARNING: cannot notify systemd: {error.strerror}\n")
        return None
    return sender


def notify(manager: socket.socket | None, state: str) -> None:
    """Send *state* (``READY=1``, ``STOPPING=1``) to the service manager, if there is one."""
    if manager is None:
        return
    try:
        manager.send(state.encode())
    except OSError as error:
        sys.stderr.write(f"WARNING: cannot notify systemd: {error.strerror}\n")


def attached_hooks() -> None:
    """Print the names of the test hooks that are set."""
    for name in ATTACHED_HOOKS:
        if name in os.environ:
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()


# ---------------------------------------------------------------------------------------------- heat maps

HEAT_INTERVAL = 1.0
"""Seconds between two lines."""


class Heat(Service):
    """With ``--heat``: prints a line for each histogram of the script that its timers do not print.

    Raises:
        TraceError: the script has no histogram.
    """

    def __init__(self, manifest: Manifest, renderer: Renderer) -> None:
        if not histograms(manifest):
            hints = ("hist() and lhist() make one",)
            raise TraceError("--heat shows histograms, and the script has no map of them", hints=hints)
        self._names = unprinted(manifest)
        self._renderer = renderer
        self._next = float("inf")

    def begin(self) -> None:
        """The first interval begins."""
        if self._names:
            self._next = time.monotonic() + HEAT_INTERVAL

    def pause(self, longest: float) -> float:
        """Seconds until the next line, at most *longest*."""
        return max(0.0, min(longest, self._next - time.monotonic()))

    def work(self, _handled: int) -> None:
        """Print a line when it is time to."""
        now = time.monotonic()
        if now >= self._next:
            self._next += HEAT_INTERVAL * (1 + (now - self._next) // HEAT_INTERVAL)
            self._renderer.print_heat(self._names)

    def stop(self) -> None:
        """Print the rest of the last interval, so that the lines together have all that the map has."""
        self._renderer.print_heat(self._names, rest=True)


def histograms(manifest: Manifest) -> list[str]:
    """The maps of histograms."""
    return [spec.name for spec in manifest.maps if isinstance(spec.value, Hist | LHist)]


def unprinted(manifest: Manifest) -> list[str]:
    """Histograms that no timer of the script can print, so that they are printed at an interval of their own."""
    if not any(program.kind in (INTERVAL, PROFILE) for program in manifest.programs):
        return histograms(manifest)
    printed = {spec.static.map for spec in manifest.events if isinstance(spec.static, PrintedMap)}
    return [name for name in histograms(manifest) if name not in printed]


# ---------------------------------------------------------------------------------------------- imports ahead

_ERRORS = ("pytrace.base", "pytrace.core", "pytrace.core.types", "difflib")
_OUTPUT = (
    "pytrace.render", "pytrace.runtime.output", "pytrace.runtime.machine.host_names", "decimal", "fractions", "grp",
    "pwd", "socket",
)  # fmt: skip
_ADDRESSES = ("pytrace.core.stack_formats", "pytrace.runtime.stacks")
_USER_ADDRESSES = ("pytrace.runtime.binaries", "lzma", "zipfile", "zstandard")
_DEBUGINFO = ("http.client", "urllib.error", "urllib.request")
_SNAPSHOTS = (
    "pytrace.runtime.session.snapshots", "pytrace.results", "pytrace.results.formats",
    "shutil", "tempfile", "zstandard",
)  # fmt: skip
_TABLES = {"arrow": ("pyarrow",), "parquet": ("pyarrow", "pyarrow.parquet")}
"""Libraries of formats of snapshots."""


def late_modules(manifest: Manifest, options: RunOptions, embedded: bool) -> Iterator[str]:
    """Modules, and packages of which all modules are meant, in the order of their import."""
    yield from _ERRORS
    yield from _OUTPUT
    if any(isinstance(kind, (KSym, USym, Stack)) for kind in manifest.printed_types()):
        yield from _ADDRESSES
    if manifest.shows_user_addresses():
        yield from _USER_ADDRESSES
        yield from _DEBUGINFO if options.debuginfo else ()
    if options.saves or options.metrics is not None or options.live or embedded:
        yield from _SNAPSHOTS
        yield from _TABLES.get(options.format.partition(":")[0], ())


def import_steps(wanted: Iterable[str]) -> Iterator[None]:
    """Import modules, one in a step. One that is missing is reported by what needs it, if anything does."""
    for name in wanted:
        with suppress(ImportError):
            importlib.import_module(name)
        yield
        for module in _modules(name):
            with suppress(ImportError):
                importlib.import_module(module)
            yield


def _modules(name: str) -> Iterator[str]:
    """The modules of a package of pytrace."""
    package = sys.modules.get(name)
    folder = getattr(package, "__path__", None) if name.startswith("pytrace.") else None
    for item in pkgutil.iter_modules(folder) if folder else ():
        if not item.ispkg:
            yield f"{name}.{item.name}"
