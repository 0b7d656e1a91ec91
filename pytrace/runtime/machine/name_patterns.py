"""``*`` patterns over names of probes and symbols, of which there may be 100,000."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@lru_cache(maxsize=256)
def name_pattern(pattern: str) -> re.Pattern[str]:
    """A compiled expression whose ``fullmatch`` accepts what a ``*`` pattern does."""
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


def within(pattern: str, excluded: bytes) -> bytes:
    """Source of a bytes expression for a ``*`` pattern.

    Args:
        pattern: only ``*`` is special in it.
        excluded: bytes that ``*`` does not match, as they are written inside of ``[…]``.
    """
    text = pattern.encode(errors="surrogateescape")
    return (rb"[^" + excluded + rb"]*").join(re.escape(part) for part in text.split(b"*"))


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern accepts, in order."""
    if pattern == "*":
        return list(names)
    if "*" not in pattern:
        return [name for name in names if name == pattern]
    head, *middle, tail = pattern.split("*")
    if not middle:
        least = len(head) + len(tail)
        return [name for name in names if name.startswith(head) and name.endswith(tail) and len(name) >= least]
    accepts = name_pattern(pattern).fullmatch
    return [name for name in names if accepts(name)]
