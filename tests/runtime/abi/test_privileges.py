"""pytrace.runtime.abi.privileges: what is said of missing rights, by texts and error numbers made by hand."""

from __future__ import annotations

import errno

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.abi import bpf_maps, bpf_token, libbpf, privileges


@pytest.mark.parametrize(("number", "said"), [
    (errno.EPERM, "does not allow the bpf system call"),
    (errno.EACCES, "does not allow the bpf system call"),
    (errno.ENOSYS, "this kernel cannot run BPF programs: Function not implemented"),
])  # fmt: skip
def test_a_refused_system_call(monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    def refuse(*_: int) -> int:
        raise OSError(number, "Function not implemented")

    monkeypatch.setattr(bpf_maps, "create", refuse)
    with pytest.raises(TraceError, match=said):
        privileges.check_bpf()


def test_limits_are_not_taken_for_missing_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(bpf_maps, "create", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        privileges.check_bpf()


@pytest.mark.parametrize(("held", "missing"), [
    ({"CAP_BPF", "CAP_PERFMON", "CAP_DAC_READ_SEARCH"}, ()),
    ({"CAP_SYS_ADMIN", "CAP_DAC_READ_SEARCH"}, ()),
    ({"CAP_BPF", "CAP_DAC_READ_SEARCH"}, ("CAP_PERFMON",)),
    ({"CAP_SYS_ADMIN"}, ("CAP_DAC_READ_SEARCH",)),
    (set(), ("CAP_BPF", "CAP_DAC_READ_SEARCH", "CAP_PERFMON")),
])  # fmt: skip
@pytest.mark.parametrize("user", [0, 1000])
def test_missing_capabilities_are_named(
    monkeypatch: pytest.MonkeyPatch, held: set[str], missing: tuple[str, ...], user: int
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    if not missing:
        privileges.check_capabilities(frozenset(held))
        return
    with pytest.raises(TraceError) as caught:
        privileges.check_capabilities(frozenset(held))
    assert ", ".join(missing) in caught.value.message
    assert len(caught.value.hints) == 3


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in a user namespace."""
    monkeypatch.setattr(bpf_token, "in_container", lambda: True)


@pytest.mark.usefixtures("container")
def test_a_container_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpf_token, "token", lambda: None)
    monkeypatch.setattr(bpf_token, "refusal", lambda: "/sys/fs/bpf: No such file or directory")
    with pytest.raises(TraceError, match=r"in a user namespace, which may not .*: /sys/fs/bpf: No such file") as caught:
        privileges.check_namespace()
    assert len(caught.value.hints) == 3


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(("version", "enough"), [
    ("v1.1", False), ("v1.4.9", False), ("v1.5", True), ("v1.10", True), ("v2", True),
])  # fmt: skip
def test_a_container_with_a_token(monkeypatch: pytest.MonkeyPatch, version: str, enough: bool) -> None:
    monkeypatch.setattr(bpf_token, "token", lambda: 7)
    monkeypatch.setattr(libbpf, "version", lambda: version)
    if enough:
        privileges.check_namespace()
        return
    with pytest.raises(TraceError, match=rf"has a BPF token, and libbpf {version} does not use any") as caught:
        privileges.check_namespace()
    assert len(caught.value.hints) == 3


def test_a_token_that_delegates_no_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> int:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(bpf_maps, "create", refuse)
    monkeypatch.setattr(bpf_token, "token", lambda: 7)
    with pytest.raises(TraceError, match="token of this container does not allow to make maps"):
        privileges.check_bpf()
