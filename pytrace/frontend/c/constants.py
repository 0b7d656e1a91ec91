"""Built-in constants of kernel headers, for machines without installed headers.

Macros exist in headers only, not in BTF. Those with fixed values (part of the user-space API, or unchanged for years)
are in ``constants.json``, which scripts/generate-constants writes. What may differ between kernels is derived from
enumerators in BTF, or left out.

A script's own definition, an installed header and a kernel enumerator of the same name take precedence.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cache

import msgspec

from pytrace.core.kernel_info import KernelInfo

_NUMBER = r"\d+"
_BITS = (("REQ_", "__REQ_", ""), ("__GFP_", "___GFP_", "_BIT"))
"""Prefix of flag names, with prefix and suffix of the enumerator that has the bit number (``enum req_flag_bits``;
``___GFP_DMA_BIT`` since kernel 6.10).
"""

_CHANGED = {"GFP_ATOMIC": ((6, 3), 0xA20, 0x820)}
"""Constants that changed: the first kernel with the new value, the old value, the new one."""

_SAME = {"arm64": "aarch64", "ppc64": "ppc64le", "armv6l": "armv7l"}
"""Aliases of machines."""

FILE = os.path.join(os.path.dirname(__file__), "constants.json")


HEADER_NAMES = os.path.join(os.path.dirname(__file__), "header_names.txt")
"""A line for each directory of the kernel's headers: its name, and those of its headers without ``.h``."""


def known_header(name: str) -> bool:
    """Whether a kernel of those that :data:`HEADER_NAMES` was written from has the header ``linux/sched.h``."""
    folder, _, file = name.removeprefix("uapi/").rpartition("/")
    with open(HEADER_NAMES, encoding="ascii") as lines:
        return any(words[0] == folder and file.removesuffix(".h") in words for words in map(str.split, lines))


class Tables(msgspec.Struct, frozen=True):
    """The content of :data:`FILE`: values by name, and by machine those that differ there."""

    values: Mapping[str, int]
    machines: Mapping[str, Mapping[str, int | None]]
    """None for a name that the machine does not have."""


@cache
def tables() -> Tables:
    """The shipped constants."""
    with open(FILE, encoding="ascii") as file:
        return Tables(**json.load(file))


def value(name: str, kernel: KernelInfo) -> int | None:
    """The value of a constant for the traced machine and kernel; None for other names."""
    bit = _bit(name, kernel)
    if bit is not None:
        return bit
    if name in _CHANGED:
        since, before, after = _CHANGED[name]
        return after if _version(kernel.release) >= since else before
    special = _special(kernel)
    if special is not None and name in special:
        return special[name]
    return tables().values.get(name) if special is not None else None


def names(kernel: KernelInfo) -> list[str]:
    """Names of all constants of the traced machine."""
    special = _special(kernel)
    if special is None:
        return []
    return [name for name in {**tables().values, **special, **_CHANGED} if special.get(name, 0) is not None]


def _special(kernel: KernelInfo) -> Mapping[str, int | None] | None:
    """The values that differ on the traced machine; None for a machine whose constants are unknown."""
    return tables().machines.get(_SAME.get(kernel.arch, kernel.arch))


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(_NUMBER, release)[:2])


def _bit(name: str, kernel: KernelInfo) -> int | None:
    for start, before, suffix in _BITS:
        if name.startswith(start):
            member = kernel.enumerator(f"{before}{name.removeprefix(start)}{suffix}")
            return None if member is None else 1 << member[1]
    return None
