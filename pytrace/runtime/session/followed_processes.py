"""``--follow`` of a process that runs already: what it has forked before comes into the kernel's set of processes.

The programs that keep the set (``pytrace.codegen.services.process_following``) run at forks, so they must be
attached first.  Then an iterator lists all processes, again and again until it shows no descendant that the set
lacks: one whose parent was not in the set yet when it was forked is there when the list is next made.
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING, NamedTuple

from pytrace.runtime.abi import bpf_maps
from pytrace.runtime.attach import iterator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROW = struct.Struct("=IIII")
_KEY, _VALUE = struct.Struct("=I"), struct.pack("=I", 1)


class Task(NamedTuple):
    """A process: its number and its parent's in the initial pid namespace, its number in the tracer's one."""

    process: int
    parent: int
    number: int


def include(roots: Sequence[int], link: int, followed: int) -> tuple[list[int], int]:
    """Put the descendants of *roots* into the map *followed*.

    Args:
        roots: processes, as the tracer numbers them.
        link: the iterator's link.
        followed: descriptor of the set.

    Returns:
        The descendants as the tracer numbers them, and how many there was no room for.
    """
    added: set[int] = set()
    refused: set[int] = set()
    while True:
        tasks = _tasks(link)
        family = descendants(roots, tasks)
        # The set forgets a process when the kernel does, which may have been before it was put in.
        for process in added - {task.process for task in tasks}:
            bpf_maps.delete(followed, _KEY.pack(process))
            added.discard(process)
        new = [item.process for item in family if item.process not in refused and not _known(followed, item.process)]
        if not new:
            return [item.number for item in family if item.process not in refused], len(refused)
        for process in new:
            (added if _add(followed, process) else refused).add(process)


def descendants(roots: Sequence[int], tasks: Iterable[Task]) -> list[Task]:
    """Those of *tasks* that descend from those that the tracer numbers *roots*, parents first."""
    children: dict[int, list[Task]] = {}
    starts = []
    for task in tasks:
        children.setdefault(task.parent, []).append(task)
        if task.number in roots:
            starts.append(task.process)
    found = [child for start in starts for child in children.get(start, ())]
    for task in found:
        found += children.get(task.process, ())
    # One of the roots may descend from another.
    return list(dict.fromkeys(found))


def _tasks(link: int) -> list[Task]:
    return [Task(*row[:3]) for row in _ROW.iter_unpack(b"".join(iterator.read(link)))]


def _known(followed: int, process: int) -> bool:
    return bpf_maps.lookup(followed, _KEY.pack(process), _KEY.size) is not None


def _add(followed: int, process: int) -> bool:
    try:
        bpf_maps.update(followed, _KEY.pack(process), _VALUE)
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        return False
    return True
