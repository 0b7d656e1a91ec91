"""pytrace.runtime.abi.perf: what is said where the kernel keeps perf events for root."""

from __future__ import annotations

import errno

import pytest

from pytrace.base import kernel_files
from pytrace.runtime.abi import perf, privileges, syscalls

EVENT = perf.EventAttr(perf.EventType.SOFTWARE, perf.SOFTWARE_DUMMY)


@pytest.mark.parametrize(("level", "held", "said"), [
    ("3\n", {"CAP_PERFMON"}, "kernel.perf_event_paranoid is 3; 2 allows them"),
    ("4\n", set(), "reserves perf events for CAP_SYS_ADMIN"),
    ("3\n", {"CAP_SYS_ADMIN"}, "of the kernel's own"),
    ("2\n", {"CAP_PERFMON"}, "of the kernel's own"),
    ("-1\n", set(), "of the kernel's own"),
    ("", set(), "of the kernel's own"),
])  # fmt: skip
def test_events_that_are_refused(monkeypatch: pytest.MonkeyPatch, level: str, held: set[str], said: str) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "of the kernel's own")

    monkeypatch.setattr(syscalls, "call", refuse)
    monkeypatch.setattr(kernel_files, "read_text", lambda path: level)
    monkeypatch.setattr(privileges, "effective_capabilities", lambda: frozenset(held))
    with pytest.raises(PermissionError, match=said) as caught:
        perf.open_event(EVENT)
    # The attachers have words of their own for EACCES.
    assert caught.value.errno == (errno.EACCES if "own" in said else errno.EPERM)


def test_other_errors_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENODEV, "no such device")

    monkeypatch.setattr(syscalls, "call", refuse)
    with pytest.raises(OSError, match="no such device"):
        perf.open_event(EVENT)
