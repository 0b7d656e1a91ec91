"""Run a command as root of a new user namespace with a BPF token, as a container manager has to (root, Linux 6.9).

    python3 share/containers/with-token.py COMMAND …

The bpffs is created in the new namespace, is allowed to delegate by root of the machine, and is mounted at /sys/fs/bpf.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER, NEW_MOUNTS = 0x10000000, 0x20000
FSOPEN, FSCONFIG, FSMOUNT, MOVE_MOUNT = 430, 431, 432, 429


def call(number: int, *arguments: object) -> int:
    """A system call by its number."""
    result: int = LIBC.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


outside, inside = socket.socketpair()
child = os.fork()
if not child:
    LIBC.unshare(NEW_USER | NEW_MOUNTS)
    inside.send(b"1")
    inside.recv(1)
    context = call(FSOPEN, b"bpf", 1)  # belongs to the new user namespace
    socket.send_fds(inside, [b"2"], [context])
    inside.recv(1)
    mount = call(FSMOUNT, context, 1, 0)
    call(MOVE_MOUNT, mount, b"", -100, b"/sys/fs/bpf", 4)
    os.execvp(sys.argv[1], sys.argv[1:])
outside.recv(1)
for name in ("uid_map", "gid_map"):
    with open(f"/proc/{child}/{name}", "w") as file:
        file.write("0 0 65536\n")
outside.send(b"1")
_, (context,), _, _ = socket.recv_fds(outside, 1, 1)
for option in (b"delegate_cmds", b"delegate_maps", b"delegate_progs", b"delegate_attachs"):
    call(FSCONFIG, context, 1, option, b"any", 0)  # only root of the machine may
call(FSCONFIG, context, 6, None, None, 0)
outside.send(b"1")
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
