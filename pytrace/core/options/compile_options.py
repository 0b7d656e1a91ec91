"""Command line options that compilation depends on; part of the compile cache's key."""

from __future__ import annotations

from pytrace.base.fast_dataclass import dataclass, field

ENVIRONMENT = ("CPATH", "C_INCLUDE_PATH")
"""Other variables than ``PYTRACE_*`` and ``BPFTRACE_*`` that a compilation depends on."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of one compilation.

    *positional* and *named* are the script's parameters (named without dashes; a flag has the value None). *pid* is
    that of ``-p``; *child* says that ``-c`` was given, *child_command* what it runs. *disabled* are features that
    ``--no-feature`` switches off.
    *debuginfo* are the folders of ``--debuginfo``.
    *checks* is the level of helper error reports: 0 none (``--no-warnings``), 1 default, 2 all (``-k``).
    *environment* holds the variables that matter (``PYTRACE_*``, ``BPFTRACE_*``, ``CPATH`` …).
    """

    positional: tuple[str, ...] = ()
    named: tuple[tuple[str, str | None], ...] = ()
    unsafe: bool = False
    pid: int | None = None
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
    environment: dict[str, str] = field(default_factory=dict)
