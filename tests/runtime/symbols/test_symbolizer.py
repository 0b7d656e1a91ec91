"""pytrace.runtime.symbols.symbolizer: what is said of addresses that this user may not resolve."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytrace.runtime.host import procfs
from pytrace.runtime.host.kallsyms import KERNEL_HALF, Kallsyms
from pytrace.runtime.symbols.symbolizer import Symbolizer


def test_processes_of_others_have_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels before 6.16 show their mappings to CAP_SYS_PTRACE only."""
    monkeypatch.setattr(procfs, "read_maps", lambda pid: b"")
    monkeypatch.setattr(procfs, "hidden", lambda pid: True)
    symbols = Symbolizer()
    assert [frame.name for frame in symbols.user(os.getpid(), 0x1000)] == [""]
    (notice,) = symbols.notices()
    assert "no names of functions of other users' processes" in notice
    assert "CAP_SYS_PTRACE" in notice


def test_ended_processes_are_told_as_such() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    symbols = Symbolizer()
    assert [frame.name for frame in symbols.user(ended.pid, 0x1000)] == [""]
    assert symbols.notices() == [f"user addresses of exited processes are shown as numbers (pid {ended.pid})"]
    assert not procfs.hidden(ended.pid)
    assert not procfs.hidden(os.getpid())


def test_hidden_addresses_of_the_kernel_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kallsyms").write_text("0000000000000000 T startup\n0000000000000000 t helper\n")
    symbols = Symbolizer()
    monkeypatch.setattr(symbols, "_kallsyms", Kallsyms(str(tmp_path / "kallsyms")))
    for address in (KERNEL_HALF + 1, KERNEL_HALF + 2):
        assert [frame.name for frame in symbols.kernel(address)] == [""]
    (notice,) = symbols.notices()
    assert notice.startswith("no names of kernel functions: the kernel hides their addresses (")
