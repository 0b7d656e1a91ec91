"""Functions of loaded BPF programs, which others may unload at any moment."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.abi import bpf
from pytrace.runtime.btf import bpf_programs


class Types:
    """Type information of one program."""

    def type_name(self, number: int) -> str:
        return f"function_{number}"


def test_a_program_that_is_unloaded_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its type information is there as long as it is held open itself."""
    held = []

    def open_by_id(kind: str, number: int) -> int:
        assert (kind, number) == ("prog", 5)
        held.append(os.open(tmp_path, os.O_RDONLY))
        return held[-1]

    def types(number: int) -> Types:
        assert number == 7
        try:
            os.fstat(held[-1])
        except OSError:
            raise FileNotFoundError(errno.ENOENT, "no such object") from None
        return Types()

    information = bytearray(232)
    struct.pack_into("=IIQI", information, 128, 7, 8, 0, 2)
    monkeypatch.setattr(bpf, "open_by_id", open_by_id)
    monkeypatch.setattr(bpf, "info_size", lambda descriptor, most: most)
    monkeypatch.setattr(bpf, "info", lambda descriptor, size: bytes(information))
    monkeypatch.setattr(bpf_programs, "_function_records", lambda descriptor, count, size: [1, 2])
    monkeypatch.setattr(bpf_programs, "program_types", types)
    assert bpf_programs.functions(5) == ["function_1", "function_2"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held[-1])


def test_a_program_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(kind: str, number: int) -> int:
        raise FileNotFoundError(errno.ENOENT, kind)

    monkeypatch.setattr(bpf, "open_by_id", gone)
    assert bpf_programs.functions(5) == []


def test_a_user_who_may_not_list_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: str) -> list[int]:
        raise PermissionError(errno.EPERM, kind)

    monkeypatch.setattr(bpf, "ids", refuse)
    with pytest.raises(TraceError) as caught:
        bpf_programs.programs()
    assert "CAP_SYS_ADMIN" in caught.value.hints[0]
