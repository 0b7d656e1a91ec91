"""What an answer of the kernel to a trial says of a feature."""

from __future__ import annotations

import errno
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytrace.runtime.abi import bpf, syscalls
from pytrace.runtime.abi.bpf import ProgramType
from pytrace.runtime.load import feature_probes


def test_a_feature_that_shows_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    assert feature_probes.file_exists("/missing", str(tmp_path / "there"))()
    assert not feature_probes.file_exists("/missing", str(tmp_path / "other"))()


@pytest.mark.parametrize(("number", "has"), [(None, True), (errno.EINVAL, False), (errno.E2BIG, False)], ids=str)
def test_a_refused_request_is_a_missing_feature(number: int | None, *, has: bool) -> None:
    @feature_probes.tried
    def probe(_stack: ExitStack) -> bool:
        if number is not None:
            raise OSError(number, "no")
        return True

    assert probe() == has


def test_a_user_without_rights_cannot_find_out() -> None:
    @feature_probes.tried
    def probe(_stack: ExitStack) -> bool:
        raise PermissionError(errno.EPERM, "no")

    with pytest.raises(PermissionError):
        probe()


@pytest.mark.parametrize(
    ("log", "has"),
    [
        ("0: (85) call bpf_x#7\nR1 type=ctx expected=fp\n", True),
        ("unknown func bpf_x#7\n", False),
        ("program of this type cannot use helper bpf_x#7\n", False),
        (None, False),
    ],
)
def test_a_helper_that_is_refused_for_its_arguments_only_is_there(
    log: str | None, monkeypatch: pytest.MonkeyPatch, *, has: bool
) -> None:
    def load(*_: object, log: syscalls.Memory, **__: object) -> int:
        if text is not None:
            log.data[: len(text)] = text.encode()
        raise OSError(errno.EINVAL, "no")

    text = log
    monkeypatch.setattr(bpf, "prog_load", load)
    assert feature_probes.helper(7, ProgramType.KPROBE)() == has
