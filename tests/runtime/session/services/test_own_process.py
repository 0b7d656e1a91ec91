"""pytrace.runtime.session.services.own_process: datagrams to the service manager, and hooks of test benches."""

from __future__ import annotations

import gc
import os
import socket
from pathlib import Path

import pytest

from pytrace.runtime.session.services import own_process


@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_is_told(abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"pytrace-test-{os.getpid()}" if abstract else str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}" if abstract else name)
        receiver.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
        own_process.systemd("READY=1")
        own_process.systemd("STOPPING=1")
        assert [receiver.recv(100) for _ in range(2)] == [b"READY=1", b"STOPPING=1"]


@pytest.mark.parametrize("address", [None, "", "vsock:2:1", "relative"])
def test_nobody_waits(address: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    own_process.systemd("READY=1")
    assert capsys.readouterr() == ("", "")


def test_a_socket_that_nobody_reads_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "missing"))
    own_process.systemd("READY=1")
    assert capsys.readouterr().err == "WARNING: cannot notify systemd: No such file or directory\n"


def test_hooks_print_their_own_names(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in own_process.ATTACHED_HOOKS:
        monkeypatch.delenv(name, raising=False)
    own_process.attached_hooks()
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "")
    own_process.attached_hooks()
    assert capsys.readouterr().out == "__BPFTRACE_NOTIFY_PROBES_ATTACHED\n"
    monkeypatch.setenv("__PYTRACE_NOTIFY_PROBES_ATTACHED", "1")
    own_process.attached_hooks()
    assert capsys.readouterr().out == "__PYTRACE_NOTIFY_PROBES_ATTACHED\n__BPFTRACE_NOTIFY_PROBES_ATTACHED\n"


def test_garbage_is_collected_once_tracing_has_begun() -> None:
    gc.disable()
    try:
        own_process.OwnProcess().begin()
        assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
