"""Command line options of one run of a compiled script."""

from __future__ import annotations

import msgspec

from pytrace.core.options.process_filters import ProcessFilters

STREAMED = ("text", "json", "csv")
"""Output formats that are written while a script runs; all others are written from a snapshot at its end."""


SHORTEST_WATCHDOG = 0.5
"""Minimum seconds of the watchdog: a processor that is busy with something else is no reason to skip events."""


def watchdog_seconds(value: float) -> float:
    """*value*, checked to be seconds of a watchdog.

    Raises:
        ValueError: it is neither 0 nor a time of sufficient length.
    """
    if value and not SHORTEST_WATCHDOG <= value < float("inf"):
        raise ValueError(f"watchdog must be 0 or at least {SHORTEST_WATCHDOG:g} seconds, not {value!r}")
    return value


class Address(msgspec.Struct, frozen=True):
    """An address to listen on: a host (empty for all addresses of the machine) and a port (0 for any free one)."""

    host: str
    port: int


class Rate(msgspec.Struct, frozen=True):
    """A limit of ``--max-rate``: *hits* per second of blocks with a probe that matches *pattern* (empty: of all)."""

    hits: float
    pattern: str = ""


SAMPLE = "sample"
ACTIONS = (SAMPLE, "detach")
"""Actions against a probe that costs too much (``--over-budget``)."""

MOST_BUDGET = 1000.0
"""A budget is less than this part of a processor."""


class Budget(msgspec.Struct, frozen=True):
    """The limit of what tracing costs (``--budget``): *share* of the time of one processor, or of all of the *machine*.

    *action* against a probe that is too expensive: ``sample`` or ``detach``.
    """

    share: float
    machine: bool = False
    action: str = SAMPLE

    @classmethod
    def parsed(cls, text: str, action: str = SAMPLE) -> Budget | None:
        """The budget that is written ``1%`` or ``1%machine``; None for other texts."""
        number, percent, of = text.partition("%")
        try:
            share = float(number) / 100
        except ValueError:
            return None
        good = percent and of in ("", "machine") and 0 < share < MOST_BUDGET
        return cls(share, of == "machine", action) if good else None

    @property
    def text(self) -> str:
        """The budget, as it is written."""
        return f"{100 * self.share:g}%{'machine' if self.machine else ''}"


class Surroundings(msgspec.Struct, frozen=True):
    """What the command gets in place of the tracer's own: *folder* is its working directory, *environment* its
    variables (None: the tracer's), *output* and *errors* are descriptors of its standard streams (-1: the tracer's).
    """

    folder: str = ""
    environment: tuple[tuple[str, str], ...] | None = None
    output: int = -1
    errors: int = -1


class RunOptions(msgspec.Struct, frozen=True):
    """Options of one run that compilation does not depend on (see ``compile_options``)."""

    filters: ProcessFilters = ProcessFilters()
    duration: float | None = None
    """Seconds after which the run ends."""
    command: str | None = None
    exit_status: bool = False
    """Whether the run has the exit status of the command, unless the script calls ``exit()`` with another than 0."""
    follow: bool = False
    surroundings: Surroundings = Surroundings()
    """Of the command."""
    format: str = "text"
    """One of :data:`STREAMED`, or the name of a snapshot format with its options (``folded:process``)."""
    output: str | None = None
    buffering: str = "line"
    raw: bool = False
    """Whether control characters in traced data are written to a terminal unescaped."""
    keep_privileges: bool = False
    """Whether the run keeps all privileges of the user once everything is attached."""
    plain: bool = False
    """Whether histograms have the bars of files on a terminal, too."""
    heat: bool = False
    """Whether histograms are printed as lines of a heat map while the script runs."""
    quiet: bool = False
    verbose: bool = False
    warnings: bool = True
    dry_run: bool = False
    yes: bool = False
    """Whether probes that are hit very often are attached without a question."""
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
    tool: bool = False
    """Whether the script is a shipped tool: its messages are shown without the source line."""
    text: str = ""
    """Text of the script; empty for ahead-of-time files."""
    parameters: tuple[str, ...] = ()
    """Parameters of the script, as given."""
    save: str | None = None
    """Path of the snapshot that is saved at the end of the run."""
    save_every: tuple[float, str] | None = None
    """Seconds between two snapshots of the run, and the directory that they are saved in."""
    max_memory: str = ""
    """The limit of ``--max-memory``; empty: as the script's config says."""
    watchdog: float | None = None
    """Seconds of ``--watchdog``; None: as the script's config says."""
    metrics: Address | None = None
    """Address on which metrics are served while the script runs."""
    rates: tuple[Rate, ...] = ()
    """``--max-rate``."""
    budget: Budget | None = None
    """``--budget``."""
    measure: bool = False
    """Whether the costs of the run are measured and reported."""
    live: bool = False
    """Whether the run is shown live in the terminal."""
    places: bool = False
    """Whether snapshots have places in binaries in place of functions of user stacks, which are named elsewhere."""

    @property
    def exports(self) -> bool:
        """Whether the output is a snapshot, written at the end of the run."""
        return self.format not in STREAMED

    @property
    def saves(self) -> bool:
        """Whether snapshots are saved, or written as the output of the run."""
        return self.save is not None or self.save_every is not None or self.exports
