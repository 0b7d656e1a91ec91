"""What a run knows of processes, kept up to date."""

from __future__ import annotations

import gc
import os
import socket
import struct
from pathlib import Path
from typing import Any, cast

import pytest

from pytrace.render.events import RunHandler
from pytrace.runtime.session import services
from pytrace.runtime.session.processes import Processes

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
