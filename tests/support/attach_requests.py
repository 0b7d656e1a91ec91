"""Caught system calls of attachers: links and perf events that are asked for, read back from their bytes."""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from pytrace.core.manifest import ProgramSpec, Target
from pytrace.core.probe_kinds import AnyTarget, KernelFunctionTarget
from pytrace.runtime.load import attachments
from pytrace.runtime.load.probe_links import AttachOptions, Job
from pytrace.runtime.machine import bpf, perf, syscalls
from pytrace.runtime.machine.bpf import AttachType, Command
from tests.support.loading import HERE

PROGRAM = 1000


@dataclass
class FakeScript:
    """Stands for loaded programs."""

    multi_links: dict[str, str]
    gone: frozenset[str] = frozenset()

    def program_fd(self, _symbol: str) -> int:
        return PROGRAM

    def multi(self, symbol: str) -> str:
        return self.multi_links.get(symbol, "")


@dataclass
class Requests:
    """Caught system calls: links with their bytes, perf events with attributes, process and CPU."""

    links: list[tuple[int, int, bytes]] = field(default_factory=list)
    multi: list[dict[str, Any]] = field(default_factory=list)
    events: list[tuple[bytes, int, int]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    def command(self, number: int, attribute: bytes, *_rest: object) -> tuple[int, bytes]:
        assert number == Command.LINK_CREATE
        program, target, kind, _flags = struct.unpack_from("=IIII", attribute)
        assert program == PROGRAM
        if kind in (AttachType.TRACE_KPROBE_MULTI, AttachType.TRACE_KPROBE_SESSION):
            self._multi(kind, attribute[16:])
        self.links.append((kind, target, attribute[16:]))
        return os.open(os.devnull, os.O_RDONLY), b""

    def _multi(self, kind: int, tail: bytes) -> None:
        flags, count, names, addresses, cookies = struct.unpack("=IIQQQ", tail)
        found: dict[str, Any] = {"kind": kind, "returns": bool(flags & 1)}
        pointers = struct.unpack(f"={count}Q", ctypes.string_at(names, 8 * count)) if names and not addresses else ()
        found["symbols"] = [ctypes.string_at(item).decode() for item in pointers]
        if set(found["symbols"]) & self.refused:
            raise OSError(22, "Invalid argument")
        found["cookies"] = list(struct.unpack(f"={count}Q", ctypes.string_at(cookies, 8 * count)))
        self.multi.append(found)

    def call(self, name: str, *args: int) -> int:
        assert name == "perf_event_open"
        attribute, pid, cpu, _group, _flags = args
        self.events.append((ctypes.string_at(attribute, perf.ATTR_SIZE), pid, cpu))
        return os.open(os.devnull, os.O_RDONLY)


def catch(patch: Any) -> Requests:
    """Catch what would go to the kernel; *patch* is pytest's ``monkeypatch``."""
    caught = Requests()
    patch.setattr(bpf, "command", caught.command)
    patch.setattr(syscalls, "call", caught.call)
    return caught


def attached(*specs: ProgramSpec, **options: Any) -> attachments.Attachments:
    """Attach and detach programs; every feature is there."""
    script: Any = FakeScript({spec.symbol: spec.multi for spec in specs})
    with ExitStack() as stack:
        wanted = AttachOptions(feature=lambda _name: True, **options)
        return attachments.attach_all(script, specs, wanted, stack)


def functions(kind: str, *names: str) -> tuple[Target, ...]:
    """Targets on functions of the kernel; cookies count from 0."""
    return tuple(
        Target(f"{kind}:{name}", at, KernelFunctionTarget(name)) for at, name in enumerate(names)
    )


def spec(symbol: str, kind: str, targets: tuple[Target, ...], **other: Any) -> ProgramSpec:
    """A program of a script."""
    return ProgramSpec(symbol, kind, 0, targets, HERE, **other)


# ---------------------------------------------------------------------------------------------- one target


@dataclass
class Kernel:
    """Answers in place of ``bpf.link_…`` and of perf: descriptors of nothing, or the errors that a test wants."""

    asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    """Error numbers by function."""
    opened: list[int] = field(default_factory=list)

    def answer(self, name: str) -> Any:
        """A function that opens a descriptor."""

        def call(*arguments: Any, **options: Any) -> int:
            self.asked.append((name, arguments, options))
            if name in self.errors:
                raise OSError(self.errors[name], os.strerror(self.errors[name]))
            self.opened.append(os.open(os.devnull, os.O_RDONLY))
            return self.opened[-1]

        return call

    def arguments(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of all calls of a function."""
        return [arguments for asked, arguments, _ in self.asked if asked == name]

    def options(self, name: str) -> list[dict[str, Any]]:
        """The named arguments of all calls of a function."""
        return [options for asked, _, options in self.asked if asked == name]

    @property
    def left_open(self) -> list[int]:
        """Descriptors that nobody has closed."""
        return [item for item in self.opened if os.path.exists(f"/proc/self/fd/{item}")]


_LINKS = (
    "link_perf_event", "link_tracing", "link_iter", "link_kprobe_multi", "link_uprobe_multi", "raw_tracepoint_open",
)  # fmt: skip


def kernel(patch: Any) -> Kernel:
    """Have links and perf events come from nowhere; *patch* is pytest's ``monkeypatch``."""
    made = Kernel()
    for name in _LINKS:
        patch.setattr(bpf, name, made.answer(name))
    for name in ("open_event", "set_bpf"):
        patch.setattr(perf, name, made.answer(name))
    patch.setattr(perf, "set_period", lambda event, period: made.asked.append(("set_period", (event, period), {})))
    patch.setattr(perf, "online_cpus", lambda: [2, 5])
    patch.setattr(perf, "pmu_type", {"kprobe": 6, "uprobe": 7}.get)
    patch.setattr(perf, "pmu_bit", lambda name, _bit: 1)
    return made


def job(program: ProgramSpec, *, lacks: tuple[str, ...] = (), **options: Any) -> Job:
    """A program to attach on a kernel that has all features but *lacks*."""
    script: Any = FakeScript({program.symbol: program.multi})
    wanted = AttachOptions(feature=lambda name: name not in lacks, **options)
    return Job(program, PROGRAM, wanted, script)


def target(place: AnyTarget, cookie: int = 0) -> Target:
    """A target of a probe named ``kind:x``."""
    return Target("kind:x", cookie, place)
