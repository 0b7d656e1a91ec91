"""Command line options that compilation depends on; part of the compile cache's key."""

from __future__ import annotations

import os

import msgspec
from msgspec.structs import replace

from pytrace.core.config import ENVIRONMENT_PREFIXES, MARK_UNREADABLE
from pytrace.core.options.process_filters import FilterShape, ProcessFilters

_ENVIRONMENT = ("CPATH", "C_INCLUDE_PATH")
"""Environment variables that a compilation depends on, besides ``PYTRACE_*`` and ``BPFTRACE_*``."""


PROCESSES = "processes"
"""The kind of the fact :attr:`CompileOptions.processes_fact`."""


def environment(*, mark_unreadable: bool) -> dict[str, str]:
    """The variables of this process that a compilation depends on; the option ``--mark-unreadable`` stands for one."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(ENVIRONMENT_PREFIXES) or name in _ENVIRONMENT
    }
    return {**variables, MARK_UNREADABLE: "1"} if mark_unreadable else variables


class CompileOptions(msgspec.Struct, frozen=True):
    """Options of one compilation.

    *positional* and *named* are the script's parameters (named without dashes; a flag has the value None).
    *child* says that ``-c`` was given, *child_command* what it runs. *disabled* are features that ``--no-feature``
    switches off.
    *debuginfo* are the folders of ``--debuginfo``.
    *checks* is the level of helper error reports: 0 none (``--no-warnings``), 1 default, 2 all (``-k``).
    *environment* holds the variables that matter (:func:`environment`).
    """

    positional: tuple[str, ...] = ()
    named: tuple[tuple[str, str | None], ...] = ()
    unsafe: bool = False
    filters: ProcessFilters = ProcessFilters()
    """All filters of processes. Code depends on their :attr:`shape` only, targets on the processes of ``-p``."""
    child: bool = False
    child_command: str = ""
    include_directories: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    disabled: frozenset[str] = frozenset()
    files: bool = True
    """Whether the script may import files and include headers."""
    debuginfo: tuple[str, ...] = ()
    probe_filter: str | None = None
    checks: int = 1
    usdt_file_activation: bool = False
    follow: bool = False
    without_self: bool = False
    """``--no-self``, and tools without ``--self``: programs leave out what the tracer itself does."""
    mode: str = "run"
    """``run``, ``test``, ``bench``, ``list``."""
    verbose: bool = False
    """``-v``: adds notes about targets and headers that were skipped without a warning."""
    ahead: bool = False
    """For an ahead-of-time file: missing parameters and facts about the machine become load-time values."""
    provenance: bool = False
    """Whether events carry their provenance, the probe that sent them."""
    limited: bool = False
    """``--max-rate``: programs limit the rate of their hits."""
    sampled: bool = False
    """``--budget``: programs may leave hits out."""
    resets: bool = False
    """``--live``: the user may empty maps at any time."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def processes_fact(self) -> tuple[str, ...]:
        """The fact about the processes of ``-p``, for scripts whose targets depend on them.

        Code of other scripts reads the process ids from the session's data.
        """
        return (PROCESSES, *map(str, self.filters.pids))

    @property
    def shape(self) -> FilterShape:
        """The filters that the code has."""
        shape = self.filters.shape
        # An ahead-of-time file has a load-time value for the process of the run.
        return replace(shape, pids=0) if self.ahead and shape.pids < 2 else shape

    @property
    def foreign(self) -> bool:
        """Whether programs have to compare with the tracer's own process: ``-p`` and ``--follow`` leave it out."""
        return self.without_self and not self.follow and not self.filters.pids

    @property
    def filtered(self) -> bool:
        """Whether there is a filter other than ``-p`` and ``--follow``."""
        return self.filters.shape.any

    @property
    def awaits(self) -> bool:
        """Whether ``--exec-wait`` was given."""
        return bool(self.filters.exec_wait)

    @property
    def restricted(self) -> bool:
        """Whether any filter of processes is given."""
        return self.follow or bool(self.filters.pids) or self.filtered
