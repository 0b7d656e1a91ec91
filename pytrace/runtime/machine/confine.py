"""Limits that a run puts on itself once its probes are attached: a filter of system calls, and Landlock.

The filter (seccomp(2)) lists what is refused, not what is allowed. An allowed list would have to name every call that
some C library, Python release or architecture makes for what it has always done (``clone3``, ``rseq``, ``faccessat2``,
``futex_waitv`` came in the last years), and a missing one breaks a run in the middle. What is listed here are calls
that open new ways into the kernel or to other processes, which no library makes on its own. A refused call fails with
an error number (``EPERM``, and ``ENOSYS`` where libraries try something older then); nothing is killed. The price is
that a new system call is allowed until it is listed; capabilities, ``no_new_privs`` and Landlock hold for these, too.

Landlock (Linux 5.13) limits the files and sockets that this thread may reach from now on. A kernel with an older ABI
handles fewer of the rights below; each is asked for only where the kernel knows it. Files and sockets that are open
already stay usable. Source: include/uapi/linux/landlock.h.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from enum import IntEnum

import msgspec

from pytrace.runtime.machine import syscalls
from pytrace.runtime.machine.bpf import Command
from pytrace.runtime.machine.syscalls import Memory

# ---------------------------------------------------------------------------------------------- filter of system calls

_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
"""``SECCOMP_RET_ALLOW``, ``SECCOMP_RET_ERRNO``."""
_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06
"""Classic BPF: load a word of ``struct seccomp_data``, jumps, mask, return."""
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16

_X32 = 0x40000000
"""``__X32_SYSCALL_BIT``: calls of the x32 ABI, which x86-64 kernels may also have."""

FILTER_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "riscv64": 0xC00000F3, "loongarch64": 0xC0000102}
"""``AUDIT_ARCH_…`` of the machines that have a filter. All others do without."""

_GENERIC = {
    "clone3": 435, "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431,
    "fsmount": 432, "fspick": 433, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442,
    "process_mrelease": 448, "openat2": 437, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466,
}  # fmt: skip
"""Numbers that all architectures share."""

_TABLE = """
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, execve 59 221, execveat 322 281,
mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, setns 308 268, unshare 272 97, clone 56 220,
init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294,
reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, quotactl 179 60, vhangup 153 58,
perf_event_open 298 241, bpf 321 280, userfaultfd 323 282, fanotify_init 300 262, socket 41 198,
keyctl 250 219, add_key 248 217, request_key 249 218, syslog 103 116, settimeofday 164 170, clock_settime 227 112,
adjtimex 159 171, clock_adjtime 305 266, sethostname 170 161, setdomainname 171 162, iopl 172 -, ioperm 173 -,
migrate_pages 256 238, move_pages 279 239, open_by_handle_at 304 265, open 2 -, openat 257 56, creat 85 -,
mkdir 83 -, mkdirat 258 34, rename 82 -, renameat 264 38, renameat2 316 276, link 86 -, linkat 265 37, unlink 87 -,
unlinkat 263 35, rmdir 84 -, symlink 88 -, symlinkat 266 36, mknod 133 -, mknodat 259 33, truncate 76 45,
chmod 90 -, fchmodat 268 53, chown 92 -, lchown 94 -, fchownat 260 54, setxattr 188 5, lsetxattr 189 6,
removexattr 197 14, lremovexattr 198 15
"""
"""Names with the numbers of x86-64 and of the others (asm-generic), which lack some."""

_ALWAYS = (
    # other processes and their memory
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "pidfd_getfd", "kcmp",
    "migrate_pages", "move_pages", "execve", "execveat",
    # the kernel
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
    "swapon", "swapoff", "acct", "quotactl", "vhangup", "syslog", "userfaultfd", "io_uring_setup", "iopl", "ioperm",
    "keyctl", "add_key", "request_key", "settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "sethostname",
    "setdomainname", "fanotify_init",
    # mounts and namespaces
    "mount", "umount2", "pivot_root", "chroot", "setns", "unshare", "open_tree", "move_mount", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr", "open_by_handle_at",
    # files by name: kinds and changes that no output of a run takes
    "symlink", "symlinkat", "mknod", "mknodat", "truncate", "chown", "lchown", "fchownat", "rmdir", "setxattr",
    "lsetxattr", "setxattrat", "removexattr", "lremovexattr", "removexattrat",
)  # fmt: skip
_MAKING = (
    "mkdir", "mkdirat", "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "chmod", "fchmodat",
    "fchmodat2",
)  # fmt: skip
"""System calls that create and replace files."""

_OLDER = ("clone3", "openat2")
"""Calls whose flags are in memory, where no filter can see them: C libraries and pytrace do without (ENOSYS)."""

_COMMANDS = (
    Command.MAP_LOOKUP_ELEM, Command.MAP_UPDATE_ELEM, Command.MAP_DELETE_ELEM, Command.MAP_GET_NEXT_KEY,
    Command.PROG_TEST_RUN, Command.OBJ_GET_INFO_BY_FD, Command.MAP_LOOKUP_BATCH,
    Command.MAP_LOOKUP_AND_DELETE_BATCH, Command.MAP_UPDATE_BATCH, Command.ITER_CREATE,
)  # fmt: skip
"""Commands of ``bpf(2)`` on what is open already; all others make or find objects of the kernel."""

_NEW_NAMESPACES = 0x7E020080
"""``CLONE_NEWNS``, ``…CGROUP``, ``…UTS``, ``…IPC``, ``…USER``, ``…PID``, ``…NET``, ``…TIME``."""
_OPENS_TO_CHANGE = 0x3 | 0x40 | 0x200
"""``O_ACCMODE``, ``O_CREAT``, ``O_TRUNC``: the same on all machines of the table."""
_NEW_FILE, _UNNAMED = 0x40 | 0x80, 0x400000
"""``O_CREAT | O_EXCL``, and the part of ``O_TMPFILE`` that is not ``O_DIRECTORY``."""


class Family(IntEnum):
    """Address families (``socket.AF_…``; that module takes milliseconds to import)."""

    UNIX = 1
    INET = 2
    INET6 = 10
    NETLINK = 16


class CallRules(msgspec.Struct, frozen=True):
    """The operations that the filter allows beside reading."""

    families: tuple[Family, ...] = ()
    """Address families of new sockets."""
    new_files: bool = False
    """Whether files may be created and replaced."""
    cpu_events: bool = False
    """Whether perf events of a whole CPU may be opened, and loaded programs be put on them."""
    links: bool = False
    """Whether loaded programs may be attached again."""
    existing_files: bool = False
    """Whether existing files may be opened for writing."""


def filter_available() -> bool:
    """Whether this machine has a filter: a 64-bit Python on a machine of :data:`ARCHITECTURES`."""
    return syscalls.machine() in FILTER_ARCHITECTURES and sys.maxsize > 1 << 32


def call_numbers(machine: str) -> dict[str, int]:
    """System call numbers of a machine, by name, without those that it lacks."""
    column = 1 if machine == "x86_64" else 2
    rows = (row.split() for row in _TABLE.split(","))
    return _GENERIC | {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def install_filter(rules: CallRules) -> None:
    """Filter the system calls of all threads of this process; ``no_new_privs`` must be set.

    Raises:
        OSError: the kernel refuses, or has no filters.
    """
    code = Memory(b"".join(filter_program(rules, syscalls.machine())))
    # struct sock_fprog, as a pointer is aligned
    filter_ = Memory(struct.pack("=HxxxxxxQ", len(code.data) // 8, code.address))
    syscalls.call("seccomp", _SET_MODE_FILTER, _ALL_THREADS, filter_.address)


def filter_program(rules: CallRules, machine: str) -> list[bytes]:
    """The instructions of the filter."""
    known = call_numbers(machine)
    architecture = FILTER_ARCHITECTURES[machine]
    code = [_load(_ARCH), _jump(_JUMP_EQUAL, architecture, 1, 0), _refuse(errno.ENOSYS), _load(_NUMBER)]
    if machine == "x86_64":
        code += [_jump(_JUMP_AT_LEAST, _X32, 0, 1), _refuse(errno.ENOSYS)]
    refused = [*_ALWAYS, *(() if rules.new_files else _MAKING)]
    for name in refused:
        code += _of_call(known, name, [_refuse()])
    for name in _OLDER:
        code += _of_call(known, name, [_refuse(errno.ENOSYS)])
    attaching = [Command.LINK_CREATE] if rules.cpu_events or rules.links else []
    code += _of_call(known, "bpf", _unless_one_of((*_COMMANDS, *attaching)))
    code += _of_call(known, "perf_event_open", _unless_of_cpus() if rules.cpu_events else [_refuse()])
    code += _of_call(known, "socket", _unless_one_of(rules.families))
    code += _of_call(known, "clone", [_load(_ARGUMENTS), _jump(_JUMP_SET, _NEW_NAMESPACES, 0, 1), _refuse(), _allow()])
    if not rules.existing_files:
        code += _of_call(known, "creat", [_refuse()])
        for name, position in (("open", 1), ("openat", 2)):
            code += _of_call(known, name, _unless_new(rules, _ARGUMENTS + 8 * position))
    return [*code, _allow()]


def _of_call(known: dict[str, int], name: str, body: list[bytes]) -> list[bytes]:
    """*body* for one call; others go on after it with the number loaded."""
    return [_jump(_JUMP_EQUAL, known[name], 0, len(body)), *body] if name in known else []


def _unless_one_of(values: Iterable[int]) -> list[bytes]:
    """Refuse a call whose first argument is none of *values*."""
    checks = [part for value in values for part in (_jump(_JUMP_EQUAL, value, 0, 1), _allow())]
    return [_load(_ARGUMENTS), *checks, _refuse()]


def _unless_of_cpus() -> list[bytes]:
    """Refuse events of a process: the second argument of those of a CPU is -1."""
    return [_load(_ARGUMENTS + 8), _jump(_JUMP_EQUAL, 0xFFFFFFFF, 1, 0), _refuse(), _allow()]


def _unless_new(rules: CallRules, flags: int) -> list[bytes]:
    """Refuse to open a file to write; with *new_files* only one that exists."""
    code = [_load(flags), _jump(_JUMP_SET, _OPENS_TO_CHANGE, 1, 0), _allow()]
    if rules.new_files:
        code += [_jump(_JUMP_SET, _UNNAMED, 0, 1), _allow()]
        code += [_instruction(_AND, 0, 0, _NEW_FILE), _jump(_JUMP_EQUAL, _NEW_FILE, 0, 1), _allow()]
    return [*code, _refuse()]


def _instruction(code: int, when: int, otherwise: int, value: int) -> bytes:
    """``struct sock_filter``; jumps count instructions from the next one on."""
    return struct.pack("=HBBI", code, when, otherwise, value)


def _load(offset: int) -> bytes:
    """Load a word; all machines of the table are little-endian, so the low half of an argument comes first."""
    return _instruction(_LOAD, 0, 0, offset)


def _jump(code: int, value: int, when: int, otherwise: int) -> bytes:
    return _instruction(code, when, otherwise, value)


def _allow() -> bytes:
    return _instruction(_RETURN, 0, 0, _ALLOW)


def _refuse(error: int = errno.EPERM) -> bytes:
    return _instruction(_RETURN, 0, 0, _ERROR | error)


# ---------------------------------------------------------------------------------------------- Landlock

_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 5, 1 << 7, 1 << 8
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_OF_FILES = _EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE
"""Rights that a rule for a file, not a directory, may have."""

_READ = READ_FILE | READ_DIR
_WRITE = _READ | WRITE_FILE | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER | _TRUNCATE
"""Rights to replace a file: create it, write it, rename it. None of them creates devices, links or sockets."""

_FILE_RIGHTS = ((1, (1 << 13) - 1), (2, _REFER), (3, _TRUNCATE), (5, 1 << 15))
_NET_RIGHTS = ((4, 0b11),)
"""``BIND_TCP`` and ``_CONNECT_TCP``."""
_SCOPES = ((6, 0b11),)
"""Abstract UNIX sockets, and signals, of processes outside."""
BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_SOCKETS, SIGNALS = 1, 2


class AccessLimits(msgspec.Struct, frozen=True):
    """The accesses that stay allowed. Paths are files, or directories with everything below them."""

    read: tuple[str, ...]
    """Empty: reading is not limited."""
    write: tuple[str, ...]
    """Directories in which files may be created, replaced and removed."""
    connections: bool
    """Whether TCP connections to others may be made; none are accepted on new sockets."""
    signals: bool
    """Whether processes outside may be sent signals."""


def landlock_version() -> int:
    """The version of the kernel's Landlock; 0 where it has none or does not use it."""
    try:
        return syscalls.call("landlock_create_ruleset", 0, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def restrict_access(limits: AccessLimits, version: int) -> None:
    """Limit this thread and all that it starts, by Landlock of a *version* (:func:`landlock_version`).

    ``no_new_privs`` must be set.

    Raises:
        OSError: the kernel refuses.
    """
    files, net, scopes = handled_rights(limits, version)
    attributes = Memory(struct.pack("=QQQ", files, net, scopes))
    ruleset = syscalls.call("landlock_create_ruleset", attributes.address, len(attributes.data), 0)
    try:
        _add_rules(ruleset, limits.read, _READ & files)
        _add_rules(ruleset, limits.write, _WRITE & files)
        syscalls.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def handled_rights(limits: AccessLimits, version: int) -> tuple[int, int, int]:
    """Rights on files, on TCP, and scopes that are refused unless a rule allows them."""
    files, net, scopes = (_known_rights(table, version) for table in (_FILE_RIGHTS, _NET_RIGHTS, _SCOPES))
    if not limits.read:
        files &= ~_READ
    if limits.connections:
        net &= ~_CONNECT_TCP
        scopes &= ~_ABSTRACT_SOCKETS
    return files, net, scopes & ~SIGNALS if limits.signals else scopes


def _known_rights(table: tuple[tuple[int, int], ...], version: int) -> int:
    return sum(rights for first, rights in table if version >= first)


def _add_rules(ruleset: int, paths: Iterable[str], rights: int) -> None:
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                of_files = 0 if stat.S_ISDIR(os.fstat(descriptor).st_mode) else ~_OF_FILES
                # struct landlock_path_beneath_attr is packed.
                rule = Memory(struct.pack("=Qi", rights & ~of_files, descriptor))
                syscalls.call("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, rule.address, 0)
            finally:
                os.close(descriptor)
