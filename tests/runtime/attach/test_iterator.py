"""pytrace.runtime.attach.iterator: links that are read or pinned, and what refusals of both mean."""

from __future__ import annotations

import errno
import os

import pytest

from pytrace.core.probes.targets import IteratorTarget
from pytrace.runtime.abi import bpf, bpf_maps
from pytrace.runtime.attach import iterator
from pytrace.runtime.attach.base import Attached, Failure, Outcome
from pytrace.runtime.attach.iterator import Task, descendants, include_descendants
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


# ---------------------------------------------------------------------------------------------- descendants

def test_descendants_of_descendants() -> None:
    tasks = [Task(5, 4, 5), Task(1, 0, 1), Task(4, 2, 4), Task(2, 1, 2), Task(3, 1, 3), Task(6, 3, 6)]
    assert [task.process for task in descendants([2], tasks)] == [4, 5]
    assert [task.process for task in descendants([2, 3], tasks)] == [4, 6, 5]
    # A root that descends from another is in the family of that.
    assert [task.process for task in descendants([4, 2], tasks)] == [5, 4]
    assert descendants([5], tasks) == []
    assert descendants([99], tasks) == []


def test_the_root_is_named_by_its_number_here() -> None:
    """In a pid namespace process 1 is another one than the machine's."""
    tasks = [Task(1, 0, 0), Task(700, 1, 1), Task(702, 700, 3), Task(3, 1, 0)]
    assert descendants([1], tasks) == [Task(702, 700, 3)]


class Machine:
    """Processes as they are at each look at them, and the set in the kernel; *room* is the set's size."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looks: list[Task], room: int = 100) -> None:
        self.looks = list(looks)
        self.followed: set[bytes] = set()
        self.room = room
        monkeypatch.setattr(
            iterator, "_tasks", lambda _link: self.looks.pop(0) if self.looks[1:] else self.looks[0]
        )
        monkeypatch.setattr(bpf_maps, "lookup", lambda _fd, key, _size: key if key in self.followed else None)
        monkeypatch.setattr(bpf_maps, "delete", lambda _fd, key: self.followed.discard(key))
        monkeypatch.setattr(bpf_maps, "update", self.update)

    def update(self, _descriptor: int, key: bytes, _value: bytes) -> None:
        if len(self.followed) == self.room:
            raise OSError(errno.E2BIG, "full")
        self.followed.add(key)

    @property
    def numbers(self) -> list[int]:
        return sorted(int.from_bytes(key, "little") for key in self.followed)


ROOT, CHILD, GRANDCHILD = Task(10, 1, 10), Task(11, 10, 11), Task(12, 11, 12)


def test_a_fork_between_two_looks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [ROOT, CHILD], [ROOT, CHILD, GRANDCHILD])
    assert include_descendants([10], 0, 0) == ([11, 12], 0)
    assert machine.numbers == [11, 12]


def test_a_process_that_ended_between_two_looks_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may come again for a process that nobody follows."""
    machine = Machine(monkeypatch, [ROOT, CHILD, GRANDCHILD], [ROOT, CHILD])
    assert include_descendants([10], 0, 0) == ([11], 0)
    assert machine.numbers == [11]


def test_what_the_set_knows_from_forks_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [ROOT, CHILD], [ROOT, CHILD, Task(13, 11, 13)])
    machine.followed.add((13).to_bytes(4, "little"))
    assert include_descendants([10], 0, 0) == ([11, 13], 0)
    assert machine.looks == [[ROOT, CHILD, Task(13, 11, 13)]]


def test_a_full_set_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [ROOT, CHILD, GRANDCHILD], room=1)
    assert include_descendants([10], 0, 0) == ([11], 1)
    assert machine.numbers == [11]
