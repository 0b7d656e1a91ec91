"""Errors for resource limits that any step of a run may hit: memory, open files, processes, threads, disk space."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator

from pytrace.core.diagnostics import TraceError

NO_PROCESSES = "ulimit -u and pids.max of the cgroup"
"""Limits of the number of processes and threads, for a hint."""
FILES = frozenset({errno.EMFILE, errno.ENFILE})
_OUTPUT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO})
_NO_MEMORY = (
    "annot allocate memory",
    "failed to map segment",
    "cannot map zero-fill pages",
    "cannot create shared object",
)
"""Messages of the dynamic loader, whose errors have no errno (``dl-load.c`` and ``dl-map-segments.h`` of glibc)."""
_NO_FILES = "oo many open files"


def met_by(error: BaseException) -> TraceError | None:
    """The resource limit that *error*, or one of its causes, reports; None when it is another error."""
    for item in _chain(error):
        limit = _limit(item)
        if limit is not None:
            return limit
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its chain of causes and contexts."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        yield current
        seen.append(current)
        current = current.__cause__ or current.__context__


def _limit(error: BaseException) -> TraceError | None:
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return no_memory()
    if isinstance(error, SystemError) and "without" in str(error) and memory_is_limited():
        # C functions that fail without setting MemoryError: "error return without exception set".
        return no_memory()
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return TraceError("cannot start another thread", hints=(f"see ulimit -v, {NO_PROCESSES}",))
    if number == errno.EAGAIN:
        # fork(2): everything else that may have to be repeated is.
        return TraceError("cannot start another process", hints=(f"see {NO_PROCESSES}",))
    if isinstance(error, OSError) and number in FILES:
        return no_files(error.errno)
    if isinstance(error, OSError) and number in _OUTPUT and error.filename is None:
        # Errors on files have a file name; errors on standard output have none.
        return TraceError(f"cannot write output: {os.strerror(error.errno or 0)}")
    if isinstance(error, ImportError) or (isinstance(error, OSError) and number is None):
        text = str(error)
        if any(said in text for said in _NO_MEMORY):
            return no_memory()
        if _NO_FILES in text:
            return no_files(errno.EMFILE)
    return None


def memory_is_limited() -> bool:
    """Whether ``ulimit`` restricts the memory of this process."""
    limits = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in limits)


def no_files(number: int | None) -> TraceError:
    """The error for EMFILE or ENFILE."""
    hint = "see /proc/sys/fs/file-max" if number == errno.ENFILE else "raise the limit with ulimit -n"
    return TraceError(f"too many open files: {os.strerror(number or 0)}", hints=(hint,))


def no_memory() -> TraceError:
    """The error for a failed allocation, with this process's memory limit, if it has one."""
    hints = []
    for limit, what, option in (
        (resource.RLIMIT_AS, "address space", "-v"),
        (resource.RLIMIT_DATA, "data", "-d"),
    ):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            hints.append(f"this process is limited to {most >> 20} MiB of {what} (ulimit {option})")
    hints += memory_cgroup_hints()
    if not hints:
        hints.append("reduce max_map_keys, max_strlen or perf_rb_pages")
    return TraceError("out of memory", hints=hints)


def memory_cgroup_hints() -> list[str]:
    """A sentence about the tightest memory limit of the cgroups of this process; none where there is no limit."""
    from pytrace.base import cgroups  # after an error

    limit = cgroups.memory_limit()
    if limit is None:
        return []
    return [f"the memory of cgroup {limit.folder} is limited to {limit.size >> 20} MiB, maps included"]
