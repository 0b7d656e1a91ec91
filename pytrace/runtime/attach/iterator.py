"""iter: a link from which files can be opened; reading such a file runs the program for each object.

With ``--follow`` an iterator over tasks finds the existing descendants of a traced process. The programs that keep the
kernel's set of followed processes (``pytrace.codegen.walkers.processes``) run at forks, so they are attached
first. Then all processes are listed until there is no descendant that the set lacks: a process whose parent was not in
the set yet when it was forked is in the next list.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pytrace.core.manifest import Target
from pytrace.core.probes.targets import BPF_FILE_SYSTEM, IteratorTarget
from pytrace.runtime.attach.base import Attached, CannotAttachError, Job, one_by_one
from pytrace.runtime.attach.opened import Opened
from pytrace.runtime.machine import bpf


@one_by_one
def attach(job: Job, target: Target, opened: Opened) -> Attached:
    """Link an iterator, and pin the link if the probe names a file."""
    try:
        link = bpf.link_iter(job.program)
    except OSError as error:
        if error.errno in {errno.EBADF, errno.EINVAL}:
            reason = "it iterates over one map or cgroup, which a probe cannot name"
            raise CannotAttachError(reason) from None
        raise
    opened.links.append(link)
    pin = target.of(IteratorTarget).pin
    if not pin:
        return Attached(job.spec, target, iterator=link)
    path = pin if pin.startswith("/") else f"{BPF_FILE_SYSTEM}/{pin}"
    try:
        bpf.obj_pin(link, path)
    except OSError as error:
        raise CannotAttachError(_pin_reason(path, error)) from None
    return Attached(job.spec, target, note=f"{target.probe} is pinned; read {path} to run it")


def _pin_reason(path: str, error: OSError) -> str:
    if error.errno == errno.EEXIST:
        return f"{path} already exists"
    if error.errno in {errno.EPERM, errno.ENOENT, errno.EINVAL}:
        return f"cannot pin to {path}: its directory must be in a mounted bpffs (mount -t bpf bpf {BPF_FILE_SYSTEM})"
    if error.errno == errno.EACCES:
        return f"cannot pin to {path}: this user may not write there (root and CAP_DAC_OVERRIDE may)"
    return f"cannot pin to {path}: {error.strerror}"


def read(link: int) -> Iterator[bytes]:
    """Run an iterator to its end. Yields what the program writes."""
    descriptor = bpf.iter_create(link)
    try:
        while True:
            try:
                text = os.read(descriptor, 1 << 16)
            except OSError as error:
                # The kernel asks to come again when a program had to give up its CPU.
                if error.errno == errno.EAGAIN:
                    continue
                raise
            if not text:
                return
            yield text
    finally:
        os.close(descriptor)


_ROW = struct.Struct("=IIII")
_KEY, _VALUE = struct.Struct("=I"), struct.pack("=I", 1)


class Task(NamedTuple):
    """A process: its id and its parent's in the initial pid namespace, its id in the tracer's one."""

    process: int
    parent: int
    number: int


def include_descendants(roots: Sequence[int], link: int, followed: int) -> tuple[list[int], int]:
    """Put the descendants of *roots* into the map *followed*.

    Args:
        roots: processes, as the tracer numbers them.
        link: the iterator's link.
        followed: descriptor of the set.

    Returns:
        The descendants as the tracer numbers them, and the number of those that did not fit the map.
    """
    added: set[int] = set()
    refused: set[int] = set()
    while True:
        tasks = _tasks(link)
        family = descendants(roots, tasks)
        # The set forgets a process when the kernel does, which may have been before it was put in.
        for process in added - {task.process for task in tasks}:
            bpf.map_delete(followed, _KEY.pack(process))
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
    family = [child for start in starts for child in children.get(start, ())]
    for task in family:
        family += children.get(task.process, ())
    # One of the roots may descend from another.
    return list(dict.fromkeys(family))


def _tasks(link: int) -> list[Task]:
    return [Task(*row[:3]) for row in _ROW.iter_unpack(b"".join(read(link)))]


def _known(followed: int, process: int) -> bool:
    return bpf.map_lookup(followed, _KEY.pack(process), _KEY.size) is not None


def _add(followed: int, process: int) -> bool:
    try:
        bpf.map_update(followed, _KEY.pack(process), _VALUE)
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        return False
    return True
