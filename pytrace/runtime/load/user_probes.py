"""Attachers of user probes: multi links, perf events, or the tracefs interface, whichever the kernel has.

uprobe, uretprobe and usdt are at an offset of a file; python and pythonret are uprobes in the evaluation loop of the
interpreter that a process runs.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Target
from pytrace.core.probe_kinds import (
    PYTHON,
    PYTHONRET,
    UPROBE,
    URETPROBE,
    USDT,
    FileTarget,
    StaticProbeTarget,
    UserTarget,
)
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.load import probe_links
from pytrace.runtime.load.probe_links import (
    Attached,
    Attacher,
    CannotAttachError,
    Job,
    Linker,
    Opened,
    Outcome,
    RefusedTarget,
    attach_event,
    attempt,
    in_one_link,
)
from pytrace.runtime.machine import bpf, perf, procfs, syscalls
from pytrace.runtime.machine.foreign_files import kernel_path, open_regular
from pytrace.runtime.machine.syscalls import ENOTSUPP, string_memory
from pytrace.runtime.stacks import python_interpreters
from pytrace.runtime.stacks.python_interpreters import eval_loop, interpreter

if TYPE_CHECKING:
    from pytrace.runtime.stacks.python_interpreters import EvalLoop

# ---------------------------------------------------------------------------------------------- uprobe, uretprobe, usdt

_REASONS = {
    errno.ENOENT: "there is no such file",
    errno.EACCES: "the file may not be read",
    errno.EIO: "the offset is not in the file's code",
    errno.ESRCH: "there is no such process",
    errno.EBADF: "it is not a regular file",
    errno.EILSEQ: "the offset is not at the start of an instruction that can be probed",
    ENOTSUPP: "the instruction there cannot be probed",
    errno.E2BIG: "too many offsets for one link",
}


def attach_uprobe(job: Job, opened: Opened) -> list[Outcome]:
    """Attach a uprobe, uretprobe or usdt program to all its targets."""
    by_path: dict[str, list[Target]] = {}
    for target in job.spec.targets:
        by_path.setdefault(_probed_file(target), []).append(target)
    refused = {
        target: _explain(target, error)
        for path, targets in by_path.items()
        for target, error in (_refused(path, targets) if job.options.has("perf_uprobe") else ())
    }
    if not job.multi:
        return [
            refused.get(target) or attempt(_attach_uprobe_event, job, target, opened) for target in job.spec.targets
        ]
    outcomes: list[Outcome] = [*refused.values()]
    for path, targets in by_path.items():
        accepted = [target for target in targets if target not in refused]
        if accepted:
            outcomes += in_one_link(job, accepted, _linker(job, path), _explain, opened)
    return outcomes


_USUAL = frozenset((
    *range(0x40, 0x60), 0x0F, 0x31, 0x33, 0x39, 0x3B, 0x66, 0x80, 0x81, 0x83, 0x84, 0x85, 0x88, 0x89, 0x8B, 0x8D, 0x90,
    *range(0xB8, 0xC0), 0xC3, 0xC7, 0xE8, 0xE9, 0xEB, 0xF3, 0xFF,
))  # fmt: skip
"""First bytes of instructions of x86-64 with which functions begin and end; uprobes take those without bad prefixes."""


def _refused(path: str, targets: Sequence[Target]) -> Iterator[tuple[Target, OSError]]:
    """Targets whose instruction the kernel does not probe (a lock prefix, EVEX on kernels that do not know it).

    It says so only where the file is mapped by a process that is traced, which that of ``-c`` is to become; later such
    a probe is left out without a word. So it is asked for this process, with the file mapped.
    """
    if syscalls.machine() != "x86_64":
        return
    with suppress(OSError), kernel_path(path) as file, open_regular(path) as opened:
        for target in targets:
            offset = target.of(FileTarget).offset
            first = os.pread(opened.fileno(), 1, offset)
            if not first or first[0] in _USUAL:
                continue
            start = offset - offset % mmap.ALLOCATIONGRANULARITY
            size, code = offset + 1 - start, mmap.PROT_READ | mmap.PROT_EXEC
            with mmap.mmap(opened.fileno(), size, mmap.MAP_PRIVATE, code, offset=start):
                try:
                    os.close(_open_uprobe(file, offset, _semaphore(target), returns=False, pid=os.getpid()))
                except OSError as error:
                    if error.errno == ENOTSUPP:
                        yield target, error


def _probed_file(target: Target) -> str:
    """The file that the kernel knows: the archive, for a library in one (``ARCHIVE!/MEMBER``)."""
    return target.of(FileTarget).path.partition("!/")[0]


def _semaphore(target: Target) -> int:
    """Where the counter of a static probe lies in the file; 0 without one."""
    return target.place.semaphore_offset if isinstance(target.place, StaticProbeTarget) else 0


def _linker(job: Job, path: str) -> Linker:
    def link(targets: Sequence[Target]) -> int:
        counters = [_semaphore(target) for target in targets]
        with kernel_path(path) as file:
            return bpf.link_uprobe_multi(
                job.program,
                file,
                [target.of(FileTarget).offset for target in targets],
                cookies=[target.cookie for target in targets],
                semaphores=counters if any(counters) else (),
                pid=job.options.uprobe_pid or 0,
                returns=job.returns,
                session=job.multi == "uprobe_session",
            )

    return link


def _explain(target: Target, error: OSError) -> RefusedTarget:
    return RefusedTarget(
        target, _reason(target, error), gone=_gone(target, error), left_out=_left_out(target, error)
    )


def _left_out(target: Target, error: OSError) -> bool:
    """Whether others of a pattern are probed in place of a function whose instruction the kernel refuses."""
    return error.errno == ENOTSUPP and isinstance(target.place, UserTarget) and target.place.found


def _gone(target: Target, error: OSError) -> bool:
    """Whether a file that a pattern found has gone since: its process ended, or it was deleted."""
    return target.of(FileTarget).by_pattern and error.errno in (errno.ENOENT, errno.ESRCH)


def _reason(target: Target, error: OSError) -> str:
    if error.errno == errno.EINVAL:
        return _invalid(target)
    return _REASONS.get(error.errno or 0, str(error.strerror))


def _invalid(target: Target) -> str:
    """Why the kernel refused an offset that was found in the file (``uprobe_register`` in kernel/events/uprobes.c)."""
    offset, counter = target.of(FileTarget).offset, _semaphore(target)
    size = _size(_probed_file(target))
    if size is not None and offset > size:
        return f"the file has only {size} bytes, the offset is {offset}: it was replaced since the script was compiled"
    if counter % 2:
        return f"its counter (semaphore) is at the odd offset {counter}, which the kernel does not accept"
    # alloc_uprobe() refuses another ref_ctr_offset. Tools of bcc in Python pass one that is left on the stack.
    wanted = f"counter (semaphore) at offset {counter:#x}" if counter else "no counter (semaphore)"
    return (
        f"another tracer has a probe at that offset with another counter: this one has {wanted}, and the kernel"
        " allows one for each offset (the kernel's log has 'ref_ctr_offset mismatch' with both). Tools of bcc that"
        " are written in Python pass a random one: end them first"
    )


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _attach_uprobe_event(job: Job, target: Target, opened: Opened) -> Attached:
    options = job.options
    path, offset = _probed_file(target), target.of(FileTarget).offset
    semaphore = _semaphore(target)
    counted = semaphore if options.has("semaphores") else 0
    try:
        if options.has("perf_uprobe"):
            with kernel_path(path) as file:
                event = _open_uprobe(file, offset, counted, returns=job.returns, pid=job.options.uprobe_pid)
        elif options.has("uprobe"):
            with kernel_path(path) as file:
                event = probe_links.open_uprobe(
                    file, offset, counted, returns=job.returns, pid=job.options.uprobe_pid, opened=opened
                )
        else:
            raise CannotAttachError("this kernel has no uprobes (CONFIG_UPROBE_EVENTS)")
        attach_event(job, event, target.cookie, opened)
    except OSError as error:
        raise CannotAttachError(
            _reason(target, error), gone=_gone(target, error), left_out=_left_out(target, error)
        ) from None
    if semaphore and not counted:
        for pid in options.pids or (None,):
            probe_links.raise_semaphore(path, semaphore, pid, everywhere=options.file_activation, opened=opened)
    return Attached(job.spec, target)


def _open_uprobe(path: str, offset: int, semaphore: int, *, returns: bool, pid: int | None) -> int:
    """Open a perf event at an offset of a file."""
    kind = perf.pmu_type("uprobe")
    if kind is None:
        raise CannotAttachError("this kernel has no perf uprobes")
    name = string_memory(path)
    # The reference counter's offset lies in the upper half of config (events/uprobe format ref_ctr_offset).
    config = (perf.pmu_bit("uprobe", "retprobe") if returns else 0) | semaphore << 32
    attr = perf.EventAttr(kind, config=config, config1=name.address, config2=offset)
    if pid is not None:
        return perf.open_event(attr, pid=pid)
    return perf.open_event(attr, cpu=perf.online_cpus()[0])


# ---------------------------------------------------------------------------------------------------- python, pythonret


def attach_python(job: Job, opened: Opened) -> list[Outcome]:
    """Attach a program to the interpreter of the process of ``-p`` or ``-c``, or of several where it is unbound."""
    return [attempt(_attach_python_target, job, target, opened) for target in job.spec.targets]


def _attach_python_target(job: Job, target: Target, opened: Opened) -> Attached:
    pids = job.options.processes if job.options.interpreter is None else (job.options.interpreter,)
    if not pids:
        raise CannotAttachError("it needs a process", hints=["-p PID or -c COMMAND"])
    # A file is probed once: of several processes in one (each has its own job else) all programs run.
    for path, loop in {_file_identity(path): (path, loop) for path, loop in map(_find_interpreter, pids)}.values():
        _attach_interpreter_file(job, target, path, loop, opened)
    return Attached(job.spec, target)


def _file_identity(path: str) -> Hashable:
    """The same for all paths of one file."""
    try:
        status = os.stat(path)
    except OSError:
        return path
    return status.st_dev, status.st_ino


def _attach_interpreter_file(job: Job, target: Target, path: str, loop: EvalLoop, opened: Opened) -> None:
    options = job.options
    # With --follow programs look for followed processes themselves.
    bound = None if options.follow or options.unbound else options.processes[0]
    offsets = loop.ends if job.returns else loop.entries
    with kernel_path(path) as file:
        if job.multi:
            cookies = [target.cookie] * len(offsets)
            opened.links.append(bpf.link_uprobe_multi(job.program, file, offsets, cookies=cookies, pid=bound or 0))
        elif not options.has("perf_uprobe"):
            raise CannotAttachError("this kernel has no perf uprobes")
        else:
            for offset in offsets:
                attach_event(job, _open_uprobe(file, offset, 0, returns=False, pid=bound), target.cookie, opened)


def _eval_loop_of(path: str) -> EvalLoop | None:
    """The places of the interpreter in a file; None if it has none. Errors: :func:`eval_loop`."""
    with ElfFile.open(path) as file:
        found = interpreter(file)
        return None if found is None else eval_loop(file, found.layout)


def _find_interpreter(pid: int) -> tuple[str, EvalLoop]:
    """The file of a process's interpreter, and the places in it.

    Raises:
        CannotAttachError: it has none, or one whose functions cannot be probed.
    """
    text = procfs.read_maps(pid)
    if not text:
        raise CannotAttachError(f"there is no process {pid}")
    files = {item.path: None for item in procfs.executable_mappings(text) if item.inode}
    for number, name in enumerate(files):
        if not python_interpreters.may_have(name, program=not number):
            continue
        path = procfs.root_prefix(pid) + name
        with suppress(OSError, TraceError):
            try:
                loop = _eval_loop_of(path)
                if loop is not None:
                    return path, loop
            except python_interpreters.UnsupportedError as error:
                raise CannotAttachError(f"{name}: {error}") from None
    program = next(iter(files), "")
    hints = ["give the process of the interpreter itself, not that of a wrapper that started it"]
    raise CannotAttachError(f"process {pid} ({program}) runs no CPython that is known", hints=hints)


ATTACHERS: dict[str, Attacher] = {
    UPROBE: attach_uprobe,
    URETPROBE: attach_uprobe,
    USDT: attach_uprobe,
    PYTHON: attach_python,
    PYTHONRET: attach_python,
}
