"""Optional sections of a manifest: maps of unwind tables, and load-time values of an ahead-of-time file."""

from __future__ import annotations

import msgspec

Row = tuple[str, ...]
"""Each fact as words, its kind first."""


class UnwindMaps(msgspec.Struct, frozen=True):
    """The maps of unwind tables (``core.unwind_format``), which the session fills.

    *spaces* has the location of the *ranges* of each process; *rows* has *room* for that many rows, and may be enlarged
    before it is loaded.
    """

    spaces: str
    ranges: str
    rows: str
    room: int


class OpenValue(msgspec.Struct, frozen=True):
    """A value of *size* bytes at *offset* of the section of load-time values, resolved when the file is loaded.

    *what* is ``parameter``, ``member``, ``kaddr`` …, *parts* are its arguments (``runtime.aot.prepare`` has a row for
    each).
    """

    what: str
    parts: Row
    offset: int
    size: int


class Parameters(msgspec.Struct, frozen=True):
    """Parameters of a script: *positional* and *fixed* have their values in the file, *names* may be given.

    *most* is the highest index of a positional parameter, *help* has a line for each name.
    """

    positional: tuple[str, ...] = ()
    fixed: tuple[tuple[str, str | None], ...] = ()
    names: tuple[str, ...] = ()
    help: str = ""
    most: int = 0


class AheadOfTime(msgspec.Struct, frozen=True):
    """Data to resolve and conditions to check when an ahead-of-time file is loaded.

    *copies* is the number of CPUs that per-CPU data has room for. *relies* lists the kernel's struct layouts that the
    code relies on (``runtime.aot.layouts``), *binaries* the probe locations in user binaries
    (``runtime.aot.moved_probes``), *features* the required kernel features. *follow*: compiled with ``--follow``.
    """

    copies: int
    values: tuple[OpenValue, ...] = ()
    relies: tuple[Row, ...] = ()
    binaries: tuple[Row, ...] = ()
    parameters: Parameters = Parameters()
    follow: bool = False
    filters: str = ""
    features: tuple[str, ...] = ()
    script_hash: str = ""
    """SHA-256 of the script's text."""
