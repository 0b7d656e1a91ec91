"""What the command line says about one run of a compiled script."""

from __future__ import annotations

from pytrace.base.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a host (empty for all addresses of the machine) and a port (0 for any that is free)."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run, beside those that the compilation depends on."""

    pid: int | None = None
    command: str | None = None
    follow: bool = False
    format: str = "text"
    output: str | None = None
    buffering: str = "line"
    quiet: bool = False
    verbose: bool = False
    warnings: bool = True
    dry_run: bool = False
    mode: str = "run"
    debug: frozenset[str] = frozenset()
    usdt_file_activation: bool = False
    disabled: frozenset[str] = frozenset()
    debuginfo: tuple[str, ...] = ()
    traceable_functions: str | None = None
    dwarf_pids: tuple[int, ...] = ()
    netns: str | None = None
    """Name or path of the network namespace of the ``-c`` command and of interface names; None for the tracer's."""
    script: str = ""
    """Name of the script; ``-e`` for a program of the command line."""
    text: str = ""
    """Text of the script; empty for ahead-of-time files."""
    parameters: tuple[str, ...] = ()
    """Parameters of the script as they were given."""
    save: str | None = None
    """Path of the file that a snapshot is saved to at the end of the run."""
    save_every: tuple[float, str] | None = None
    """Seconds between two snapshots of the run, and the directory that they are saved in."""
    metrics: Address | None = None
    """Where metrics are served while the script runs."""
