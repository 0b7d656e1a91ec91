"""Built-in constants of kernel headers, for machines without installed headers.

Macros exist in headers only, not in BTF. Those with fixed values (part of the user-space API, or unchanged for years)
are in ``constant_tables``, which scripts/generate-constants writes. What may differ between kernels is derived from
enumerators in BTF, or left out.

A script's own definition, an installed header and a kernel enumerator of the same name take precedence.
"""

from __future__ import annotations

from pytrace.base.fast_typing import TYPE_CHECKING
from pytrace.base.lazy_regex import late

if TYPE_CHECKING:
    from pytrace.core.kernel_info import KernelInfo

_NUMBER = late(r"\d+")
_BITS = (("REQ_", "__REQ_", ""), ("__GFP_", "___GFP_", "_BIT"))
"""Start of the names of flags, and what is around the rest of the name in the enumerator that numbers the bit
(``enum req_flag_bits``; ``___GFP_DMA_BIT`` since kernel 6.10).
"""

_CHANGED = {"GFP_ATOMIC": ((6, 3), 0xA20, 0x820)}
"""Constants that changed: the first kernel with the new value, the value before, the new one."""

_SAME = {"arm64": "aarch64", "ppc64": "ppc64le", "armv6l": "armv7l"}
"""Other names of machines."""


def value(name: str, kernel: KernelInfo) -> int | None:
    """The value of a constant for the traced machine and kernel; None for other names."""
    bit = _bit(name, kernel)
    if bit is not None:
        return bit
    if name in _CHANGED:
        since, before, after = _CHANGED[name]
        return after if _version(kernel.release) >= since else before
    from pytrace.frontend.c import constant_tables

    special = constant_tables.MACHINES.get(_SAME.get(kernel.arch, kernel.arch))
    if special is not None and name in special:
        return special[name]
    return constant_tables.VALUES.get(name) if special is not None else None


def names(kernel: KernelInfo) -> list[str]:
    """Names of all constants of the machine that is traced."""
    from pytrace.frontend.c import constant_tables

    special = constant_tables.MACHINES.get(_SAME.get(kernel.arch, kernel.arch))
    if special is None:
        return []
    return [name for name in {**constant_tables.VALUES, **special, **_CHANGED} if special.get(name, 0) is not None]


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in _NUMBER.findall(release)[:2])


def _bit(name: str, kernel: KernelInfo) -> int | None:
    for start, before, behind in _BITS:
        if name.startswith(start):
            member = kernel.enumerator(f"{before}{name.removeprefix(start)}{behind}")
            return None if member is None else 1 << member[1]
    return None
