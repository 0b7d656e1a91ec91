"""What attaching asks the kernel for, where no test kernel has the feature: multi links on kernel functions, sessions,
processor events. The system calls are caught and their bytes are read back."""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import ProgramSpec, Target
from pytrace.core.probes.perf_events import HARDWARE
from pytrace.core.probes.targets import CountedEventTarget, KernelFunctionTarget, TracepointTarget, WatchpointTarget
from pytrace.runtime.abi import bpf, perf, syscalls
from pytrace.runtime.abi.bpf import AttachType, Command
from pytrace.runtime.attach import attachments
from pytrace.runtime.attach.attachments import AttachOptions
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


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Catches what would go to the kernel."""
    caught = Requests()
    monkeypatch.setattr(bpf, "command", caught.command)
    monkeypatch.setattr(syscalls, "call", caught.call)
    return caught


def attached(*specs: ProgramSpec, **options: Any) -> attachments.Attachments:
    """Attach and detach programs; every feature is there."""
    script: Any = FakeScript({spec.symbol: spec.multi for spec in specs})
    with ExitStack() as stack:
        wanted = AttachOptions(feature=lambda _name: True, **options)
        return attachments.attach_all(script, specs, wanted, stack)


def functions(kind: str, *names: str) -> tuple[Target, ...]:
    return tuple(
        Target(f"{kind}:{name}", at, KernelFunctionTarget(name)) for at, name in enumerate(names)
    )


def spec(symbol: str, kind: str, targets: tuple[Target, ...], **other: Any) -> ProgramSpec:
    return ProgramSpec(symbol, kind, 0, targets, HERE, **other)


@pytest.mark.parametrize("kind", ["kprobe", "kretprobe"])
def test_many_functions_are_one_link(requests: Requests, kind: str) -> None:
    names = [f"function_{number}" for number in range(1000)]
    done = attached(spec("p", kind, functions(kind, *names), multi="kprobe_multi"))
    assert len(done.attached) == 1000
    (link,) = requests.multi
    assert link["kind"] == AttachType.TRACE_KPROBE_MULTI
    assert link["returns"] == (kind == "kretprobe")
    assert link["symbols"] == names
    assert link["cookies"] == list(range(1000))


def test_functions_that_the_kernel_refuses_are_found_by_halving(requests: Requests) -> None:
    requests.refused = {"b", "e"}
    targets = functions("kprobe", *"abcdefgh")
    done = attached(spec("p", "kprobe", targets, multi="kprobe_multi"), missing_probes="warn")
    assert sorted(item.target.probe for item in done.failures) == ["kprobe:b", "kprobe:e"]
    assert sorted(name for link in requests.multi for name in link["symbols"]) == list("acdfgh")
    with pytest.raises(TraceError, match="kprobe:b"):
        attached(spec("p", "kprobe", targets, multi="kprobe_multi"))


def test_a_session_is_one_link_for_both(requests: Requests) -> None:
    entry = spec("e", "kprobe", functions("kprobe", "vfs_read", "vfs_write"), multi="kprobe_session")
    targets = functions("kretprobe", "vfs_read", "vfs_write")
    leaving = spec("r", "kretprobe", targets, multi="kprobe_session", part_of="e")
    done = attached(entry, leaving)
    (link,) = requests.multi
    assert link["kind"] == AttachType.TRACE_KPROBE_SESSION
    assert not link["returns"]
    assert link["symbols"] == ["vfs_read", "vfs_write"]
    assert sorted(item.target.probe for item in done.attached) == [
        "kprobe:vfs_read", "kprobe:vfs_write", "kretprobe:vfs_read", "kretprobe:vfs_write",
    ]  # fmt: skip


def test_processor_events_are_counted_on_each_cpu(requests: Requests) -> None:
    row = next(item for item in HARDWARE if item.name == "cache-misses")
    place = CountedEventTarget("cache-misses", row.config, 5000)
    attached(spec("h", "hardware", (Target("hardware:cache-misses:5000", 0, place),)))
    assert [(pid, cpu) for _, pid, cpu in requests.events] == [(-1, cpu) for cpu in perf.online_cpus()]
    kind, _size, config, period = struct.unpack_from("=IIQQ", requests.events[0][0])
    assert (kind, config, period) == (perf.EventType.HARDWARE, 3, 5000)


def tasks() -> set[int]:
    """Threads of this process; some, of pools that have ended, may be about to end."""
    return {int(name) for name in os.listdir("/proc/self/task")}


@pytest.mark.parametrize(("follow", "threads_only"), [(False, True), (True, False)])
def test_events_of_a_process_are_inherited(requests: Requests, follow: bool, threads_only: bool) -> None:
    target = Target("hardware:instructions:1000", 0, CountedEventTarget("instructions", 1, 1000))
    before = tasks()
    attached(spec("h", "hardware", (target,)), pid=os.getpid(), child=os.getpid() if follow else None, follow=follow)
    assert before & tasks() <= {pid for _, pid, _ in requests.events} <= before
    flags = struct.unpack_from("=Q", requests.events[0][0], 40)[0]
    assert flags & perf.FLAG_INHERIT
    assert bool(flags & perf.FLAG_INHERIT_THREAD) == threads_only


def test_programs_look_for_the_descendants_of_a_running_process(requests: Requests) -> None:
    """Which of them have inherited an event cannot be told, and each must be counted once."""
    target = Target("hardware:instructions:1000", 0, CountedEventTarget("instructions", 1, 1000))
    attached(spec("h", "hardware", (target,)), pid=os.getpid(), follow=True)
    assert [(pid, cpu) for _, pid, cpu in requests.events] == [(-1, cpu) for cpu in perf.online_cpus()]
    assert not struct.unpack_from("=Q", requests.events[0][0], 40)[0] & perf.FLAG_INHERIT


def test_watchpoints_ask_for_a_breakpoint(requests: Requests) -> None:
    target = Target("watchpoint:0x1000:8:rw", 0, WatchpointTarget(0x1000, 8, "rw"))
    before = tasks()
    attached(spec("w", "watchpoint", (target,)), child=os.getpid())
    head = requests.events[0][0]
    assert struct.unpack_from("=I", head)[0] == perf.EventType.BREAKPOINT
    assert struct.unpack_from("=IQQ", head, 52) == (3, 0x1000, 8)
    assert before & tasks() <= {pid for _, pid, _ in requests.events} <= before


def test_services_attach_first_and_are_not_counted(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def note(job: Any, _opened: Any) -> list[Any]:
        order.append(job.spec.symbol)
        return [attachments.Attached(job.spec, target) for target in job.spec.targets]

    monkeypatch.setattr(attachments, "_attacher", lambda _kind: note)
    event = (Target("tracepoint:sched:x", 0, TracepointTarget("sched", "x")),)
    done = attached(spec("script", "tracepoint", event), spec("fork", "tracepoint", event, service=True))
    assert order == ["fork", "script"]
    assert [item.spec.symbol for item in done.attached] == ["script"]
