"""Commands of bpf(2), without a kernel that answers them."""

from __future__ import annotations

import errno

import pytest

from pytrace.runtime.abi import bpf, syscalls


@pytest.mark.parametrize("signals", [0, 1, 20])
def test_a_load_that_signals_break_off_is_tried_again(signals: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([errno.EAGAIN] * signals + [0])

    def call(name: str, number: int, address: int, size: int) -> int:
        assert (name, number) == ("bpf", bpf.Command.PROG_LOAD)
        code = next(answers)
        if code:
            raise OSError(code, "")
        return 5

    monkeypatch.setattr(syscalls, "call", call)
    assert bpf.prog_load(bpf.ProgramType.KPROBE, bytes(16)) == 5
    assert not list(answers)


@pytest.mark.parametrize(("code", "wanted"), [(errno.EINVAL, 1), (errno.EAGAIN, 100)])
def test_a_load_that_fails_for_good(code: int, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def call(name: str, number: int, address: int, size: int) -> int:
        nonlocal made
        made += 1
        raise OSError(code, "")

    monkeypatch.setattr(syscalls, "call", call)
    with pytest.raises(OSError, match=r"bpf\(PROG_LOAD\)") as failure:
        bpf.prog_load(bpf.ProgramType.KPROBE, bytes(16))
    assert (failure.value.errno, made) == (code, wanted)
