"""Options of a compilation and of a run, the configuration of a script, filters of processes, amounts of memory."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError

# --------------------------------------------------------------------------------------------------------------- config

# The configuration of a script: every key with its default.


ENVIRONMENT_PREFIXES = ("PYTRACE_", "BPFTRACE_")
"""Prefixes of environment variables; the first one that is set takes precedence."""

_MARK_UNREADABLE = f"{ENVIRONMENT_PREFIXES[0]}MARK_UNREADABLE"
"""The variable that the option ``--mark-unreadable`` stands for."""


class Config(msgspec.Struct, frozen=True):
    """Effective configuration of one script."""

    cache_user_symbols: str = "AUTO"
    """``PER_PID``, ``PER_PROGRAM``, ``NONE``; ``AUTO``: PER_PROGRAM without address randomisation or with ``-c``."""
    cpp_demangle: bool = True
    debuginfod_lines: bool = False
    """Servers of debuginfod are asked for source lines in stacks, too, not for names of functions alone."""
    lazy_symbolication: bool = True
    license: str = "GPL"
    log_size: int = 1_000_000
    mark_unreadable: bool = False
    """A string that could not be read is ``<unreadable>``, and counted; else it is empty."""
    max_bpf_progs: int = 1024
    max_cat_bytes: int = 10240
    max_loop_iterations: int = 1 << 23
    """Maximum for all loops together in one run of a program; the kernel's limit for a single loop is the same."""
    max_map_keys: int = 4096
    max_memory: str = ""
    """Memory that a run may take (``512M``, ``10%``); empty: a tenth of the machine's."""
    max_metric_series: int = 2000
    """Maximum number of keys of one map that ``--metrics`` exports."""
    max_probes: int = 1024
    max_rate: int = 0
    """Hits per second of each block that run it, as ``--max-rate``; 0: all."""
    max_stack_depth: int = 127
    """Frames of a stack whose limit the script does not name; of more than 127, keys have a digest."""
    max_strlen: int = 1024
    missing_probes: str = "error"
    on_stack_limit: int = 32
    perf_rb_pages: int = 0
    """Pages of the ring buffer; 0 lets the runtime choose by available memory."""
    print_maps_on_exit: bool = True
    python_frames: bool = False
    """``ustack`` has the frames of CPython in place of those of the interpreter's loop."""
    raw_tracepoints: str = "auto"
    """``auto``: hot tracepoints are traced through their raw tracepoints if that is equivalent; ``plain``: none is."""
    short_generics: bool = False
    """Generic arguments and template arguments of functions in stacks are ``<…>``."""
    show_debug_info: bool = True
    """Source file and line, and inlined functions, in stacks."""
    use_blazesym: bool = True
    stack_mode: str = "bpftrace"
    stack_unwinding: str = "sampled"
    """How ``ustack`` unwinds: ``frame_pointers``, ``tables`` (as ``dw_ustack``), ``auto``: tables where there are,
    ``sampled``: ``auto`` in programs of perf events, which cost microseconds anyway, else ``frame_pointers``."""
    str_trunc_trailer: str = ".."
    syscall_tracepoints: str = "auto"
    """``raw``: traced through raw tracepoints where possible; ``plain``: never; ``auto``: where that costs less."""
    watchdog: int = 10
    """Seconds after which programs return at once if pytrace does not run any more; 0: never."""
    unstable_tseries: str = "warn"
    unstable_dw_ustack: str = "warn"
    unstable_typeinfo: str = "error"
    unstable_import_statement: str = "error"


# --------------------------------------------------------------------------------------------------------- memory sizes

# Amounts of memory as users write them: `512M`, `2G`, `10%`.


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = r"(\d+(?:\.\d+)?)\s*(?:([KMGT]?)(?:iB|B)?|(%))"


def parse_memory(text: str, total: int) -> int:
    """The bytes of *text*: a number with a unit (powers of 1024), or a percentage of *total*.

    Raises:
        ValueError: it is neither, or no memory at all.
    """
    match = re.fullmatch(_SIZE, text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory")
    number, unit, percent = match.groups()
    if percent and float(number) > 100:
        raise ValueError(f"{text!r} is more than all memory")
    amount = int(float(number) * total / 100) if percent else int(float(number) * _UNITS[unit.upper()])
    if not amount:
        raise ValueError(f"{text!r} is no memory")
    return amount


def shown_memory(amount: int) -> str:
    """An amount with three or four digits and a unit."""
    for unit in ("T", "G", "M", "K"):
        if amount >= _UNITS[unit]:
            value = amount / _UNITS[unit]
            return f"{value:.0f} {unit}iB" if value >= 100 else f"{value:.1f} {unit}iB"
    return f"{amount} bytes"


# ------------------------------------------------------------------------------------------------------ process filters

# Process filters: the set of filters is part of the generated code, their values are data of the run.
#
# Generated code reads the values from the session's data (`SessionData.filters`), so runs with other processes, users
# or cgroups use the same code. `FilterShape` lays them out, `ProcessFilters.pack` writes them.


UNROLLED = 16
"""Maximum number of processes that are compared one by one; more are looked up in a map."""
COMM_SIZE = 16
"""TASK_COMM_LEN of include/linux/sched.h."""
FORKED_ONLY = 0x40
"""PF_FORKNOEXEC of include/linux/sched.h: flag of a task that has executed no program since it was forked."""
PROCESS_MAP = "wanted_processes"
"""Symbol of the map of processes, when there are more than :data:`UNROLLED`."""
_OWN_THREADS = 2
"""Of a trace: the one that keeps the watchdog, and the one that is in a call of it."""
NOT_YET = 0xFFFFFFFF
"""Placeholder for the process that ``--exec-wait`` waits for; no process has this id."""


def places(count: int) -> int:
    """Number of slots for *count* values: a power of two, so that similar runs use the same code."""
    return 1 << (count - 1).bit_length() if count else 0


class FilterShape(msgspec.Struct, frozen=True):
    """The filters that code contains: the number of slots for values of each, 0 for no such filter."""

    pids: int = 0
    uids: int = 0
    comms: int = 0
    cgroups: int = 0
    namespaces: int = 0
    awaited: bool = False
    """``--exec-wait``."""
    threads: int = 0
    """Threads that are left out, whatever else holds: those of the tracer in a program that traces itself."""

    @property
    def any(self) -> bool:
        """Whether there is a filter other than ``-p``, which the kernel can apply itself."""
        return bool(self.uids or self.comms or self.cgroups or self.namespaces or self.awaited or self.threads)

    @property
    def listed(self) -> int:
        """Number of processes that are compared one by one."""
        return self.pids if self.pids <= UNROLLED else 0

    @property
    def uids_at(self) -> int:
        """Offset of the users, 8 bytes each; processes (8 bytes each) come first."""
        return 8 * self.listed

    @property
    def namespaces_at(self) -> int:
        """Offset of the network namespaces, 8 bytes each."""
        return self.uids_at + 8 * self.uids

    @property
    def comms_at(self) -> int:
        """Offset of the names, 16 bytes each."""
        return self.namespaces_at + 8 * self.namespaces

    @property
    def cgroups_at(self) -> int:
        """Offset of the cgroups: depth and id, 8 bytes each."""
        return self.comms_at + COMM_SIZE * self.comms

    @property
    def awaited_at(self) -> int:
        """Offset of the program name of ``--exec-wait``."""
        return self.cgroups_at + 16 * self.cgroups

    @property
    def threads_at(self) -> int:
        """Offset of the threads that are left out, 8 bytes each; 0 for none."""
        return self.awaited_at + (COMM_SIZE if self.awaited else 0)

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return self.threads_at + 8 * self.threads if self.any or self.pids else 0

    def text(self) -> str:
        """The options, for messages; without a single ``-p``, which ahead-of-time files always accept."""
        counts = {"-p": self.pids if self.pids > 1 else 0, "--uid": self.uids, "--comm": self.comms,
                  "--cgroup": self.cgroups, "--netns": self.namespaces, "--exec-wait": int(self.awaited)}  # fmt: skip
        return ", ".join(f"{name} (up to {count})" if count > 1 else name for name, count in counts.items() if count)


class ProcessFilters(msgspec.Struct, frozen=True):
    """Values of the filters of one run: a process must match one value of each filter that has values."""

    pids: tuple[int, ...] = ()
    """The processes of ``-p``."""
    uids: tuple[int, ...] = ()
    comms: tuple[str, ...] = ()
    """Thread names, at most 15 bytes each."""
    cgroups: tuple[tuple[int, int], ...] = ()
    """Depth below the root of the hierarchy, and id."""
    namespaces: tuple[int, ...] = ()
    """Inode numbers of network namespaces."""
    exec_wait: str = ""
    without_own_threads: bool = False
    """Whether the threads that run pytrace are left out; the session writes which these are, while they do."""

    @property
    def pid(self) -> int | None:
        """The process of ``-p``, the first one when there are several; None without ``-p``."""
        return self.pids[0] if self.pids else None

    @property
    def shape(self) -> FilterShape:
        """The filters that the code must contain."""
        return FilterShape(
            places(len(self.pids)),
            places(len(self.uids)),
            places(len(self.comms)),
            places(len(self.cgroups)),
            places(len(self.namespaces)),
            bool(self.exec_wait),
            _OWN_THREADS if self.without_own_threads else 0,
        )

    def pack(self, memory: memoryview | bytearray, offset: int) -> None:
        """Write the values to *memory* at *offset*; unused slots repeat the first value."""
        shape = self.shape
        if shape.listed:
            _numbers(memory, offset, self.pids, shape.listed)
        _numbers(memory, offset + shape.uids_at, self.uids, shape.uids)
        _numbers(memory, offset + shape.namespaces_at, self.namespaces, shape.namespaces)
        for number in range(shape.comms):
            name = self.comms[number if number < len(self.comms) else 0]
            struct.pack_into("16s", memory, offset + shape.comms_at + COMM_SIZE * number, _comm_bytes(name))
        for number in range(shape.cgroups):
            level, identity = self.cgroups[number if number < len(self.cgroups) else 0]
            struct.pack_into("=QQ", memory, offset + shape.cgroups_at + 16 * number, level, identity)
        if self.exec_wait:
            struct.pack_into("16s", memory, offset + shape.awaited_at, _comm_bytes(self.exec_wait))


def _comm_bytes(name: str) -> bytes:
    """*name* as the kernel stores it: truncated to 15 bytes."""
    return name.encode("utf-8", "surrogateescape")[: COMM_SIZE - 1]


def _numbers(memory: memoryview | bytearray, offset: int, values: tuple[int, ...], count: int) -> None:
    struct.pack_into(f"={count}Q", memory, offset, *values, *values[:1] * (count - len(values)))


# ------------------------------------------------------------------------------------------------------ compile options

# Command line options that compilation depends on; part of the compile cache's key.


_ENVIRONMENT = ("CPATH", "C_INCLUDE_PATH")
"""Environment variables that a compilation depends on, besides ``PYTRACE_*`` and ``BPFTRACE_*``."""


PROCESSES_FACT = "processes"
"""The kind of the fact :attr:`CompileOptions.processes_fact`."""


def environment(*, mark_unreadable: bool) -> dict[str, str]:
    """The variables of this process that a compilation depends on; the option ``--mark-unreadable`` stands for one."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(ENVIRONMENT_PREFIXES) or name in _ENVIRONMENT
    }
    return {**variables, _MARK_UNREADABLE: "1"} if mark_unreadable else variables


def debug_folders(names: Iterable[str]) -> tuple[str, ...]:
    """Directories of debug information, independent of later changes of the working directory; a leading ``+`` is kept.

    A relative name is also searched for in the directory of a binary.

    Raises:
        TypeError: *names* is one string.
    """
    if isinstance(names, str):
        raise TypeError("debuginfo must be a sequence of folders, not a string")
    paths: list[str] = []
    for name in names:
        mark, folder = ("+", name[1:]) if name.startswith("+") else ("", name)
        paths += (name,) if os.path.isabs(folder) else (name, mark + os.path.abspath(folder))
    return tuple(paths)


class TracingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that both compilations and runs depend on."""

    filters: ProcessFilters = ProcessFilters()
    """All filters of processes. Code depends on their :attr:`shape` only, targets on the processes of ``-p``."""
    follow: bool = False
    no_features: frozenset[str] = frozenset()
    """Features of the kernel that must not be used."""
    debuginfo: tuple[str, ...] = ()
    """Directories of debug information, as :func:`debug_folders` returns them."""
    usdt_file_activation: bool = False
    verbose: bool = False
    """``-v``: adds notes about targets and headers that were skipped without a warning."""
    live: bool = False
    """``--live``: the run is shown in the terminal, where the user may empty maps at any time, with calls under way."""

    def shared(self) -> dict[str, object]:
        """The members of this class, to make options of another class."""
        return {name: getattr(self, name) for name in TracingOptions.__struct_fields__}


class CompileOptions(TracingOptions, frozen=True, kw_only=True):
    """Options of one compilation.

    *positional* and *named* are the script's parameters (named without dashes; a flag has the value None).
    *child* says that ``-c`` was given, *child_command* what it runs.
    *checks* is the level of helper error reports: 0 none (``--no-warnings``), 1 default, 2 all (``-k``).
    *environment* holds the variables that matter (:func:`environment`).
    """

    positional: tuple[str, ...] = ()
    named: tuple[tuple[str, str | None], ...] = ()
    unsafe: bool = False
    child: bool = False
    child_command: str = ""
    include_directories: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    files: bool = True
    """Whether the script may import files and include headers."""
    probe_filter: str | None = None
    checks: int = 1
    without_self: bool = False
    """``--no-self``, and tools without ``--self``: programs leave out what the tracer itself does."""
    mode: str = "run"
    """``run``, ``test``, ``bench``, ``list``."""
    ahead: bool = False
    """For an ahead-of-time file: missing parameters and facts about the machine become load-time values."""
    provenance: bool = False
    """Whether events carry their provenance, the probe that sent them."""
    limited: bool = False
    """``--max-rate``: programs limit the rate of their hits."""
    sampled: bool = False
    """``--budget``: programs may leave hits out."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def processes_fact(self) -> tuple[str, ...]:
        """The fact about the processes of ``-p``, for scripts whose targets depend on them.

        Code of other scripts reads the process ids from the session's data.
        """
        return (PROCESSES_FACT, *map(str, self.filters.pids))

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
    def restricted(self) -> bool:
        """Whether any filter of processes is given."""
        return self.follow or bool(self.filters.pids) or self.filtered


# ---------------------------------------------------------------------------------------------------------- run options

# Command line options of one run of a compiled script.


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


MOST_PID = 0x400000
"""PID_MAX_LIMIT of 64-bit kernels (``include/linux/threads.h``)."""
_MOST_PORT = 65_535
_ADDRESSES = "for example --metrics :9435, 127.0.0.1:9435 or [::1]:9435; port 0 is any free port"


class Address(msgspec.Struct, frozen=True):
    """An address to listen on: a host (empty for all addresses of the machine) and a port (0 for any free one).

    The host is a name, an IPv4 address, or an IPv6 address without brackets.
    """

    host: str
    port: int

    @classmethod
    def parsed(cls, text: str) -> Address:
        """The address that is written ``HOST:PORT``; without a host, all addresses of the machine are used.

        Raises:
            TraceError: *text* is not such an address.
        """
        host, colon, port = text.rpartition(":")
        if not colon:
            raise TraceError(f"--metrics needs an address and a port, not {text!r}", hints=(_ADDRESSES,))
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if host.startswith("[") or host.endswith("]"):
            raise TraceError(f"--metrics needs an address, not {host!r}", hints=(_ADDRESSES,))
        if ":" in host and not text.startswith("["):
            raise TraceError(f"--metrics needs an IPv6 address in brackets, not {text!r}", hints=(_ADDRESSES,))
        if not port.isascii() or not port.isdigit() or int(port) > _MOST_PORT:
            raise TraceError(f"--metrics needs a port of 0 to {_MOST_PORT}, not {port!r}", hints=(_ADDRESSES,))
        return cls(host, int(port))

    @property
    def text(self) -> str:
        """The address in URL syntax."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Rate(msgspec.Struct, frozen=True):
    """A limit of ``--max-rate``: *hits* per second of blocks with a probe that matches *pattern* (empty: of all)."""

    hits: float
    pattern: str = ""


SAMPLE = "sample"
ACTIONS = (SAMPLE, "detach")
"""Actions against a probe that costs too much (``--over-budget``)."""

_MOST_BUDGET = 1000.0
"""A budget is less than this part of a processor."""


class Budget(msgspec.Struct, frozen=True):
    """The limit of what tracing costs (``--budget``): *share* of the time of one processor, or of all of the *machine*.

    *action* against a probe that is too expensive: ``sample`` or ``detach``.
    """

    share: float
    machine: bool = False
    action: str = SAMPLE

    @classmethod
    def chosen(cls, text: str | None, action: str = SAMPLE) -> Budget | None:
        """The budget of ``1%`` or ``1%machine`` with its action; None without one, or of an empty text.

        Raises:
            ValueError: it is no budget, or there is no such action.
        """
        if action not in ACTIONS:
            raise ValueError(f"over_budget is one of {', '.join(ACTIONS)}, not {action!r}")
        if not text:
            return None
        number, percent, of = text.partition("%")
        try:
            share = float(number) / 100
        except ValueError:
            share = 0.0
        if not (percent and of in ("", "machine") and 0 < share < _MOST_BUDGET):
            raise ValueError(f"budget is a percentage, as '1%' or '1%machine', not {text!r}")
        return cls(share, of == "machine", action)

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


class RunOptions(TracingOptions, frozen=True, kw_only=True):
    """Options of one run; beside the shared ones those that compilation does not depend on."""

    duration: float | None = None
    """Seconds after which the run ends."""
    command: str | None = None
    exit_status: bool = False
    """Whether the run has the exit status of the command, unless the script calls ``exit()`` with another than 0."""
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
    warnings: bool = True
    dry_run: bool = False
    yes: bool = False
    """Whether probes that are hit very often are attached without a question."""
    mode: str = "run"
    debug: frozenset[str] = frozenset()
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
    max_rate: tuple[Rate, ...] = ()
    """``--max-rate``."""
    budget: Budget | None = None
    """``--budget``."""
    measure: bool = False
    """Whether the costs of the run are measured and reported."""
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
