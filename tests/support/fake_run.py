"""A run without a kernel: programs are functions that send events, which the real loop prints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, cast

import pytest

from pytrace.base.interruption import EndRequests
from pytrace.core.event_layout import Location
from pytrace.core.manifest import Manifest, ProgramSpec, SessionData, Target
from pytrace.core.options import Config, RunOptions
from pytrace.core.probe_kinds import NoTarget
from pytrace.core.types import INT64
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.load.probe_links import Attached
from pytrace.runtime.machine.clocks import Clock
from pytrace.runtime.output.renderer import Renderer, RenderOptions, RunState
from pytrace.runtime.output.ring import RingReader
from pytrace.runtime.output.streams import Output
from pytrace.runtime.session.services import Key, Losses, NoHeartbeat, Service
from pytrace.runtime.session.session import Command, Consumer, NoCommand, Notices, Resources
from tests.runtime.output.test_ring import Ring, event
from tests.support.encode import Run, encode

HERE = Location("script.bt", 1, 1)
LINE, EXIT = 0, 1
"""Kinds of events: a line with a number, and ``exit()``."""


def program(kind: str, symbol: str = "", *, service: bool = False, targets: int = 1) -> ProgramSpec:
    """A program of a script."""
    places = tuple(Target(f"{kind}:{at}", at, NoTarget()) for at in range(targets))
    return ProgramSpec(symbol or f"{kind}_0", kind, 0, places, HERE, service=service)


class FakeLoaded:
    """Loaded programs: each one is a function of the test."""

    def __init__(self, manifest: Manifest, functions: dict[str, Callable[[], object]]) -> None:
        self.manifest = manifest
        self.functions = functions
        self.sections: dict[str, memoryview] = {}
        self.runs: list[str] = []

    def run(self, symbol: str) -> int:
        self.runs.append(symbol)
        self.functions.get(symbol, int)()
        return 0

    def section(self, name: str) -> memoryview:
        return self.sections[name]

    def exit_status(self) -> int | None:
        return LoadedScript.exit_status(cast(Any, self))


class FakeProbes:
    """Probes that can be attached and detached."""

    def __init__(self, attached: Iterable[Attached]) -> None:
        self._attached = list(attached)
        self.detached = False
        self.have_exited = False
        self.lost: dict[Key, int] = {}
        self.untraced: dict[str, int] = {}

    def attach(self) -> list[Attached]:
        return self._attached

    def exited(self) -> None: ...

    def detach(self) -> None:
        self.detached = True

    def missed(self) -> dict[Key, int]:
        return self.lost

    def period(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (0, 0), (0, 1_500_000_000)


class FakeSymbols:
    """A symboliser with notices."""

    def drained(self, moment: int) -> None: ...

    def follow_code(self, pid: int) -> bool:
        return False

    def hurry(self, say: object) -> None: ...

    def notices(self) -> list[str]:
        return ["no lines of x"]


class FakeLoop:
    """Waits that end at once, after a function of the test."""

    def __init__(self) -> None:
        self.while_waiting: Callable[[], object] = int
        self.ready: list[int] = []
        """Descriptors that a wait returns."""
        self.watched: list[int] = []
        self.waits: list[float] = []

    def watch(self, descriptor: int) -> None:
        self.watched.append(descriptor)

    def wait_for_room(self, descriptor: int | None) -> None: ...

    def wait(self, timeout: float, _drained: int = 0, *, events: bool = True) -> list[int]:
        self.waits.append(timeout)
        self.while_waiting()
        return self.ready


class FakeSignals:
    """Signals for ``self`` probes that have come."""

    def __init__(self) -> None:
        self.come: list[int] = []

    def begin(self) -> None: ...

    def fileno(self) -> int:
        return 3

    def take(self) -> list[int]:
        taken, self.come = self.come, []
        return taken


class FakeRun:
    """A run of a script with the map ``@total``; output and messages go to pipes."""

    def __init__(
        self,
        stack: ExitStack,
        patch: pytest.MonkeyPatch,
        *programs: ProgramSpec,
        services: Iterable[Service] = (),
        command: Command | None = None,
        embedded: bool = False,
        command_line: str | None = None,
        session: SessionData | None = None,
        total: int | None = 7,
        **options: Any,
    ) -> None:
        self.ring = Ring(stack, patch, 1 << 20)
        self._printed, self._said = _pipe(stack), _pipe(stack)
        self.functions: dict[str, Callable[[], object]] = {}
        """What programs do, by symbol."""
        self.options = RunOptions(command=command_line, **options)
        script = Run()
        script.event("printf", [INT64], format="line %d\n")
        script.event("exit", [INT64], known=True)
        if total is not None:
            script.scalar("@total", INT64, total)
        manifest = Manifest(
            programs, tuple(script.maps), tuple(script.specs), script.strings, Config(), session=session
        )
        self.loaded = FakeLoaded(manifest, self.functions)
        self.requests, self.signals, self.loop = EndRequests(), FakeSignals(), FakeLoop()
        self.output = Output(
            self._printed[1], messages=self._said[1], json=self.options.format == "json",
            csv=self.options.format == "csv", requests=self.requests,
        )  # fmt: skip
        stack.callback(self.output.drop)
        kernel = [spec for spec in programs if spec.kind == "kprobe"]
        self.probes = FakeProbes(Attached(spec, target) for spec in kernel for target in spec.targets)
        render = RenderOptions(quiet=self.options.quiet, warnings=self.options.warnings)
        self.state = RunState(requests=self.requests)
        renderer = Renderer(manifest, self.output, script.symbols, script.reader, Clock(), render, self.state)
        reader = RingReader(self.ring.file, stack)
        loaded, probes, loop = cast(Any, self.loaded), cast(Any, self.probes), cast(Any, self.loop)
        consumer = Consumer(reader, renderer, self.output, self.requests, probes, cast(Any, FakeSymbols()))
        losses = Losses(loaded, probes, consumer, renderer, self.output, NoHeartbeat(), lambda _text: None)
        self.resources = Resources(
            options=self.options, embedded=embedded, requests=self.requests, signals=self.signals,
            output=self.output, notices=Notices(self.output, self.options), command=command or NoCommand(),
            loaded=loaded, symbols=cast(Any, FakeSymbols()), renderer=renderer, ring=reader, loop=loop,
            consumer=consumer, processes=cast(Any, None), probes=probes, losses=losses, services=[losses, *services],
        )  # fmt: skip

    def line(self, number: int) -> None:
        """Send an event that prints a line."""
        self.ring.send(event(LINE, encode(INT64, number)))

    def exit(self, status: int = 0) -> None:
        """Send what ``exit()`` sends."""
        self.ring.send(event(EXIT, encode(INT64, status)))

    @property
    def printed(self) -> str:
        """What has been printed since the last look."""
        return _read(self._printed[0])

    @property
    def said(self) -> str:
        """Messages since the last look."""
        return _read(self._said[0])


def _pipe(stack: ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    for end in (read, write):
        stack.callback(os.close, end)
    os.set_blocking(read, False)
    return read, write


def _read(descriptor: int) -> str:
    try:
        return os.read(descriptor, 1 << 20).decode()
    except BlockingIOError:
        return ""
