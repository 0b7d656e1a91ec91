"""The resources of a run, opened in order by :func:`pytrace.runtime.session.opening.open_run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from pytrace.base.interruption import EndRequests
from pytrace.core.manifest import ProgramSpec
from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.output.ring import RingReader
from pytrace.runtime.output.streams import Output
from pytrace.runtime.session.consumer import Consumer, EventLoop
from pytrace.runtime.session.probes import Probes
from pytrace.runtime.session.services.losses import Losses
from pytrace.runtime.session.services.processes import Processes
from pytrace.runtime.session.services.service import Service
from pytrace.runtime.session.signals import SignalSource
from pytrace.runtime.session.snapshots import Snapshots
from pytrace.runtime.symbols.lazy import LazySymbols

if TYPE_CHECKING:
    from pytrace.runtime.output.handlers import Make
    from pytrace.runtime.session.child import Child


class Notices:
    """Notices and warnings on standard error, after the output before them."""

    def __init__(self, output: Output, options: RunOptions) -> None:
        self._output = output
        self._quiet = options.quiet
        self._verbose = options.verbose
        self._warnings = options.warnings

    def tell(self, text: str) -> None:
        """Print a notice, which ends its line itself, unless ``-q`` was given."""
        if not self._quiet:
            self._output.message(text)

    def detail(self, text: str) -> None:
        """Print a notice if ``-v`` was given."""
        if self._verbose:
            self.tell(text)

    def warn(self, text: str, hints: tuple[str, ...] = ()) -> None:
        """Print a warning, unless ``--no-warnings`` was given."""
        if self._warnings:
            self._output.message(f"WARNING: {text}\n" + "".join(f"HINT: {hint}\n" for hint in hints))


class NoCommand:
    """A run without ``-c``."""

    pid: None = None
    descriptors: tuple[int, ...] = ()
    had_children = False

    def stop_after_exec(self) -> None:
        """Do nothing."""

    def run_to_entry(self) -> bool:
        """Return False: there is no program."""
        return False

    def run_to_next_program(self) -> bool:
        """Return False: there is no program."""
        return False

    def release(self) -> None:
        """Do nothing."""

    def poll(self) -> int | None:
        """Return None: nothing has ended."""
        return None


Command: TypeAlias = "Child | NoCommand"
"""The process of ``-c``."""


class Embedding(msgspec.Struct, frozen=True):
    """Replacements of standard output, of printing and of signals for a run inside another program."""

    output: Output
    handlers: Callable[[LazySymbols], Mapping[str, Make]]
    """Creates the handlers of each kind of event; the argument resolves addresses."""
    signals: SignalSource
    confined: bool = False
    """Whether the program gives up its privileges once everything is attached, as a run of the command does."""


class Resources(msgspec.Struct, kw_only=True, eq=False):
    """The parts of one run. An :class:`ExitStack` closes what they have opened, the last one first."""

    options: RunOptions
    embedded: bool
    """Whether another program shows the results: then maps are not printed."""
    requests: EndRequests
    signals: SignalSource
    output: Output
    notices: Notices
    command: Command
    loaded: LoadedScript
    symbols: LazySymbols
    renderer: Renderer
    ring: RingReader
    loop: EventLoop
    consumer: Consumer
    processes: Processes
    probes: Probes
    losses: Losses
    snapshots: Snapshots
    services: list[Service] = msgspec.field(default_factory=list)
    """In the order in which each phase of the run calls them."""

    def programs(self, kind: str) -> list[ProgramSpec]:
        """The script's programs of one probe kind, in source order."""
        return [program for program in self.loaded.manifest.programs if program.kind == kind and not program.service]

    def kinds(self) -> set[str]:
        """Probe kinds of the script's programs."""
        return {program.kind for program in self.loaded.manifest.programs if not program.service}
