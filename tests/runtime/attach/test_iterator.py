"""pytrace.runtime.attach.iterator: links that are read or pinned, and what refusals of both mean."""

from __future__ import annotations

import errno
import os

import pytest

from pytrace.core.probes.targets import IteratorTarget
from pytrace.runtime.abi import bpf
from pytrace.runtime.attach import iterator
from pytrace.runtime.attach.base import Attached, Failure, Outcome
from pytrace.runtime.attach.opened import Opened
from tests.support.attach_requests import PROGRAM, Kernel, job, kernel, spec, target

UNMOUNTED = "its directory must be in a mounted bpffs (mount -t bpf bpf /sys/fs/bpf)"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = kernel(monkeypatch)
    monkeypatch.setattr(bpf, "obj_pin", made.answer("obj_pin"))
    return made


def attached(pin: str = "") -> Outcome:
    opened = Opened()
    (found,) = iterator.attach(job(spec("p", "iter", (target(IteratorTarget("task", pin)),))), opened)
    opened.close()
    return found


def test_a_link_to_read(fake: Kernel) -> None:
    found = attached()
    assert isinstance(found, Attached)
    assert (found.iterator, found.note) == (fake.opened[0], "")
    assert fake.arguments("link_iter") == [(PROGRAM,)]
    assert fake.arguments("obj_pin") == []


@pytest.mark.parametrize(("pin", "path"), [("mine", "/sys/fs/bpf/mine"), ("/mnt/bpf/mine", "/mnt/bpf/mine")])
def test_a_pinned_link_is_not_read(fake: Kernel, pin: str, path: str) -> None:
    found = attached(pin)
    assert isinstance(found, Attached)
    assert (found.iterator, found.note) == (None, f"kind:x is pinned; read {path} to run it")
    assert fake.arguments("obj_pin") == [(fake.opened[0], path)]


@pytest.mark.parametrize(
    ("call", "number", "reason"),
    [
        ("link_iter", errno.EBADF, "it iterates over one map or cgroup, which a probe cannot name"),
        ("link_iter", errno.EINVAL, "it iterates over one map or cgroup, which a probe cannot name"),
        ("link_iter", errno.EPERM, "Operation not permitted"),
        ("obj_pin", errno.EEXIST, "/sys/fs/bpf/mine already exists"),
        ("obj_pin", errno.EPERM, f"cannot pin to /sys/fs/bpf/mine: {UNMOUNTED}"),
        ("obj_pin", errno.EROFS, "cannot pin to /sys/fs/bpf/mine: Read-only file system"),
    ],
)  # fmt: skip
def test_refusals_in_words(fake: Kernel, call: str, number: int, reason: str) -> None:
    fake.errors[call] = number
    found = attached("mine")
    assert isinstance(found, Failure)
    assert found.reason == reason
    assert fake.left_open == []


def test_reading_goes_on_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel asks to come again when a program had to give up its CPU."""
    read, write = os.pipe()
    os.write(write, b"one two")
    monkeypatch.setattr(bpf, "iter_create", lambda link: read)
    pieces = iter([b"one ", BlockingIOError(errno.EAGAIN, "again"), b"two", b""])

    def some(descriptor: int, size: int) -> bytes:
        assert descriptor == read
        piece = next(pieces)
        if isinstance(piece, Exception):
            raise piece
        return piece

    monkeypatch.setattr(os, "read", some)
    assert list(iterator.read(3)) == [b"one ", b"two"]
    os.close(write)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)


def test_a_reading_that_fails_closes_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    monkeypatch.setattr(bpf, "iter_create", lambda link: read)
    os.set_blocking(read, True)
    monkeypatch.setattr(os, "read", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output error"):
        list(iterator.read(3))
    os.close(write)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)
