"""Files at paths that another user may have chosen: of traced programs, of containers, in ``/tmp``."""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from pytrace.runtime.abi import syscalls
from pytrace.runtime.host import procfs

if TYPE_CHECKING:
    from collections.abc import Iterator

_IN_ROOT = re.compile(r"(/proc/\d+/root)/+(.+)")
_RESOLVE_IN_ROOT = 0x10
"""Of ``openat2(2)`` (include/uapi/linux/openat2.h)."""


def open_regular(path: str, flags: int = 0) -> BinaryIO:
    """A regular file, opened to read with further *flags* of ``open``.

    Nothing else is opened: opening a pipe waits for a writer, and opening a device can have an effect. Symbolic links
    of a path below ``/proc/PID/root`` are resolved inside of that root, as that process resolves them.

    Raises:
        OSError: there is none, or it cannot be read.
    """
    found = _found(path, flags & os.O_NOFOLLOW)
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return open(f"/proc/self/fd/{found}", "rb")
    finally:
        os.close(found)


@contextmanager
def kernel_path(path: str) -> Iterator[str]:
    """A path by which the kernel finds the same file as :func:`open_regular`, for the time of the block.

    The kernel follows links of a path below ``/proc/PID/root`` to files of our own root, so that whoever can change
    them would choose where a probe is put.

    Raises:
        OSError: there is no such file.
    """
    if _IN_ROOT.fullmatch(path) is None:
        yield path
        return
    found = _found(path, 0)
    try:
        yield f"/proc/self/fd/{found}"
    finally:
        os.close(found)


def _found(path: str, flags: int) -> int:
    """The file itself, not opened for anything (``O_PATH``)."""
    flags |= os.O_PATH | os.O_CLOEXEC
    match = _IN_ROOT.fullmatch(path)
    if match is None:
        return os.open(path, flags)
    root = os.open(match[1], os.O_PATH | os.O_CLOEXEC)
    try:
        name = syscalls.string_memory(match[2])
        # struct open_how: flags, mode, resolve
        how = syscalls.Memory(struct.pack("=QQQ", flags, 0, _RESOLVE_IN_ROOT))
        return syscalls.call("openat2", root, name.address, how.address, len(how.data))
    except OSError as error:
        if error.errno == errno.ENOSYS:  # Linux before 5.6
            return os.open("".join(procfs.resolved(path)), flags | os.O_NOFOLLOW)
        raise OSError(error.errno, os.strerror(error.errno or 0), path) from None
    finally:
        os.close(root)
