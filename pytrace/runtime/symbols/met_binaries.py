"""Binaries in user stacks whose functions somebody else names: what is known of them here, should they be asked for.

Snapshots of such runs (``RunOptions.places``) have build ids and addresses in place of functions, so no symbols and no
source lines are read while a script runs.
"""

from __future__ import annotations

import os
from enum import IntEnum
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries.user_binary import Binary

if TYPE_CHECKING:
    from pytrace.runtime.symbols.images import AnyBinary, Frame, Images

_BINARIES = 4096
"""Build ids that are remembered: the first ones."""
_COPIES = 4
"""Files with one build id that are remembered: stripped ones, and others."""


class Detail(IntEnum):
    """How much a machine knows of the functions of a binary. Machines with the same detail name them equally."""

    NOTHING = 0
    BINARY = 1
    """What is in the stripped binary."""
    SERVERS = 2
    """As much, and servers of debuginfod may have more."""
    SYMBOLS = 3
    """All functions."""
    LINES = 4
    """All functions, source lines, and inlined functions."""


def detail(binary: AnyBinary) -> Detail:
    """How much is known of a binary. No symbols are read for that."""
    if not isinstance(binary, Binary):
        return Detail(binary.detail())
    try:
        if binary.debug is not None:
            return Detail.LINES
        if not binary.is_stripped or binary.debug_path is not None:
            return Detail.SYMBOLS
    except (TraceError, OSError):
        # Damaged: its functions are those that can be read.
        return Detail.BINARY
    return Detail.SERVERS if os.environ.get("DEBUGINFOD_URLS") else Detail.BINARY


class MetBinaries:
    """Binaries by build id, opened when they were mapped: processes and containers end before anybody asks."""

    def __init__(self, images: Images) -> None:
        self._images = images
        self._binaries: dict[str, list[AnyBinary]] = {}

    def add(self, build_id: str, binary: AnyBinary) -> None:
        """Remember a binary."""
        known = self._binaries.get(build_id)
        if known is None and len(self._binaries) < _BINARIES:
            self._binaries[build_id] = [binary]
        elif known is not None and binary not in known and len(known) < _COPIES:
            known.append(binary)

    def details(self) -> dict[str, int]:
        """How much is known of each, by build id."""
        for copies in self._binaries.values():
            copies.sort(key=detail, reverse=True)
        return {build_id: int(detail(copies[0])) for build_id, copies in self._binaries.items()}

    def functions(self, build_id: str, address: int) -> list[Frame]:
        """The functions at an address of a binary as it was linked, inlined ones first; empty for unknown ones."""
        copies = self._binaries.get(build_id)
        frames = self._images.frames(copies[0], "", address) if copies else []
        return frames if frames and frames[0].name else []
