"""What probes attach to: one class for each shape of place.

The row of a probe kind (``kinds.ProbeKind.target``) names the class of its places, so a manifest keeps their values
only. Code that serves several kinds tells their places apart by ``isinstance``.
"""

from __future__ import annotations

from pytrace.base.fast_dataclass import dataclass, fields


@dataclass(frozen=True)
class ProbeTarget:
    """A place that a program attaches to."""

    def values(self) -> list[object]:
        """The values of all fields in order, for JSON: the class called with them makes the place again."""
        return [getattr(self, item.name) for item in fields(self)]


@dataclass(frozen=True)
class NoTarget(ProbeTarget):
    """begin and end, which are run and not attached; and any kind whose place is not known."""


@dataclass(frozen=True)
class SignalTarget(ProbeTarget):
    """self: a signal that the tracer gets."""

    signal: str


@dataclass(frozen=True)
class NamedRunTarget(ProbeTarget):
    """test and bench: what the script calls it."""

    name: str


@dataclass(frozen=True)
class KernelFunctionTarget(ProbeTarget):
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


@dataclass(frozen=True)
class TypedFunctionTarget(ProbeTarget):
    """fentry and fexit: a function of the kernel (*module* ``vmlinux``), of a module, or of a loaded BPF program.

    *by_pattern* is set where a pattern found the BPF program, which may be gone when it is attached to.
    """

    function: str
    module: str = ""
    program_id: int | None = None
    by_pattern: bool = False


@dataclass(frozen=True)
class FileTarget(ProbeTarget):
    """A place at *offset* in a user binary; *by_pattern* where a pattern found the file, which may go."""

    path: str
    offset: int
    by_pattern: bool = False


@dataclass(frozen=True)
class UserTarget(FileTarget):
    """uprobe and uretprobe: *symbol* is the function that was named, empty for addresses and source lines."""

    symbol: str = ""


@dataclass(frozen=True)
class StaticProbeTarget(FileTarget):
    """usdt: one location of a probe; *semaphore_offset* is where its counter lies in the file, 0 without one."""

    provider: str = ""
    name: str = ""
    semaphore_offset: int = 0


@dataclass(frozen=True)
class TracepointTarget(ProbeTarget):
    """tracepoint."""

    category: str
    event: str


@dataclass(frozen=True)
class RawTracepointTarget(ProbeTarget):
    """rawtracepoint; *module* is ``vmlinux`` for the kernel proper."""

    event: str
    module: str


TIMER_UNITS = ("hz", "us", "ms", "s")
"""Units of profile and interval as an attach point names them."""


@dataclass(frozen=True)
class TimerTarget(ProbeTarget):
    """profile and interval: *frequency* in Hz, or if that is 0 a period in nanoseconds."""

    frequency: int = 0
    period_ns: int = 0


@dataclass(frozen=True)
class CountedEventTarget(ProbeTarget):
    """software and hardware: each *period* events; *config* is the event's number (``PERF_COUNT_…``)."""

    event: str
    config: int
    period: int


@dataclass(frozen=True)
class WatchpointTarget(ProbeTarget):
    """watchpoint: *length* bytes at *address*; *mode* is made of ``r``, ``w`` and ``x``."""

    address: int
    length: int
    mode: str


BPF_FILE_SYSTEM = "/sys/fs/bpf"
"""Where pins are that have no absolute path."""


@dataclass(frozen=True)
class IteratorTarget(ProbeTarget):
    """iter: *pin* is the path of the file that runs it when read, empty when the tracer reads it."""

    iterator: str
    pin: str = ""
