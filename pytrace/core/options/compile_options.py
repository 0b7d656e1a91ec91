"""Command line options that compilation depends on; part of the compile cache's key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    # Imported by runs that select processes.
    from pytrace.core.options.process_filters import FilterShape

ENVIRONMENT = ("CPATH", "C_INCLUDE_PATH")
"""Other variables than ``PYTRACE_*`` and ``BPFTRACE_*`` that a compilation depends on."""


PROCESSES = "processes"
"""The kind of fact that :attr:`CompileOptions.processes_fact` gives."""


class CompileOptions(msgspec.Struct, frozen=True):
    """Options of one compilation.

    *positional* and *named* are the script's parameters (named without dashes; a flag has the value None). *pid* is
    that of ``-p``, the first of *pids* when there are several; *child* says that ``-c`` was given, *child_command* what
    it runs. *disabled* are features that ``--no-feature`` switches off.
    *debuginfo* are the folders of ``--debuginfo``.
    *checks* is the level of helper error reports: 0 none (``--no-warnings``), 1 default, 2 all (``-k``).
    *environment* holds the variables that matter (``PYTRACE_*``, ``BPFTRACE_*``, ``CPATH`` …).
    """

    positional: tuple[str, ...] = ()
    named: tuple[tuple[str, str | None], ...] = ()
    unsafe: bool = False
    pid: int | None = None
    pids: tuple[int, ...] = ()
    filters: FilterShape | None = None
    """Other filters of processes than ``-p``."""
    child: bool = False
    child_command: str = ""
    include_directories: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    disabled: frozenset[str] = frozenset()
    debuginfo: tuple[str, ...] = ()
    probe_filter: str | None = None
    checks: int = 1
    usdt_file_activation: bool = False
    follow: bool = False
    mode: str = "run"
    """``run``, ``test``, ``bench``, ``list``."""
    verbose: bool = False
    """``-v``: with notes about what was left out without a warning."""
    ahead: bool = False
    """For an ahead-of-time file: missing parameters and facts about the machine become load-time values."""
    provenance: bool = False
    """Whether events tell which probe sent them."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def processes(self) -> tuple[int, ...]:
        """The processes of ``-p``."""
        return self.pids or (() if self.pid is None else (self.pid,))

    @property
    def processes_fact(self) -> tuple[str, ...]:
        """The fact about the processes of ``-p``, for scripts whose targets depend on which they are.

        The code of others finds the numbers in the session's data.
        """
        return (PROCESSES, *map(str, self.processes))

    @property
    def shape(self) -> FilterShape:
        """All filters of processes."""
        from pytrace.core.options.process_filters import FilterShape, places

        count = len(self.processes)
        # An ahead-of-time file has a load-time value for the process of the run.
        return replace(self.filters or FilterShape(), pids=0 if self.ahead and count < 2 else places(count))

    @property
    def filtered(self) -> bool:
        """Whether there is a filter other than ``-p`` and ``--follow``."""
        return self.filters is not None and self.filters.any

    @property
    def awaits(self) -> bool:
        """Whether ``--exec-wait`` was given."""
        return self.filters is not None and self.filters.awaited

    @property
    def restricted(self) -> bool:
        """Whether any filter of processes is given."""
        return self.follow or bool(self.processes) or self.filtered
