"""One function of an address."""

from __future__ import annotations

import msgspec


class Frame(msgspec.Struct, frozen=True):
    """A function that an address lies in.

    *name* is empty when it is unknown; *offset* counts bytes from the function's start (of an inlined function: of the
    function that it was inlined into; without a name, from the start of the module as it was linked, 0 when that is not
    known). *module* is a kernel module, or the path of a binary as its process sees it.
    *file* and *line* are known where DWARF was asked for and found.
    """

    name: str
    offset: int = 0
    module: str = ""
    file: str = ""
    line: int = 0
    inlined: bool = False
