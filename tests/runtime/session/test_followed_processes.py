"""Which processes descend from one, and how the kernel's set gets to know all of them while they fork and end."""

from __future__ import annotations

import errno

import pytest

from pytrace.runtime.abi import bpf_maps
from pytrace.runtime.session import followed_processes
from pytrace.runtime.session.followed_processes import Task, descendants, include


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
            followed_processes, "_tasks", lambda _link: self.looks.pop(0) if self.looks[1:] else self.looks[0]
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
    assert include([10], 0, 0) == ([11, 12], 0)
    assert machine.numbers == [11, 12]


def test_a_process_that_ended_between_two_looks_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may come again for a process that nobody follows."""
    machine = Machine(monkeypatch, [ROOT, CHILD, GRANDCHILD], [ROOT, CHILD])
    assert include([10], 0, 0) == ([11], 0)
    assert machine.numbers == [11]


def test_what_the_set_knows_from_forks_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [ROOT, CHILD], [ROOT, CHILD, Task(13, 11, 13)])
    machine.followed.add((13).to_bytes(4, "little"))
    assert include([10], 0, 0) == ([11, 13], 0)
    assert machine.looks == [[ROOT, CHILD, Task(13, 11, 13)]]


def test_a_full_set_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [ROOT, CHILD, GRANDCHILD], room=1)
    assert include([10], 0, 0) == ([11], 1)
    assert machine.numbers == [11]
