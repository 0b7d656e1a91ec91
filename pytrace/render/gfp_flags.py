"""Names of the kernel's page allocation flags (``include/linux/gfp_types.h``), for ``%gr``."""

from __future__ import annotations

_NAMES = (
    "DMA", "HIGHMEM", "DMA32", "MOVABLE", "RECLAIMABLE", "HIGH", "IO", "FS", "ZERO", "", "DIRECT_RECLAIM",
    "KSWAPD_RECLAIM", "WRITE", "NOWARN", "RETRY_MAYFAIL", "NOFAIL", "NORETRY", "MEMALLOC", "COMP", "NOMEMALLOC",
    "HARDWALL", "THISNODE", "ACCOUNT", "ZEROTAGS",
)  # fmt: skip

BITS: dict[str, int] = {f"__GFP_{name}": 1 << index for index, name in enumerate(_NAMES) if name}
"""The single bits, lowest first."""

_RECLAIM = BITS["__GFP_DIRECT_RECLAIM"] | BITS["__GFP_KSWAPD_RECLAIM"]
_KERNEL = _RECLAIM | BITS["__GFP_IO"] | BITS["__GFP_FS"]
_USER = _KERNEL | BITS["__GFP_HARDWALL"]
_HIGHUSER = _USER | BITS["__GFP_HIGHMEM"]
_MOVABLE = _HIGHUSER | BITS["__GFP_MOVABLE"]
_LIGHT = (_MOVABLE | BITS["__GFP_COMP"] | BITS["__GFP_NOMEMALLOC"] | BITS["__GFP_NOWARN"]) & ~_RECLAIM

COMPOUNDS: tuple[tuple[str, int], ...] = (
    ("GFP_TRANSHUGE", _LIGHT | BITS["__GFP_DIRECT_RECLAIM"]),
    ("GFP_TRANSHUGE_LIGHT", _LIGHT),
    ("GFP_HIGHUSER_MOVABLE", _MOVABLE),
    ("GFP_HIGHUSER", _HIGHUSER),
    ("GFP_USER", _USER),
    ("GFP_KERNEL_ACCOUNT", _KERNEL | BITS["__GFP_ACCOUNT"]),
    ("GFP_KERNEL", _KERNEL),
    ("GFP_NOFS", _RECLAIM | BITS["__GFP_IO"]),
    ("GFP_NOIO", _RECLAIM),
    ("GFP_ATOMIC", BITS["__GFP_HIGH"] | BITS["__GFP_KSWAPD_RECLAIM"]),
    ("GFP_NOWAIT", BITS["__GFP_KSWAPD_RECLAIM"]),
    ("GFP_DMA32", BITS["__GFP_DMA32"]),
    ("GFP_DMA", BITS["__GFP_DMA"]),
)
"""Combinations that have names, those with more bits before those that they contain."""


def names(flags: int) -> bytes:
    """The names of *flags* joined by ``|``: compounds first, then single bits, then what has no name in hex."""
    if not flags:
        return b"0"
    texts, rest = [], flags
    for table in (COMPOUNDS, BITS.items()):
        for name, bits in table:
            if rest & bits == bits:
                texts.append(name)
                rest &= ~bits
    if rest:
        texts.append(f"{rest:#x}")
    return "|".join(texts).encode()
