"""Debug information of one file as stacks need it: as former runs cached it, else from the DWARF.

The modules that decode DWARF are imported when something is asked that is not cached: importing them takes longer than
looking up some thousand cached addresses.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytrace.runtime.dwarf.places import Place, Places

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytrace.runtime.dwarf.debug_info import DebugInfo
    from pytrace.runtime.elf.file import ElfFile


class CachedDebugInfo:
    """Functions and lines of addresses of a file, and what decodes the rest of its DWARF.

    *beside*, *search* and *root* are as for :class:`pytrace.runtime.dwarf.debug_info.DebugInfo`. The file is open, as
    it may be that of a process that ends.
    """

    def __init__(self, file: ElfFile, beside: Iterable[str] = (), search: Iterable[str] = (), root: str = "") -> None:
        self._elf = file
        self._others = (tuple(beside), tuple(search), root)
        self._places = Places(_stamp(self._elf))
        self._decoder: DebugInfo | None = None

    @property
    def decoder(self) -> DebugInfo:
        """The decoder of the DWARF, for questions other than those about the places of stacks."""
        if self._decoder is None:
            from pytrace.runtime.dwarf.debug_info import DebugInfo

            self._decoder = DebugInfo(self._elf, self._places, *self._others)
        return self._decoder

    def knows(self, address: int) -> bool:
        """True if :meth:`frames` has nothing to read for an address."""
        return self._places.knows(address)

    def frames(self, address: int) -> list[Place]:
        """The functions of an address, see :meth:`pytrace.runtime.dwarf.debug_info.DebugInfo.frames`."""
        places = self._places.find(address)
        return self.decoder.frames(address) if places is None else places

    def reading(self, address: int) -> Iterator[None]:
        """Read what :meth:`frames` needs for an address, in steps of some milliseconds."""
        if not self._places.knows(address):
            yield from self.decoder.reading(address)

    def keep(self) -> None:
        """Cache what was read for stacks for later runs."""
        self._places.keep()

    @property
    def problems(self) -> list[str]:
        """Files with parts of the debug information that were asked for and are not there, as sentences."""
        return [] if self._decoder is None else self._decoder.problems

    @property
    def files(self) -> list[str]:
        """Other files that answers depend on, also those that are not there."""
        return [] if self._decoder is None else self._decoder.files


def _stamp(elf: ElfFile) -> tuple[str, ...] | None:
    """Values that identify a file and its build; None for one that is gone or no file of its own."""
    try:
        status = os.stat(elf.path)
    except OSError:
        return None
    # Of containers many share what they run, each under another path and inode.
    identity = elf.build_id or f"{status.st_dev} {status.st_ino}"
    # The owner, too: a build id is easily given to another file, whose lines would be taken for those of a library.
    return identity, str(status.st_size), str(status.st_mtime_ns), str(status.st_uid)
