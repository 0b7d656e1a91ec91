"""pytrace.runtime.abi.privileges: what is said of missing rights, by texts and error numbers made by hand."""

from __future__ import annotations

import errno

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.abi import bpf_maps, privileges
from pytrace.runtime.host import fingerprints

FIRST = "         0          0 4294967295\n"
ROOTLESS = "         0       1000          1\n"


@pytest.mark.parametrize(
    ("uid_map", "inner"), [(FIRST, False), (ROOTLESS, True), ("", False), (FIRST + ROOTLESS, True)]
)
def test_user_namespaces(uid_map: str, inner: bool) -> None:
    assert privileges.user_namespace(uid_map) is inner


@pytest.mark.parametrize(("number", "uid_map", "said"), [
    (errno.EPERM, FIRST, "does not allow the bpf system call"),
    (errno.EACCES, FIRST, "does not allow the bpf system call"),
    (errno.EPERM, ROOTLESS, "root in a user namespace only"),
    (errno.ENOSYS, FIRST, "this kernel cannot run BPF programs: Function not implemented"),
])  # fmt: skip
def test_a_refused_system_call(monkeypatch: pytest.MonkeyPatch, number: int, uid_map: str, said: str) -> None:
    def refuse(*_: int) -> int:
        raise OSError(number, "Function not implemented")

    monkeypatch.setattr(bpf_maps, "create", refuse)
    monkeypatch.setattr(fingerprints, "read_text", lambda path: uid_map)
    with pytest.raises(TraceError, match=said):
        privileges.check_bpf()


def test_limits_are_not_taken_for_missing_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(bpf_maps, "create", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        privileges.check_bpf()


@pytest.mark.parametrize(("held", "missing"), [
    ({"CAP_BPF", "CAP_PERFMON", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH"}, ()),
    ({"CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH"}, ()),
    ({"CAP_BPF", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH"}, ("CAP_PERFMON",)),
    ({"CAP_SYS_ADMIN"}, ("CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH")),
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
    assert ", ".join(missing) in " ".join((caught.value.message, *caught.value.hints))
