"""Names on this machine that are valid values of typed options."""

from __future__ import annotations

import os

from pytrace.core.options.option_types import TYPES

BLOCK = "/sys/class/block"
"""Disks and partitions; partitions have a file ``partition``."""
_CPUS = "/sys/devices/system/cpu"


def offered(type_: str) -> list[str]:
    """The names that an option of the type *type_* may have; none where there is no short list of them."""
    if type_ == "cpu":
        return [name[3:] for name in names(_CPUS) if name[:3] == "cpu" and name[3:].isdigit()]
    if type_ == "disk":
        return [name for name in names(BLOCK) if not os.path.exists(f"{BLOCK}/{name}/partition")]
    if type_ == "interface":
        import socket

        return [name for _, name in socket.if_nameindex()]
    return list(TYPES[type_].known())


def names(folder: str) -> list[str]:
    """The sorted entries of a directory; none if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
