"""The names that values of typed options may have on this machine, for completion."""

from __future__ import annotations

import os

from pytrace.core.options.option_types import TYPES

_BLOCK = "/sys/class/block"
_CPUS = "/sys/devices/system/cpu"


def offered(kind: str) -> list[str]:
    """The names that an option of the type *kind* may have; none where there is no short list of them."""
    if kind == "cpu":
        return [name[3:] for name in _names(_CPUS) if name[:3] == "cpu" and name[3:].isdigit()]
    if kind == "disk":
        return [name for name in _names(_BLOCK) if not os.path.exists(f"{_BLOCK}/{name}/partition")]
    if kind == "interface":
        import socket

        return [name for _, name in socket.if_nameindex()]
    return list(TYPES[kind].known())


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
