"""What a run notices beside its events: losses, changes of the machine, modules, processes."""

from __future__ import annotations

import ast
import gc
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrace.core.event_layout import EventSpec, Location, NoStaticPart
from pytrace.core.manifest import Counters, Manifest, Target
from pytrace.core.options import Config, RunOptions
from pytrace.core.probe_kinds import KernelFunctionTarget, StaticProbeTarget, TracepointTarget, UserTarget
from pytrace.core.types import UINT64, KSym, Stack, Type, USym
from pytrace.render.events import RunHandler
from pytrace.runtime.machine import perf, syscalls
from pytrace.runtime.session import services, watches
from pytrace.runtime.session.processes import Processes
from pytrace.runtime.session.services import CounterReader
from pytrace.runtime.session.watches import MachineChanges, probed_files, probed_functions
from tests.support.attach_requests import spec
from tests.support.fake_run import FakeRun, program

# ---------------------------------------------------------------------------------------------- losses
# Losses of a run: what counts, and when it is reported.


def test_losses_are_reported_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(services.time, "monotonic", lambda: now[0])
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        losses = run.resources.losses
        losses.woken([])
        run.probes.lost = {("lost", 0): 3}
        losses.woken([])
        assert run.said == ""
        now[0] += services.REPORT_EVERY
        losses.woken([])
        assert run.said == "Lost 3 events\n"
        now[0] += services.REPORT_EVERY
        losses.woken([])
        assert run.said == "", "nothing new"


def test_gaps_come_with_what_was_skipped_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now, gaps = [100.0], [(1_000_000_000, 3_000_000_000)]
    monkeypatch.setattr(services.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(services.NoHeartbeat, "gaps", lambda _self: [gaps.pop()] if gaps else [])
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        losses = run.resources.losses
        run.probes.lost = {("skipped", 0): 3}
        losses.woken([])
        assert "probes did nothing for 3.000 s" in run.said
        assert losses.gaps == [(1_000_000_000, 3_000_000_000)]
        now[0] += services.REPORT_EVERY
        gaps.append((8_000_000_000, 1_000_000_000))
        losses.woken([])
        assert run.said == "", "nothing was skipped in it"
        gaps.append((9_000_000_000, 1_000_000_000))
        now[0] += services.REPORT_EVERY
        run.probes.lost = {("skipped", 0): 8}
        losses.woken([])
        assert "WARNING: 5 probe hits skipped" in run.said
        assert losses.gaps == [(1_000_000_000, 3_000_000_000), (9_000_000_000, 1_000_000_000)]


def test_what_is_skipped_until_a_gap_is_over_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat is another thread: the gap may end between two steps of this one."""
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        run.probes.lost = {("skipped", 0): 6}
        ended = [[], [(5_000_000_000, 1_000_000_000)], [(1_000_000_000, 3_000_000_000)]]

        def gaps(_heartbeat: object) -> list[tuple[int, int]]:
            run.probes.lost[("skipped", 0)] += 1
            return ended.pop()

        monkeypatch.setattr(services.NoHeartbeat, "gaps", gaps)
        run.resources.losses.woken([])
        assert run.resources.losses.gaps == [(1_000_000_000, 3_000_000_000), (5_000_000_000, 1_000_000_000)]
        assert "WARNING: 8 probe hits skipped" in run.said


def test_events_that_wait_for_their_call_are_lost_at_the_end_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        run.probes.lost = {("unfinished", 0): 1}
        run.resources.losses.woken([])
        assert run.said == ""
        run.resources.losses.report_all()
        assert "1 event lost whose system call had not returned" in run.said


def test_unprinted_events_are_losses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        losses = run.resources.losses
        run.probes.lost = {("recursion", 0): 2}
        run.output.left = 5
        assert losses.traced() == {("recursion", 0): 2}
        assert losses.totals() == {("recursion", 0): 2, ("unprinted", 0): 5}
        assert {kind: sum(names.values()) for kind, names in losses.by_kind().items()} == {
            "recursion": 2, "unprinted": 5,
        }  # fmt: skip


def test_all_losses_are_reported_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        run.probes.lost = {("lost", 0): 3}
        run.resources.losses.report_all()
        assert run.said.startswith("Lost 3 events\n")


# ---------------------------------------------------------------------------------------------- counters

NAMES = (("lost", 0), ("lost", 1), ("map_full", 0))


class Script:
    """Stands for a loaded script whose counters lie 16 bytes into a section, in copies 32 bytes apart."""

    def __init__(self, *copies: tuple[int, int, int], names: tuple[tuple[str, int], ...] = NAMES) -> None:
        data = bytearray(16)
        for row in copies:
            data += struct.pack("=3Q", *row) + b"\xff" * 8
        self.memory = data
        counters = Counters(".data.counters", 16, len(copies), 32, names)
        self.manifest = SimpleNamespace(counters=counters)

    def section(self, name: str) -> memoryview:
        assert name == ".data.counters"
        return memoryview(self.memory)


def totals(script: Any) -> dict[tuple[str, int], int]:
    return CounterReader(script).totals()


def test_copies_are_added_and_zeros_left_out() -> None:
    assert totals(Script((1, 0, 2), (10, 0, 0), (0, 0, 40))) == {("lost", 0): 11, ("map_full", 0): 42}


def test_what_is_subtracted_on_another_cpu() -> None:
    assert totals(Script((1, 2, 0), (2**64 - 1, 2**64 - 1, 0))) == {("lost", 1): 1}


def test_programs_that_wait_are_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        run = FakeRun(stack, monkeypatch, program("kprobe"))
        losses = run.resources.losses
        assert losses.waiting(user=False) == []
        monkeypatch.setattr(losses._counters, "totals", lambda: {("waiting", 0): 1, ("lost", 0): 2})
        assert losses.waiting(user=False) == ["kprobe:0"]
        assert losses.waiting(user=True) == []
        assert losses.traced() == {("lost", 0): 2}


def test_the_order_is_that_of_the_manifest() -> None:
    assert list(totals(Script((1, 1, 1)))) == list(NAMES)


def test_counters_go_on() -> None:
    script: Any = Script((1, 0, 0))
    reader = CounterReader(script)
    assert reader.totals() == {("lost", 0): 1}
    script.memory[24:32] = struct.pack("=Q", 5)
    assert reader.totals() == {("lost", 0): 1, ("lost", 1): 5}


@pytest.mark.parametrize("counters", [None, Counters(".data.counters", 0, 4, 8, ())])
def test_a_script_without_counters_has_no_section(counters: Counters | None) -> None:
    assert totals(SimpleNamespace(manifest=SimpleNamespace(counters=counters))) == {}


def test_one_copy_without_a_stride() -> None:
    script: Any = Script((3, 0, 0))
    script.manifest.counters = Counters(".data.counters", 16, 1, 0, NAMES)
    assert totals(script) == {("lost", 0): 3}


# ---------------------------------------------------------------------------------------------- machine changes
# What is reported of CPUs that come and go, of clocks that jump, and of probed files that are replaced.


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
        patch.setattr(watches, "_subscribed", lambda _stack: EVENTS if self.subscribed else None)
        patch.setattr(watches, "_clocks", lambda: (self.wall, self.asleep))
        patch.setattr(syscalls, "read_device_events", self.read)
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
    monkeypatch.setattr(watches, "_known", lambda names, _symbols: names & there)
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
        symbols = watches._opened_symbols(stack)
        assert symbols is not None
        for _ in range(2):
            assert watches._known({"vfs_read", "no_such_function"}, symbols) == {"vfs_read"}


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


# ---------------------------------------------------------------------------------------------- module loading
# What a run imports ahead: all that its modules import inside of functions, but for what a start has imported.


ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("base", "core", "render", "results", "runtime")
BY_A_START = (
    "pytrace.runtime.load", "pytrace.runtime.machine", "pytrace.runtime.session", "pytrace.core.options",
    "pytrace.live", "pyroute2",
)  # fmt: skip
"""What compiling, opening, loading and attaching import, and therefore no later step for the first time."""


def manifest(*types: Type) -> Manifest:
    here = Location("script.bt", 1, 1)
    return Manifest((), (), (EventSpec(0, "exit", types, NoStaticPart(), here),), (), Config())


def imports_inside_functions(path: Path) -> Iterator[str]:
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    yield from (item.name for item in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    folder = ROOT / node.module.replace(".", "/")
                    yield from (f"{node.module}.{item.name}" if folder.is_dir() else node.module for item in node.names)


def test_each_import_inside_a_function_is_among_them() -> None:
    options = RunOptions(save="x", debuginfo=("http://localhost",))
    names = list(services.late_modules(manifest(USym(), KSym()), options, embedded=True))
    packages = tuple(f"{name}." for name in names)
    late = {
        name for package in PACKAGES for path in (ROOT / "pytrace" / package).rglob("*.py")
        for name in imports_inside_functions(path)
    }  # fmt: skip
    # Modules of Python stay while it runs: its upgrades replace them by those of the same names.
    late = {name for name in late if name.partition(".")[0] not in sys.stdlib_module_names}
    assert not {name for name in late if name not in names and not name.startswith((*packages, *BY_A_START))}


@pytest.mark.parametrize(
    ("types", "options", "present", "absent"),
    [
        ((UINT64,), RunOptions(), {"pytrace.render"}, {"pytrace.runtime.stacks", "pytrace.results"}),
        ((KSym(),), RunOptions(), {"pytrace.runtime.stacks"}, {"pytrace.runtime.binaries"}),
        ((Stack(user=True, limit=9),), RunOptions(), {"pytrace.runtime.binaries"}, {"urllib.request"}),
        ((), RunOptions(live=True), {"pytrace.results.formats", "pytrace.runtime.session.snapshots"}, {"pyarrow"}),
        ((), RunOptions(format="parquet"), {"pytrace.results.formats", "pyarrow.parquet"}, {"pytrace.runtime.stacks"}),
    ],
)
def test_what_a_script_needs(types: tuple[Type, ...], options: RunOptions, present: set[str], absent: set[str]) -> None:
    names = set(services.late_modules(manifest(*types), options, embedded=False))
    assert names >= present
    assert not names & absent


def test_all_modules_of_a_package_and_no_error_for_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("pytrace.account")]:
        monkeypatch.delitem(sys.modules, name)
    steps = list(services.import_steps(["pytrace.account", "nosuch_library", "pytrace.nosuch", "zipfile"]))
    modules = [path for path in (ROOT / "pytrace/account").glob("*.py") if path.name != "__init__.py"]
    assert len(steps) == len(modules) + 4
    assert {f"pytrace.account.{path.stem}" for path in modules} <= set(sys.modules)


# ---------------------------------------------------------------------------------------------- processes
# What a run knows of processes, kept up to date.


Change = tuple[str, int, int]


class Symbols:
    """The kernel's records: taken in by a poll, then handed out once."""

    descriptors = (4, 5)

    def __init__(self, *records: Change) -> None:
        self._records = list(records)
        self._polled: list[Change] = []

    def pause(self, longest: float) -> float:
        return longest

    def poll(self) -> None:
        self._polled, self._records = self._records, []

    def changes(self) -> list[Change]:
        changes, self._polled = self._polled, []
        return changes


class Unwinder:
    """The processes that are unwound."""

    def __init__(self) -> None:
        self.added: list[int] = []
        self.changes: list[Change] = []
        self.requests: list[tuple[int, int]] = []

    def add(self, pid: int) -> None:
        self.added.append(pid)

    def update(self, changes: list[Change]) -> None:
        self.changes += changes

    def request(self, pid: int, space: int) -> None:
        self.requests.append((pid, space))

    @property
    def waiting(self) -> bool:
        return bool(self.requests)

    def work(self, _until: float) -> None:
        self.requests.pop()


def test_what_happened_to_processes_reaches_the_unwind_tables_and_interpreters() -> None:
    unwinder, python = Unwinder(), Unwinder()
    processes = Processes(cast(Any, Symbols(("map", 7, 0))), cast(Any, unwinder), None, cast(Any, python))
    assert processes.descriptors == (4, 5)
    processes.woken([])
    processes.woken([])
    assert unwinder.changes == python.changes == [("map", 7, 0)]
    processes.add(8)
    assert unwinder.added == python.added == [8]


def test_a_script_that_unwinds_nothing() -> None:
    processes = Processes(cast(Any, Symbols(("map", 7, 0))), None, None)
    processes.add(8)
    processes.woken([])
    assert processes.pause(3.0) == 3.0


class Ring:
    """A ring with one request."""

    def fileno(self) -> int:
        return 6

    def drain(self, handlers: tuple[RunHandler]) -> None:
        handlers[0](struct.pack("=8xQQ", 9, 0xFFFF), 0, 24, 32, 1)


def test_tables_that_programs_ask_for_are_read_between_events() -> None:
    unwinder = Unwinder()
    processes = Processes(cast(Any, Symbols()), cast(Any, unwinder), cast(Any, Ring()))
    assert processes.descriptors == (4, 5, 6)
    processes.woken([])
    assert unwinder.requests == [(9, 0xFFFF)]
    assert processes.pause(3.0) == 0.0
    processes.work(0)
    assert processes.pause(3.0) == 3.0


# ---------------------------------------------------------------------------------------------- the own process

@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_is_told(abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"pytrace-test-{os.getpid()}" if abstract else str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}" if abstract else name)
        receiver.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
        own = services.OwnProcess()
        own.attached()
        # The run may open no socket by then.
        monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("a second socket"))
        own.stop()
        assert [receiver.recv(100) for _ in range(2)] == [b"READY=1", b"STOPPING=1"]


@pytest.mark.parametrize("address", [None, "", "vsock:2:1", "relative"])
def test_nobody_waits(address: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    own = services.OwnProcess()
    own.attached()
    own.stop()
    assert capsys.readouterr() == ("", "")


def test_a_socket_that_nobody_reads_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "missing"))
    own = services.OwnProcess()
    own.attached()
    own.stop()
    assert capsys.readouterr().err == "WARNING: cannot notify systemd: No such file or directory\n"


def test_hooks_print_their_own_names(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in services.ATTACHED_HOOKS:
        monkeypatch.delenv(name, raising=False)
    services.attached_hooks()
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "")
    services.attached_hooks()
    assert capsys.readouterr().out == "__BPFTRACE_NOTIFY_PROBES_ATTACHED\n"
    monkeypatch.setenv("__PYTRACE_NOTIFY_PROBES_ATTACHED", "1")
    services.attached_hooks()
    assert capsys.readouterr().out == "__PYTRACE_NOTIFY_PROBES_ATTACHED\n__BPFTRACE_NOTIFY_PROBES_ATTACHED\n"


def test_garbage_is_collected_once_tracing_has_begun() -> None:
    gc.disable()
    try:
        services.OwnProcess().begin()
        assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()


def test_a_long_run_imports_ahead_one_module_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(services.time, "monotonic", lambda: now[0])
    imported: list[str] = []
    monkeypatch.setattr(services, "late_modules", lambda *_: ("a", "b"))
    monkeypatch.setattr(services, "import_steps", lambda names: (imported.append(name) for name in names))
    service = services.OwnModules(cast(Any, None), cast(Any, None), embedded=False)
    assert service.pause(5.0) == 5.0
    service.begin()
    service.work(0)
    assert (service.pause(5.0), imported) == (services.MODULES_AFTER, [])
    for expected in (["a"], ["a", "b"], ["a", "b"]):
        now[0] += 1.0
        assert service.pause(5.0) == 0.0
        service.work(3)
        assert imported == expected
    assert service.pause(5.0) == 5.0
