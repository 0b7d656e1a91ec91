"""The names that values of typed options may have on this machine."""

from __future__ import annotations

import os

from pytrace.core.options.option_types import TYPES

BLOCK = "/sys/class/block"
"""Disks and partitions; those that are partitions have a file ``partition``."""
_CPUS = "/sys/devices/system/cpu"


def offered(kind: str) -> list[str]:
    """The names that an option of the type *kind* may have; none where there is no short list of them."""
    if kind == "cpu":
        return [name[3:] for name in names(_CPUS) if name[:3] == "cpu" and name[3:].isdigit()]
    if kind == "disk":
        return [name for name in names(BLOCK) if not os.path.exists(f"{BLOCK}/{name}/partition")]
    if kind == "interface":
        import socket

        return [name for _, name in socket.if_nameindex()]
    return list(TYPES[kind].known())


def names(folder: str) -> list[str]:
    """The entries of a folder in order; none if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
