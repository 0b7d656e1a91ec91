"""Landlock (Linux 5.13): limits on the files and sockets that this thread may reach from now on.

A kernel with an older ABI handles fewer of the rights below; each is asked for only where the kernel knows it.
Files and sockets that are open already stay usable. Source: include/uapi/linux/landlock.h.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

import msgspec

from pytrace.runtime.machine import syscalls
from pytrace.runtime.machine.syscalls import Memory

_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 5, 1 << 7, 1 << 8
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE
"""Rights that a rule for a file, not a directory, may have."""

_READ = READ_FILE | READ_DIR
_WRITE = _READ | WRITE_FILE | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER | _TRUNCATE
"""Rights to replace a file: create it, write it, rename it. None of them creates devices, links or sockets."""

_FILE_RIGHTS = ((1, (1 << 13) - 1), (2, _REFER), (3, _TRUNCATE), (5, 1 << 15))
_NET_RIGHTS = ((4, 0b11),)
"""``BIND_TCP`` and ``CONNECT_TCP``."""
_SCOPES = ((6, 0b11),)
"""Abstract UNIX sockets, and signals, of processes outside."""
BIND_TCP, CONNECT_TCP = 1, 2
ABSTRACT_SOCKETS, SIGNALS = 1, 2


class Limits(msgspec.Struct, frozen=True):
    """The accesses that stay allowed. Paths are files, or directories with everything below them."""

    read: tuple[str, ...]
    """Empty: reading is not limited."""
    write: tuple[str, ...]
    """Directories in which files may be created, replaced and removed."""
    connections: bool
    """Whether TCP connections to others may be made; none are accepted on new sockets."""
    signals: bool
    """Whether processes outside may be sent signals."""


@cache
def abi() -> int:
    """The version of the kernel's Landlock; 0 where it has none or does not use it."""
    try:
        return syscalls.call("landlock_create_ruleset", 0, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def restrict(limits: Limits, version: int) -> None:
    """Limit this thread and all that it starts; ``no_new_privs`` must be set. *version* is that of :func:`abi`.

    Raises:
        OSError: the kernel refuses.
    """
    files, net, scopes = handled(limits, version)
    attributes = Memory(struct.pack("=QQQ", files, net, scopes))
    ruleset = syscalls.call("landlock_create_ruleset", attributes.address, len(attributes.data), 0)
    try:
        _allow(ruleset, limits.read, _READ & files)
        _allow(ruleset, limits.write, _WRITE & files)
        syscalls.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def handled(limits: Limits, version: int) -> tuple[int, int, int]:
    """Rights on files, on TCP, and scopes that are refused unless a rule allows them."""
    files, net, scopes = (_known(table, version) for table in (_FILE_RIGHTS, _NET_RIGHTS, _SCOPES))
    if not limits.read:
        files &= ~_READ
    if limits.connections:
        net &= ~CONNECT_TCP
        scopes &= ~ABSTRACT_SOCKETS
    return files, net, scopes & ~SIGNALS if limits.signals else scopes


def _known(table: tuple[tuple[int, int], ...], version: int) -> int:
    return sum(rights for first, rights in table if version >= first)


def _allow(ruleset: int, paths: Iterable[str], rights: int) -> None:
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
