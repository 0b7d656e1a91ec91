"""pytrace.runtime.machine.bpf: when a token is made, and why not."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrace.runtime.machine import bpf, syscalls


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Answers are kept until a process ends."""
    kept = (bpf._token_or_refusal,)
    for function in kept:
        function.cache_clear()
    yield
    for function in kept:
        function.cache_clear()


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A process in a user namespace, whose bpffs is the test's directory."""
    monkeypatch.setattr(bpf, "user_namespace", lambda: "user:[4026532001]")
    monkeypatch.setenv("LIBBPF_BPF_TOKEN_PATH", str(tmp_path))
    return tmp_path


def test_the_machine_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "call", lambda *_: pytest.fail("asked for a token"))
    for namespace in ("user:[4026531837]", ""):
        monkeypatch.setattr(bpf, "user_namespace", lambda namespace=namespace: namespace)
        assert not bpf.in_container()
        assert (bpf.container_token(), bpf.token_refusal()) == (None, "")


def test_a_token_is_made_once(monkeypatch: pytest.MonkeyPatch, container: Path) -> None:
    made: list[str] = []

    def call(name: str, command: int, _address: int, size: int) -> int:
        assert (name, command, size) == ("bpf", 36, 8)
        made.append(name)
        return 77

    monkeypatch.setattr(syscalls, "call", call)
    assert bpf.in_container()
    assert [bpf.container_token(), bpf.container_token(), bpf.token_refusal()] == [77, 77, ""]
    assert made == ["bpf"]


def test_refusals_name_the_place(monkeypatch: pytest.MonkeyPatch, container: Path) -> None:
    def call(*_: object) -> int:
        raise OSError(errno.EPERM, "")

    monkeypatch.setattr(syscalls, "call", call)
    assert bpf.container_token() is None
    assert bpf.token_refusal() == f"no BPF token of {container}: {os.strerror(errno.EPERM)}"


def test_a_place_that_is_not_there(monkeypatch: pytest.MonkeyPatch, container: Path) -> None:
    monkeypatch.setenv("LIBBPF_BPF_TOKEN_PATH", f"{container}/none")
    assert bpf.token_refusal() == f"{container}/none: No such file or directory"


def test_it_can_be_declined(monkeypatch: pytest.MonkeyPatch, container: Path) -> None:
    monkeypatch.setenv("LIBBPF_BPF_TOKEN_PATH", "")
    assert (bpf.container_token(), bpf.token_refusal()) == (None, "")
    monkeypatch.delenv("LIBBPF_BPF_TOKEN_PATH")
    assert bpf.token_path() == "/sys/fs/bpf"
