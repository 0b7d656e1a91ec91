"""python and pythonret: uprobes in the evaluation loop of the interpreter that a process runs."""

from __future__ import annotations

import os
from collections.abc import Hashable
from contextlib import suppress

from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Target
from pytrace.runtime.attach import uprobe
from pytrace.runtime.attach.base import Attached, CannotAttachError, Job, Outcome, attach_event, attempt
from pytrace.runtime.attach.opened import Opened
from pytrace.runtime.elf.file import ElfFile
from pytrace.runtime.machine import bpf, procfs
from pytrace.runtime.machine.foreign_files import kernel_path
from pytrace.runtime.python import interpreters
from pytrace.runtime.python.eval_loop import EvalLoop, eval_loop
from pytrace.runtime.python.layouts import UnsupportedError


def attach(job: Job, opened: Opened) -> list[Outcome]:
    """Attach a program to the interpreter of the process of ``-p`` or ``-c``, or of several where it is unbound."""
    return [attempt(_attach, job, target, opened) for target in job.spec.targets]


def _attach(job: Job, target: Target, opened: Opened) -> Attached:
    options = job.options
    pids = options.pids or ((options.child,) if options.child is not None else ())
    if not pids:
        raise CannotAttachError("it needs a process", hints=["-p PID or -c COMMAND"])
    # A file is probed once: of several processes in one (each has its own job else) all programs run.
    for path, loop in {_identity(path): (path, loop) for path, loop in map(_interpreter, pids)}.values():
        _attach_file(job, target, path, loop, opened)
    return Attached(job.spec, target)


def _identity(path: str) -> Hashable:
    """The same for all paths of one file."""
    try:
        status = os.stat(path)
    except OSError:
        return path
    return status.st_dev, status.st_ino


def _attach_file(job: Job, target: Target, path: str, loop: EvalLoop, opened: Opened) -> None:
    options = job.options
    # With --follow programs look for followed processes themselves.
    bound = None if options.follow or options.unbound else options.pid or options.child
    offsets = loop.ends if job.returns else loop.entries
    with kernel_path(path) as file:
        if job.multi:
            cookies = [target.cookie] * len(offsets)
            opened.links.append(bpf.link_uprobe_multi(job.program, file, offsets, cookies=cookies, pid=bound or 0))
        elif not options.has("perf_uprobe"):
            raise CannotAttachError("this kernel has no perf uprobes")
        else:
            for offset in offsets:
                attach_event(job, uprobe.open_event(file, offset, 0, returns=False, pid=bound), target.cookie, opened)


def _interpreter(pid: int) -> tuple[str, EvalLoop]:
    """The file of a process's interpreter, and the places in it.

    Raises:
        CannotAttachError: it has none, or one whose functions cannot be probed.
    """
    text = procfs.read_maps(pid)
    if not text:
        raise CannotAttachError(f"there is no process {pid}")
    files = {item.path: None for item in procfs.executable_mappings(text) if item.inode}
    for number, name in enumerate(files):
        if not interpreters.may_have(name, program=not number):
            continue
        path = procfs.root_prefix(pid) + name
        with suppress(OSError, TraceError):
            try:
                with ElfFile.open(path) as file:
                    found = interpreters.interpreter(file)
                    if found is not None:
                        return path, eval_loop(file, found.layout)
            except UnsupportedError as error:
                raise CannotAttachError(f"{name}: {error}") from None
    program = next(iter(files), "")
    hints = ["give the process of the interpreter itself, not that of a wrapper that started it"]
    raise CannotAttachError(f"process {pid} ({program}) runs no CPython that is known", hints=hints)
