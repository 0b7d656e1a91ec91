"""Numbers and registers of system calls."""

from __future__ import annotations

import pytest

from pytrace.core.probes.system_calls import ABIS, GENERIC, X86_64, names, numbers


def test_the_names_are_those_of_tracepoints() -> None:
    known = numbers("x86_64")
    assert [known[name] for name in ("read", "newfstat", "umount", "sendfile64", "openat", "restart_syscall")] == [
        0, 5, 166, 40, 257, 219,
    ]  # fmt: skip
    assert "fstat" not in known
    assert "umount2" not in known
    assert len(set(known.values())) == len(known)


def test_generic_numbers() -> None:
    known = numbers("aarch64")
    wanted = {"statfs": 43, "truncate": 45, "ftruncate": 46, "openat": 56, "lseek": 62, "read": 63, "newfstatat": 79,
              "newfstat": 80, "sendfile64": 71, "clone": 220, "mmap": 222, "wait4": 260, "openat2": 437}  # fmt: skip
    assert {name: known[name] for name in wanted} == wanted


def test_a_machine_without_a_table() -> None:
    assert numbers("s390x") == {}


def test_gaps_have_no_names() -> None:
    assert names("a @3 d") == ["a", "", "", "d"]
    assert names(X86_64)[335] == "uretprobe"
    assert names(GENERIC)[244] == ""


@pytest.mark.parametrize("machine", ABIS)
def test_registers_do_not_overlap(machine: str) -> None:
    abi = ABIS[machine]
    assert len({*abi.arguments, abi.number}) == 7
    assert all(offset % 8 == 0 for offset in (*abi.arguments, abi.number))
