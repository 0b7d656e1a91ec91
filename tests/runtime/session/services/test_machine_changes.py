"""What is reported of CPUs that come and go, of clocks that jump, and of probed files that are replaced."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from pytrace.core.config import Config
from pytrace.core.manifest import Manifest, Target
from pytrace.core.probes.targets import KernelFunctionTarget, StaticProbeTarget, TracepointTarget, UserTarget
from pytrace.runtime.abi import perf, uevents
from pytrace.runtime.session.services import machine_changes
from pytrace.runtime.session.services.machine_changes import MachineChanges, probed_files, probed_functions
from tests.support.attach_requests import spec

EVENTS = 40
"""The descriptor of the kernel's events."""


class Machine:
    """CPUs and clocks of the test."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[int, bool]] = []
        self.failures: list[str] = []
        self.watched: list[int] = []
        self.watch = self.watched.append
        self.said: list[str] = []
        self.stack = ExitStack()
        self.online = [0, 1]
        self.changes: list[tuple[int, bool]] | OSError = []
        self.modules: list[tuple[str, bool]] = []
        self.wall, self.asleep, self.now = 0, 0, 100.0
        self.subscribed = True
        patch.setattr(perf, "online_cpus", lambda: list(self.online))
        patch.setattr(machine_changes, "_subscribed", lambda _stack: EVENTS if self.subscribed else None)
        patch.setattr(machine_changes, "_clocks", lambda: (self.wall, self.asleep))
        patch.setattr(uevents, "read", self.read)
        patch.setattr(time, "monotonic", lambda: self.now)

    def read(self, descriptor: int) -> tuple[list[tuple[int, bool]], list[tuple[str, bool]]]:
        assert descriptor == EVENTS
        if isinstance(self.changes, OSError):
            raise self.changes
        return self.changes, self.modules

    def renew(self, cpu: int, *, online: bool | None = None) -> Any:
        """Of the probes with *online*, else of the followed mappings."""
        if online is None:
            return [50 + cpu]
        self.asked.append((cpu, online))
        return (["profile:hz:9", "software:faults:1"] if online else ["interval:s:1"]), self.failures

    def warn(self, text: str, hints: tuple[str, ...] = ()) -> None:
        self.said += [text, *hints]

    def service(
        self, files: Iterable[str] = (), pids: Iterable[int] = (), functions: Iterable[str] = ()
    ) -> MachineChanges:
        me = cast(Any, self)
        places = (*(UserTarget(path, 1) for path in files), *(KernelFunctionTarget(name) for name in functions))
        targets = tuple(Target(str(place), at, place) for at, place in enumerate(places))
        manifest = Manifest((spec("p", "kprobe", targets),), (), (), (), Config())
        made = MachineChanges(me, me, me, manifest, pids, self.warn, self.stack)
        made.attached()
        return made

    def later(self, service: MachineChanges, seconds: float = 1.5, ready: Iterable[int] = ()) -> list[str]:
        self.now += seconds
        service.woken(list(ready))
        said, self.said = self.said, []
        return said


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(monkeypatch)
    with made.stack:
        yield made


def test_cpus_that_come_and_go(machine: Machine) -> None:
    service = machine.service()
    assert service.descriptors == (EVENTS,)
    assert machine.later(service) == []
    machine.changes = [(1, False), (1, True)]
    assert machine.later(service, 0.0, [EVENTS]) == [
        "CPU 1 went offline: interval:s:1 was attached again",
        "CPU 1 came online: profile:hz:9 and 1 more were attached again",
    ]
    assert machine.asked == [(1, False), (1, True)]
    assert machine.watched == [51]


def test_what_does_not_observe_a_cpu_is_reported(machine: Machine) -> None:
    service = machine.service()
    machine.failures = ["hardware:cycles:1 does not observe it: Device or resource busy"]
    machine.changes = [(1, True)]
    assert machine.later(service, 0.0, [EVENTS])[1:] == [f"CPU 1 came online: {machine.failures[0]}"]


def test_modules_that_are_unloaded_and_loaded_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"vfs_read", "dummy_xmit", "dummy_open"}
    monkeypatch.setattr(machine_changes, "_known", lambda names, _symbols: names & there)
    service = machine.service(functions=["vfs_read", "dummy_xmit", "dummy_open"])
    machine.modules = [("ext9", False), ("ext9", True)]
    assert machine.later(service, 0.0, [EVENTS]) == []
    there -= {"dummy_xmit", "dummy_open"}
    machine.modules = [("dummy", False)]
    unloaded = "module dummy was unloaded: kprobes of dummy_open and 1 more ended with it"
    assert machine.later(service, 0.0, [EVENTS]) == [unloaded]
    assert machine.later(service, 0.0, [EVENTS]) == [], "once"
    machine.modules = [("dummy", True)]
    assert machine.later(service, 0.0, [EVENTS]) == [
        "module dummy was loaded again, but its probes are not", "start pytrace again to trace the new one",
    ]  # fmt: skip


def test_functions_of_this_kernel() -> None:
    with ExitStack() as stack:
        symbols = machine_changes._opened_symbols(stack)
        assert symbols is not None
        for _ in range(2):
            assert machine_changes._known({"vfs_read", "no_such_function"}, symbols) == {"vfs_read"}


def test_lost_messages(machine: Machine) -> None:
    service = machine.service()
    machine.changes = OSError("No buffer space available")
    assert machine.later(service, 0.0, [EVENTS]) == [
        "CPUs went offline and came back: profile:hz:9 and 1 more were attached again"
    ]
    assert machine.asked == [(0, True), (1, True)]


def test_without_messages_cpus_are_looked_for(machine: Machine) -> None:
    machine.subscribed = False
    service = machine.service()
    assert service.descriptors == ()
    machine.online = [0]
    assert machine.later(service) == ["CPU 1 went offline: interval:s:1 was attached again"]
    machine.online = [0, 1]
    assert machine.later(service, 0.5) == []
    assert machine.later(service) == ["CPU 1 came online: profile:hz:9 and 1 more were attached again"]
    assert machine.later(service) == []


def test_a_suspension(machine: Machine) -> None:
    service = machine.service()
    machine.asleep += 12_300_000_000
    first, second = machine.later(service)
    assert first == "the machine was suspended for 12.3 s"
    assert second == f"{first}: profile:hz:9 and 1 more were attached again"
    assert machine.later(service) == []


@pytest.mark.parametrize(("step", "way"), [(3600, "forward by 3600.0 s"), (-7, "back by 7.0 s")])
def test_a_clock_that_is_set(machine: Machine, step: int, way: str) -> None:
    service = machine.service()
    machine.wall += 400_000_000
    assert machine.later(service) == [], "a correction"
    machine.wall += step * 1_000_000_000
    assert machine.later(service) == [
        f"the clock was set {way}", "wall times of this run are those of the clock at its start",
    ]  # fmt: skip
    machine.wall += 2_000_000_000
    service.stop()
    assert machine.said[0] == "the clock was set forward by 2.0 s"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "file"
    made.write_bytes(b"old")
    return made


def test_files_that_are_replaced(machine: Machine, file: Path) -> None:
    service = machine.service([str(file), "/nonexistent"])
    assert machine.later(service, 6.0) == []
    new = file.with_name("new")
    new.write_bytes(b"new")
    os.replace(new, file)
    assert machine.later(service, 1.0) == [], "not yet"
    assert machine.later(service, 6.0) == [
        f"{file} was replaced while it was traced: only the old file is observed",
        "start pytrace again to trace the new one",
    ]
    file.unlink()
    assert machine.later(service, 6.0) == [], "once"


def test_files_that_are_removed_or_overwritten(machine: Machine, file: Path) -> None:
    service = machine.service([str(file)])
    file.write_bytes(b"other")
    service.stop()
    assert machine.said[0] == f"{file} was overwritten while it was traced: probes in it may be at wrong instructions"
    machine.said.clear()
    service = machine.service([str(file)])
    file.unlink()
    service.stop()
    assert machine.said == [f"{file} was removed while it was traced: only the old file is observed"]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A process, and its program."""
    program = tmp_path / "program"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as made:
        while not os.readlink(f"/proc/{made.pid}/exe").endswith("program"):
            time.sleep(0.01)
        # execve(2) names the program before it has mapped it (begin_new_exec in fs/exec.c).
        while str(program) not in Path(f"/proc/{made.pid}/maps").read_text():
            time.sleep(0.01)
        yield made.pid, program
        made.kill()


def test_processes_that_run_an_older_file(machine: Machine, process: tuple[int, Path]) -> None:
    pid, program = process
    machine.service([str(program), "/bin/true"], [pid])
    assert machine.said == []
    shutil.copy("/bin/sleep", program.with_name("new"))
    os.replace(program.with_name("new"), program)
    machine.service([str(program), "/bin/true"], [pid, os.getpid()])
    assert machine.said == [
        f"process {pid} runs an older {program}, which was replaced or removed",
        "probes attach to the file that has the name now; restart the process",
    ]


def test_files_and_functions_of_a_script() -> None:
    targets = (
        Target("a", 0, UserTarget("/bin/a", 1)), Target("b", 1, StaticProbeTarget("/bin/b", 1)),
        Target("c", 2, UserTarget("/proc/7/root/bin/c", 1)), Target("t", 3, TracepointTarget("x", "y")),
        Target("k", 4, KernelFunctionTarget("vfs_read")), Target("k", 5, KernelFunctionTarget(address=7)),
    )  # fmt: skip
    manifest = Manifest((spec("p", "uprobe", targets),), (), (), (), Config())
    assert probed_files(manifest) == {"/bin/a", "/bin/b"}
    assert probed_functions(manifest) == {"vfs_read"}
