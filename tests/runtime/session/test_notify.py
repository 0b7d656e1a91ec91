"""pytrace.runtime.session.notify: datagrams to the service manager, and hooks of test benches."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pytrace.runtime.session import notify


@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_is_told(abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"pytrace-test-{os.getpid()}" if abstract else str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}" if abstract else name)
        receiver.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
        notify.systemd("READY=1")
        notify.systemd("STOPPING=1")
        assert [receiver.recv(100) for _ in range(2)] == [b"READY=1", b"STOPPING=1"]


@pytest.mark.parametrize("address", [None, "", "vsock:2:1", "relative"])
def test_nobody_waits(address: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify.systemd("READY=1")
    assert capsys.readouterr() == ("", "")


def test_a_socket_that_nobody_reads_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "missing"))
    notify.systemd("READY=1")
    assert capsys.readouterr().err == "WARNING: cannot notify systemd: No such file or directory\n"


def test_hooks_print_their_own_names(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in notify.ATTACHED_HOOKS:
        monkeypatch.delenv(name, raising=False)
    notify.attached_hooks()
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "")
    notify.attached_hooks()
    assert capsys.readouterr().out == "__BPFTRACE_NOTIFY_PROBES_ATTACHED\n"
    monkeypatch.setenv("__PYTRACE_NOTIFY_PROBES_ATTACHED", "1")
    notify.attached_hooks()
    assert capsys.readouterr().out == "__PYTRACE_NOTIFY_PROBES_ATTACHED\n__BPFTRACE_NOTIFY_PROBES_ATTACHED\n"
