"""Builtins about the current process."""

from __future__ import annotations

import pytest

from tests.codegen.running import helpers, printed, ran

VALUES = [
    ("print(pid);", 4321),
    ("print(tid);", 4322),
    ("print(uid);", 1000),
    ("print(gid);", 100),
    ("print(comm);", b"task"),
    ("print(cgroup);", 99),
    ("print(cpu);", 0),
    ("print(numaid);", 3),
    ("print(rand);", 7),
    ("print(ncpus);", 4),
    ("print(has_cpid);", False),
    ("print(ppid);", 0),
]


@pytest.mark.parametrize(("body", "wanted"), VALUES)
def test_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


def test_numbers_and_names_of_related_processes() -> None:
    found = ran("begin { print((ppid, 1)); print(pcomm); }")
    parent = bytearray(4096)
    parent[0:8] = (5).to_bytes(4, "little") + (6).to_bytes(4, "little")
    parent[8:12] = b"init"
    found.write(found.current + 24, found.region(parent).to_bytes(8, "little"))
    found.events.clear()
    found.run()
    ((ppid, _),) = [item for item in found.printed() if isinstance(item, tuple)]
    assert ppid == 6
    assert b"init" in found.printed()


def test_each_number_is_asked_for_by_its_helper() -> None:
    for name, number in (("cpu", 8), ("uid", 15), ("cgroup", 80), ("numaid", 42), ("rand", 7), ("comm", 16)):
        assert number in helpers(ran(f"begin {{ print({name}); }}")), name


def test_cgroup_paths_have_their_filter() -> None:
    (value,) = printed('print(cgroup_path(99, "a*"));')
    assert value[:8] == (99).to_bytes(8, "little")
