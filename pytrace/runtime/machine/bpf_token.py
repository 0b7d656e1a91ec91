"""The BPF token of a container (Linux 6.9): the right to use some of ``bpf(2)`` in a user namespace.

Who manages the container mounts a bpffs for it and says what it delegates (``delegate_cmds``, ``delegate_maps``,
``delegate_progs``, ``delegate_attachs``). A process with CAP_BPF in that user namespace makes a token of the mount, and
hands it over with each command. libbpf does so from 1.5 on, with the bpffs where this module finds it, too.
"""

from __future__ import annotations

import os
import struct
from functools import cache

from pytrace.runtime.machine import syscalls
from pytrace.runtime.machine.syscalls import Memory

PATH_VARIABLE, DEFAULT_PATH = "LIBBPF_BPF_TOKEN_PATH", "/sys/fs/bpf"
"""The variable that names the bpffs to libbpf, and where that is otherwise."""
FLAG = 1 << 16
"""``BPF_F_TOKEN_FD``: a descriptor of a token is among the attributes."""
_TOKEN_CREATE = 36
_FIRST_NAMESPACE = "user:[4026531837]"
"""The user namespace of the machine has this number on every kernel (``PROC_USER_INIT_INO``)."""


def user_namespace() -> str:
    """The user namespace of this process, as the kernel shows it; empty on a kernel without any."""
    try:
        return os.readlink("/proc/self/ns/user")
    except OSError:
        return ""


def in_container() -> bool:
    """Whether this process is in another user namespace than that of the machine."""
    return user_namespace() not in ("", _FIRST_NAMESPACE)


def path() -> str:
    """The bpffs that a token is made of; empty when the user wants none."""
    return os.environ.get(PATH_VARIABLE, DEFAULT_PATH)


@cache
def token() -> int | None:
    """A descriptor of the token, open until the process ends; None where there is none. See :func:`refusal`."""
    made = _make()
    return made if isinstance(made, int) else None


@cache
def refusal() -> str:
    """Why there is no token, in a user namespace; otherwise empty."""
    made = _make()
    return made if isinstance(made, str) else ""


@cache
def _make() -> int | str | None:
    # Only there a token is of use, and only there the kernel makes one.
    if not path() or not in_container():
        return None
    try:
        folder = os.open(path(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return f"{path()}: {error.strerror}"
    try:
        attributes = Memory(struct.pack("=II", 0, folder))
        return syscalls.call("bpf", _TOKEN_CREATE, attributes.address, len(attributes.data))
    except OSError as error:
        return f"no BPF token of {path()}: {os.strerror(error.errno or 0)}"
    finally:
        os.close(folder)
