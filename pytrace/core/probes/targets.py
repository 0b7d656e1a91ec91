"""Targets of probes: one class for each kind of attach point.

The row of a probe kind (``kinds.ProbeKind.target``) names the class of its targets. Code that serves several kinds
distinguishes their targets by ``isinstance``.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec


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

    *module* is empty for the kernel proper and where it does not matter.
    """

    function: str = ""
    module: str = ""
    offset: int = 0
    address: int | None = None

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
    are those of this exit (:class:`pytrace.core.probes.instructions.Exit`). *go*: it is code of Go.
    """

    symbol: str = ""
    inside: bool = False
    leaving: int | None = None
    way: Way = Way.RETURN
    condition: int = ALWAYS
    go: bool = False


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


SHORTEST_SAMPLING = 100_000
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
    return mean if mean >= SHORTEST_SAMPLING else 0
