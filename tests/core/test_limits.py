"""Resource limits are reported as such, wherever they are hit."""

from __future__ import annotations

import errno
import os
import resource

import pytest

from pytrace.base import cgroups
from pytrace.cli import main
from pytrace.core import limits
from pytrace.core.diagnostics import TraceError


def caused(error: Exception, by: Exception, *, on_purpose: bool) -> Exception:
    try:
        try:
            raise by
        except Exception as inner:
            if on_purpose:
                raise error from inner
            raise error  # noqa: B904
    except Exception as raised:  # noqa: BLE001
        return raised


MEMORY = [
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    ImportError("libx.so: failed to map segment from shared object"),
    OSError("libx.so: cannot map zero-fill pages: Cannot allocate memory"),
    caused(ValueError("other"), MemoryError(), on_purpose=True),
    caused(OSError("Could not find/load shared object file"), OSError("failed to map segment from shared object"),
           on_purpose=False),
]  # fmt: skip


@pytest.mark.parametrize("error", MEMORY, ids=repr)
def test_memory(error: Exception) -> None:
    found = limits.met_by(error)
    assert found is not None
    assert found.message == "out of memory"


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (OSError(errno.EMFILE, "x"), "ulimit -n"),
        (OSError(errno.ENFILE, "x"), "/proc/sys/fs/file-max"),
        (ImportError("libx.so: cannot open shared object file: Too many open files"), "ulimit -n"),
    ],
    ids=repr,
)
def test_files(error: Exception, hint: str) -> None:
    found = limits.met_by(error)
    assert found is not None
    assert found.message.startswith("too many open files: Too many open files")
    assert hint in found.hints[0]


def test_threads_and_output() -> None:
    found = limits.met_by(RuntimeError("can't start new thread"))
    assert found is not None
    assert found.message == "cannot start another thread"
    found = limits.met_by(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
    assert found is not None
    assert found.message == "cannot start another process"
    assert found.hints == ("see ulimit -u and pids.max of the cgroup",)
    found = limits.met_by(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert found is not None
    assert found.message == "cannot write output: No space left on device"


@pytest.mark.parametrize(
    "error",
    [
        KeyError(1), RuntimeError("odd"), ImportError("no module"), OSError(errno.EINVAL, "x"),
        OSError(errno.ENOSPC, "x", "file"), OSError("odd"),
    ],
    ids=repr,
)  # fmt: skip
def test_everything_else_is_none(error: Exception) -> None:
    assert limits.met_by(error) is None


@pytest.mark.parametrize(
    ("limit", "option"), [(resource.RLIMIT_AS, "-v"), (resource.RLIMIT_DATA, "-d")], ids=["as", "data"]
)
def test_a_limit_of_memory_is_named(limit: int, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = (resource.RLIM_INFINITY,) * 2
    monkeypatch.setattr(resource, "getrlimit", lambda asked: (300 << 20, 300 << 20) if asked == limit else endless)
    (hint,) = limits.no_memory().hints
    assert "300 MiB" in hint
    assert f"ulimit {option}" in hint


def test_without_a_limit_the_hint_says_what_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert "max_map_keys" in limits.no_memory().hints[0]


def test_the_command_line_tells_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr(main, "_dispatch", fail)
    assert main.main(["-e", "begin { }"]) == TraceError("").status == 1
    assert capsys.readouterr().err.startswith("ERROR: out of memory\nHINT: ")


WITHOUT = ["error return without exception set", "<method> returned NULL without setting an exception"]


@pytest.mark.parametrize("text", WITHOUT)
def test_a_failed_allocation_that_says_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "memory_is_limited", lambda: True)
    found = limits.met_by(SystemError(text))
    assert found is not None
    assert found.message == "out of memory"
    assert limits.met_by(SystemError("bad argument to internal function")) is None
    monkeypatch.setattr(limits, "memory_is_limited", lambda: False)
    assert limits.met_by(SystemError(text)) is None


def test_the_limit_of_the_memory_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "memory_limit", lambda: cgroups.MemoryLimit(100 << 20, "/a"))
    assert limits.memory_cgroup_hints() == ["the memory of cgroup /a is limited to 100 MiB, maps included"]
    monkeypatch.setattr(cgroups, "memory_limit", lambda: None)
    assert limits.memory_cgroup_hints() == []
