"""Targets of probes: one class for each kind of attach point.

The row of a probe kind (``kinds.ProbeKind.target``) names the class of its targets. Code that serves several kinds
distinguishes their targets by ``isinstance``.
"""

from __future__ import annotations

import re
from enum import Enum, IntEnum

import msgspec

from pytrace.core.diagnostics import InternalError
from pytrace.core.types import AddressSpace


class ProbeTarget(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A target that a program attaches to. Encoded as a list, as there may be very many."""


class NoTarget(ProbeTarget, frozen=True):
    """begin and end, which are run instead of attached; and any kind without a known target."""


class SignalTarget(ProbeTarget, frozen=True):
    """self: a signal sent to the tracer."""

    signal: str


class NamedRunTarget(ProbeTarget, frozen=True):
    """test and bench: the name in the script."""

    name: str


class KernelFunctionTarget(ProbeTarget, frozen=True):
    """kprobe and kretprobe: *offset* bytes into a function, or an *address* without a function.

    *module* is empty for the kernel proper and where it does not matter. *shared*: several functions have the name, and
    all are meant.
    """

    function: str = ""
    module: str = ""
    offset: int = 0
    address: int | None = None
    shared: bool = False

    @property
    def whole(self) -> bool:
        """Whether this is the start of a named function."""
        return self.address is None and not self.offset


class TypedFunctionTarget(ProbeTarget, frozen=True):
    """fentry and fexit: a function of the kernel (*module* ``vmlinux``), of a module, or of a loaded BPF program.

    *by_pattern* is set when the BPF program matched a pattern; such a program may be unloaded before it is attached to.
    """

    function: str
    module: str = ""
    program_id: int | None = None
    by_pattern: bool = False


class FileTarget(ProbeTarget, frozen=True):
    """A file offset in a user binary; *by_pattern* is set when the file matched a pattern, as it may disappear."""

    path: str
    offset: int
    by_pattern: bool = False


ALWAYS = -1
"""The condition of a jump that is always taken; other numbers are the processor's (the lower half of the opcode)."""


class Way(IntEnum):
    """How a function is left at an instruction."""

    RETURN = 0
    """It returns."""
    JUMP = 1
    """It jumps to code that returns in its place, which cannot be seen: the value is not known."""
    MARK = 2
    """It jumps to code that returns in its place at one of the instructions of :data:`ELSEWHERE`."""
    ELSEWHERE = 3
    """A return instruction of code that this function may have jumped to, or that others called."""


class UserTarget(FileTarget, frozen=True):
    """uprobe and uretprobe: *symbol* is the function's name, empty for addresses and source lines.

    *inside*: not the function's first instruction. *leaving*: how far from the start of the function an instruction is
    at which it is left, which a uretprobe is put on that replaces no return address; else None. *way* and *condition*
    are those of this exit (:class:`pytrace.core.instructions.Exit`). *go*: it is code of Go. *checked*: how far from
    the start of its function the probe of an entry is, where that is not its first instruction. *found*:
    a pattern found the function among others, which are probed where the kernel refuses this one's instruction.
    """

    symbol: str = ""
    inside: bool = False
    leaving: int | None = None
    way: Way = Way.RETURN
    condition: int = ALWAYS
    go: bool = False
    checked: int = 0
    found: bool = False

    @property
    def has_goroutine(self) -> bool:
        """True where a register has the running goroutine: in Go, but not in assembly for its former convention."""
        return self.go and keeps_goroutine(self.symbol)


def keeps_goroutine(symbol: str) -> bool:
    """Whether a function of Go has the running goroutine in a register: not in assembly for its former convention."""
    return not symbol.endswith(".abi0")


class StaticProbeTarget(FileTarget, frozen=True):
    """usdt: one location of a probe; *semaphore_offset* is the file offset of its semaphore, 0 without one."""

    provider: str = ""
    name: str = ""
    semaphore_offset: int = 0


class PythonTarget(ProbeTarget, frozen=True):
    """python and pythonret: *files* are patterns of file names, *function* is one of qualified names."""

    files: tuple[str, ...]
    function: str


SYSTEM_CALLS = "system_calls"
"""``ProgramSpec.multi`` of a raw tracepoint program that serves several system call tracepoints."""
RAW_TRACEPOINT = "raw_tracepoint"
"""``ProgramSpec.multi`` of a raw tracepoint program that serves the tracepoint of the same name."""
ENTER, EXIT = "sys_enter", "sys_exit"
"""The raw tracepoints of all system calls; also the prefixes of the names of each call's tracepoints."""


class TracepointTarget(ProbeTarget, frozen=True):
    """tracepoint."""

    category: str
    event: str

    @property
    def call(self) -> tuple[str, str]:
        """Raw tracepoint and system call of a system call tracepoint; both empty for others."""
        for raw in (ENTER, EXIT):
            if self.category == "syscalls" and self.event.startswith(f"{raw}_"):
                return raw, self.event[len(raw) + 1 :]
        return "", ""


class RawTracepointTarget(ProbeTarget, frozen=True):
    """rawtracepoint; *module* is ``vmlinux`` for the kernel proper."""

    event: str
    module: str


TIMER_UNITS = ("hz", "us", "ms", "s")
"""Units of profile and interval as an attach point names them."""


class TimerTarget(ProbeTarget, frozen=True):
    """profile and interval: *frequency* in Hz; when that is 0, the period in nanoseconds."""

    frequency: int = 0
    period_ns: int = 0

    @property
    def mean_ns(self) -> int:
        """Nanoseconds between two hits."""
        return 1_000_000_000 // self.frequency if self.frequency else self.period_ns


CLOCKS = frozenset({"cpu-clock", "task-clock"})
"""Software events that count nanoseconds."""


class CountedEventTarget(ProbeTarget, frozen=True):
    """software and hardware: fires every *period* events; *config* is the event's number (``PERF_COUNT_…``)."""

    event: str
    config: int
    period: int


class WatchpointTarget(ProbeTarget, frozen=True):
    """watchpoint: *length* bytes at *address*; *mode* is a combination of ``r``, ``w`` and ``x``."""

    address: int
    length: int
    mode: str


BPF_FILE_SYSTEM = "/sys/fs/bpf"
"""The directory of pins without an absolute path."""


ITERATORS_OF_ONE_OBJECT = frozenset({"bpf_map_elem", "bpf_sk_storage_map", "cgroup", "sockmap"})
"""Iterators whose link needs a map or a cgroup (``union bpf_iter_link_info``), which an attach point cannot name."""


class IteratorTarget(ProbeTarget, frozen=True):
    """iter: *pin* is the path of the file that runs it when read, empty when the tracer reads it."""

    iterator: str
    pin: str = ""


AnyTarget = (
    NoTarget
    | SignalTarget
    | NamedRunTarget
    | KernelFunctionTarget
    | TypedFunctionTarget
    | UserTarget
    | StaticProbeTarget
    | PythonTarget
    | TracepointTarget
    | RawTracepointTarget
    | TimerTarget
    | CountedEventTarget
    | WatchpointTarget
    | IteratorTarget
)
"""The classes of targets, as msgspec decodes them."""


_SHORTEST_SAMPLING = 100_000
"""Minimum nanoseconds between two samples of a clock on every CPU. Shorter ones stay with the threads of a process:
every CPU would be interrupted so often, and even of a thread of a millisecond they miss no tenth."""


def sampling_period(place: ProbeTarget) -> int:
    """Mean nanoseconds between two samples of a clock that samples CPUs; 0 of any other target.

    A clock of each thread begins anew with it and runs in step with the thread's work: of threads that work for less
    than a period nothing is seen, and of others always the same part. So CPUs are sampled, and programs compare the
    process. Events that are counted stay on threads, where the kernel counts exactly.
    """
    if isinstance(place, TimerTarget):
        mean = place.mean_ns
    else:
        mean = place.period if isinstance(place, CountedEventTarget) and place.event in CLOCKS else 0
    return mean if mean >= _SHORTEST_SAMPLING else 0


# ---------------------------------------------------------------------------------------------------------------- kinds

# The probe table: one row for each kind of probe.
#
# A row has the kind's names, its BPF program type, its context, how `-p` filters it, and the class of its targets.
# Code for it (parsing an attach point, expanding it, attaching it, listing it) is looked up by the row's name in
# `frontend.probes.attach_points`, `runtime.load.attachments` and `runtime.load.listing`; a test checks that
# none is missing.


BEGIN, END, SELF, TEST, BENCH = "begin", "end", "self", "test", "bench"
KPROBE, KRETPROBE, FENTRY, FEXIT = "kprobe", "kretprobe", "fentry", "fexit"
UPROBE, URETPROBE, USDT = "uprobe", "uretprobe", "usdt"
PYTHON, PYTHONRET = "python", "pythonret"
CALL, SYSCALL = "call", "syscall"
"""Calls: no kinds of programs, but what `frontend.expand.call_probes` turns into two of them."""
GOROUTINE_PROCESS_SHIFT, GOROUTINE_SHIFT = 42, 5
"""Goroutines in records of calls: the process above (its ids have 22 bits), below it the address of ``runtime.g``,
which is aligned to 32 bytes, without its low bits, or the goroutine's number."""
PROGRAM_CALL = ("owner", "frame", "function")
"""The parts of what identifies a call of a function of a program (``frontend.syntax.nodes.CallPart``): names of the
members of the key of its hidden map."""
CALL_LEVELS, CALL_FRAMES = "#depth", "#frames"
"""What names of hidden maps end with: those that have how many calls of each thread are under way, and their frames."""
TRACEPOINT, RAWTRACEPOINT = "tracepoint", "rawtracepoint"
PROFILE, INTERVAL, SOFTWARE, HARDWARE, WATCHPOINT, ITER = (
    "profile", "interval", "software", "hardware", "watchpoint", "iter",
)  # fmt: skip


class Context(Enum):
    """The kind of object that a program's context pointer points to."""

    NONE = "none"
    """No context that a script can read."""
    REGISTERS = "registers"
    """``struct pt_regs``."""
    TRACEPOINT = "tracepoint"
    """The tracepoint's record."""
    SLOTS = "slots"
    """An array of ``u64``, one for each argument, and the return value after them for fexit."""
    PERF_EVENT = "perf_event"
    """``struct bpf_perf_event_data``, which starts with ``struct pt_regs``."""
    ITERATOR = "iterator"
    """``struct bpf_iter__TYPE``."""


class PidFilter(Enum):
    """How ``-p`` restricts a probe kind."""

    NONE = "none"
    INJECTED = "injected"
    """The program compares the process id."""
    ATTACH = "attach"
    """The kernel filters by the process id that it gets at attach time."""


class ProbeKind(msgspec.Struct, frozen=True):
    """One row.

    *program_type* is the libbpf name of the program type (``kprobe``, ``tracepoint``, ``raw_tracepoint``, ``tracing``,
    ``perf_event``); *attach_type* the expected attach type of ``tracing`` programs. *space* is where bare pointers
    point in this probe. *backwards*: several probes on one event are attached last to first, so that they run in
    source order.
    """

    name: str
    aliases: tuple[str, ...]
    program_type: str
    context: Context
    space: AddressSpace
    pid_filter: PidFilter
    target: type[ProbeTarget]
    doc: str
    attach_type: str = ""
    wildcards: bool = False
    backwards: bool = False
    special: bool = False
    """begin, end, self, test, bench: run by the tracer; ``probetype`` is ``special``."""
    user: bool = False
    """Attaches to user binaries."""
    returns: bool = False
    """Runs when a function returns, so ``retval`` is available."""
    function: bool = False
    """Traces a function, whose name is ``func``."""
    positional: bool = False
    """Has arguments without types: ``arg0``, ``arg1`` …"""
    signals: bool = False
    """Runs in a context where a signal can be sent to the current task."""

    @property
    def typed(self) -> bool:
        """Whether the verifier knows the types of the context."""
        return self.program_type == "tracing"


_K, _U = AddressSpace.KERNEL, AddressSpace.USER

PROBE_KINDS: tuple[ProbeKind, ...] = (
    ProbeKind(BEGIN, (), "raw_tracepoint", Context.NONE, _K, PidFilter.NONE, NoTarget,
              "before anything is attached", special=True),
    ProbeKind(END, (), "raw_tracepoint", Context.NONE, _K, PidFilter.NONE, NoTarget,
              "after everything is detached", special=True),
    ProbeKind(SELF, (), "raw_tracepoint", Context.NONE, _K, PidFilter.NONE, SignalTarget,
              "a signal to the tracer itself", special=True),
    ProbeKind(TEST, (), "raw_tracepoint", Context.NONE, _K, PidFilter.NONE, NamedRunTarget,
              "a test of --test", special=True),
    ProbeKind(BENCH, (), "raw_tracepoint", Context.NONE, _K, PidFilter.NONE, NamedRunTarget,
              "a benchmark of --bench", special=True),
    ProbeKind(KPROBE, ("k",), "kprobe", Context.REGISTERS, _K, PidFilter.INJECTED, KernelFunctionTarget,
              "kernel function entry or offset",
              wildcards=True, backwards=True,
              function=True, positional=True, signals=True),
    ProbeKind(KRETPROBE, ("kr",), "kprobe", Context.REGISTERS, _K, PidFilter.INJECTED, KernelFunctionTarget,
              "kernel function return",
              wildcards=True, returns=True, function=True, signals=True),
    ProbeKind(UPROBE, ("u",), "kprobe", Context.REGISTERS, _U, PidFilter.ATTACH, UserTarget,
              "user function entry or offset",
              wildcards=True, backwards=True, user=True,
              function=True, positional=True, signals=True),
    ProbeKind(URETPROBE, ("ur",), "kprobe", Context.REGISTERS, _U, PidFilter.ATTACH, UserTarget,
              "user function return",
              wildcards=True, backwards=True, user=True, returns=True, function=True, signals=True),
    ProbeKind(USDT, ("U",), "kprobe", Context.REGISTERS, _U, PidFilter.ATTACH, StaticProbeTarget,
              "user static tracepoint",
              wildcards=True, backwards=True, user=True,
              positional=True, signals=True),
    ProbeKind(PYTHON, ("py",), "kprobe", Context.REGISTERS, _U, PidFilter.ATTACH, PythonTarget,
              "Python function entry",
              backwards=True, user=True, function=True, signals=True),
    ProbeKind(PYTHONRET, ("pyr",), "kprobe", Context.REGISTERS, _U, PidFilter.ATTACH, PythonTarget,
              "Python function return",
              backwards=True, user=True, returns=True, function=True, signals=True),
    ProbeKind(TRACEPOINT, ("t",), "tracepoint", Context.TRACEPOINT, _K, PidFilter.INJECTED, TracepointTarget,
              "kernel static tracepoint",
              wildcards=True, signals=True),
    ProbeKind(RAWTRACEPOINT, ("rt",), "tracing", Context.SLOTS, _K, PidFilter.INJECTED, RawTracepointTarget,
              "kernel static tracepoint, raw arguments", attach_type="trace_raw_tp", wildcards=True,
              positional=True, signals=True),
    ProbeKind(FENTRY, ("f", "kfunc"), "tracing", Context.SLOTS, _K, PidFilter.INJECTED, TypedFunctionTarget,
              "kernel function entry with typed arguments", attach_type="trace_fentry", wildcards=True, backwards=True,
              function=True, signals=True),
    ProbeKind(FEXIT, ("fr", "kretfunc"), "tracing", Context.SLOTS, _K, PidFilter.INJECTED, TypedFunctionTarget,
              "kernel function return with typed arguments", attach_type="trace_fexit", wildcards=True, backwards=True,
              returns=True, function=True, signals=True),
    ProbeKind(PROFILE, ("p",), "perf_event", Context.PERF_EVENT, _K, PidFilter.ATTACH, TimerTarget,
              "timed sampling on every CPU", signals=True),
    ProbeKind(INTERVAL, ("i",), "perf_event", Context.PERF_EVENT, _K, PidFilter.NONE, TimerTarget,
              "timer on one CPU"),
    ProbeKind(SOFTWARE, ("s",), "perf_event", Context.PERF_EVENT, _K, PidFilter.ATTACH, CountedEventTarget,
              "kernel software event"),
    ProbeKind(HARDWARE, ("h",), "perf_event", Context.PERF_EVENT, _K, PidFilter.ATTACH, CountedEventTarget,
              "processor event"),
    ProbeKind(WATCHPOINT, ("w",), "perf_event", Context.PERF_EVENT, _K, PidFilter.ATTACH, WatchpointTarget,
              "memory watchpoint"),
    ProbeKind(ITER, ("it",), "tracing", Context.ITERATOR, _K, PidFilter.NONE, IteratorTarget,
              "iterator over kernel objects",
              attach_type="trace_iter", backwards=True),
)  # fmt: skip


def _index() -> dict[str, ProbeKind]:
    rows: dict[str, ProbeKind] = {}
    for row in PROBE_KINDS:
        for name in (row.name, *row.aliases):
            if name in rows:
                raise ValueError(f"duplicate probe name {name!r}")
            rows[name] = row
    return rows


_INDEX = _index()


PYTHON_KINDS = frozenset({PYTHON, PYTHONRET})
"""Kinds that trace functions of Python, not of machine code."""


def probe_kind(name: str) -> ProbeKind | None:
    """The row of a full or short name.

    Names are case-insensitive, except that ``U`` (usdt) and ``u`` (uprobe) differ.
    """
    return _INDEX.get(name) or _INDEX.get(name.lower())


def program_type(kind: str, multi: str) -> str:
    """The type of the BPF program of a kind; *multi* is that of its :class:`~pytrace.core.manifest.ProgramSpec`."""
    return "tracing" if multi in (SYSTEM_CALLS, RAW_TRACEPOINT) else _INDEX[kind].program_type


def type_name(place: ProbeTarget) -> tuple[str, str]:
    """Prefix and rest of the BTF name of what a tracing program attaches to: ``("btf_trace_", "sched_switch")``.

    The prefixes are those of ``kernel/bpf/verifier.c`` (``bpf_check_attach_target``): typedefs stand for tracepoints.
    """
    if isinstance(place, RawTracepointTarget):
        return TRACEPOINT_TYPES, place.event
    if isinstance(place, TracepointTarget):
        return TRACEPOINT_TYPES, place.call[0] or place.event
    if isinstance(place, IteratorTarget):
        return "bpf_iter_", place.iterator
    if isinstance(place, TypedFunctionTarget):
        return "", place.function
    raise InternalError(f"no tracing program attaches to {place!r}")


TRACEPOINT_TYPES = "btf_trace_"
"""Prefix of the names of typedefs in BTF that stand for tracepoints."""


def known_kind(name: str) -> ProbeKind:
    """The row of a full name that is known to be in the table, such as one from a manifest.

    Raises:
        KeyError: there is no such row.
    """
    return _INDEX[name]


def probe_names() -> list[str]:
    """All full names, for suggestions."""
    return [row.name for row in PROBE_KINDS]


# ----------------------------------------------------------------------------------------------- texts of attach points

# The text of attach points: `provider:part:part`, with `"…"` around text that contains colons.
#
# The front end, which also resolves parameters, options and `@`, reads the same tokens
# (pytrace.frontend.probes.providers).


TOKEN = r"""(?xs)
    (?P<quoted>"(?:[^"\\]|\\.)*")
    | \$(?P<parameter>[0-9]+)
    | \$(?P<option>[A-Za-z_][A-Za-z0-9_-]*)
    | (?P<bad>["$])
    | (?P<separator>[:@])
    | (?P<plain>[^"$:@]+)"""


def unquoted(text: str) -> str:
    """The text between quotes, with ``\\`` before a quote or backslash removed."""
    return re.sub(r"(?s)\\(.)", r"\1", text[1:-1])


def split_attach_point(text: str) -> list[str]:
    """The parts of an attach point, the provider first: split at colons outside quotes, without the quotes."""
    parts = [""]
    for token in re.finditer(TOKEN, text):
        if token.group() == ":":
            parts.append("")
        else:
            parts[-1] += unquoted(token.group()) if token["quoted"] else token.group()
    return parts


def kind_of(text: str) -> ProbeKind | None:
    """The kind of an attach point; None for a pattern, a parameter, and a name that is no provider."""
    return probe_kind(split_attach_point(text)[0].strip())


_CALL_NAMES = (
    (r"\btracepoint:syscalls:sys_(?:enter|exit)_", f"{SYSCALL}:"),
    (r"\b(?:fentry|fexit|kprobe|kretprobe):(?:vmlinux:)?", f"{CALL}:kernel:"),
    (r"\bpython(?:ret)?:", f"{CALL}:python:"),
    (r"\b(usdt|tracepoint):", rf"{CALL}:\1:"),
    (r"\bu(?:ret)?probe:", f"{CALL}:"),
    (r"\b(?:uprobe|uretprobe|fentry|fexit|kprobe|kretprobe|python|pythonret)\b(?!:)", CALL),
)


CALL_FAMILIES = ("syscall", "kernel", "python", "usdt", "tracepoint")
"""What may follow ``call:``, beside programs and libraries."""


def is_call(text: str) -> bool:
    """Whether an attach point is a ``call:`` or ``syscall:``."""
    return ":" in text and text.partition(":")[0].lower() in (CALL, SYSCALL)


def call_name(text: str) -> str:
    """A text about the probes of a call (a name, a message), with the name of the call in their place."""
    for pattern, replacement in _CALL_NAMES:
        text, found = re.subn(pattern, replacement, text)  # compiled when needed: all starts import this module
        if found:
            break
    return text


# ---------------------------------------------------------------------------------------------- events that perf counts

# The events that perf counts by name: software events of the kernel and hardware events of the CPU.


class PerfEvent(msgspec.Struct, frozen=True):
    """A perf event: its name, number (``PERF_COUNT_…`` of linux/perf_event.h), default period and alias."""

    name: str
    config: int
    period: int
    alias: str = ""


SOFTWARE_EVENTS = (
    PerfEvent("alignment-faults", 7, 1),
    PerfEvent("bpf-output", 10, 1),
    PerfEvent("context-switches", 3, 1000, "cs"),
    PerfEvent("cpu-clock", 0, 1_000_000, "cpu"),
    PerfEvent("cpu-migrations", 4, 1),
    PerfEvent("dummy", 9, 1),
    PerfEvent("emulation-faults", 8, 1),
    PerfEvent("major-faults", 6, 1),
    PerfEvent("minor-faults", 5, 100),
    PerfEvent("page-faults", 2, 100, "faults"),
    PerfEvent("task-clock", 1, 1),
)

HARDWARE_EVENTS = (
    PerfEvent("backend-stalls", 8, 1_000_000),
    PerfEvent("branch-instructions", 4, 100_000, "branches"),
    PerfEvent("branch-misses", 5, 100_000),
    PerfEvent("bus-cycles", 6, 100_000),
    PerfEvent("cache-misses", 3, 1_000_000),
    PerfEvent("cache-references", 2, 1_000_000),
    PerfEvent("cpu-cycles", 0, 1_000_000, "cycles"),
    PerfEvent("frontend-stalls", 7, 1_000_000),
    PerfEvent("instructions", 1, 1_000_000),
    PerfEvent("ref-cycles", 9, 1_000_000),
)
