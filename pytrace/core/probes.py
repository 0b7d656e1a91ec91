"""The probe table: one row for each kind of probe.

A row says how the kind is named, which BPF program type carries it, what its context is, and how ``-p`` filters it.
What needs code (parsing an attach point, expanding it, attaching it, listing it) is found by the row's name in
``frontend.attach.attach_points``, ``runtime.attach.attachments`` and ``runtime.listing.probes``; a completeness test
checks that each has it.
"""

from __future__ import annotations

from enum import Enum

from pytrace.base.fast_dataclass import dataclass
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import AddressSpace


class Context(Enum):
    """What a program's context pointer points to."""

    NONE = "none"
    """Nothing that a script may look at."""
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
    """The kernel filters; it gets the process id at attach time."""


@dataclass(frozen=True, slots=True)
class ProbeKind:
    """One row.

    *program_type* is the libbpf name of the program type (``kprobe``, ``tracepoint``, ``raw_tracepoint``, ``tracing``,
    ``perf_event``); *attach_type* the expected attach type of ``tracing`` programs. *space* is where bare pointers
    point in this probe. *backwards*: several blocks on one event attach last to first, so that they run in source
    order.
    """

    name: str
    aliases: tuple[str, ...]
    program_type: str
    context: Context
    space: AddressSpace
    pid_filter: PidFilter
    doc: str
    attach_type: str = ""
    wildcards: bool = False
    backwards: bool = False
    special: bool = False
    """begin, end, self, test, bench: run by hand, ``probetype`` is ``special``."""
    user: bool = False
    """Attaches to user binaries."""
    returns: bool = False
    """Runs when a function returns, so ``retval`` is there."""


_K, _U = AddressSpace.KERNEL, AddressSpace.USER

PROBE_KINDS: tuple[ProbeKind, ...] = (
    ProbeKind("begin", (), "raw_tracepoint", Context.NONE, _K, PidFilter.NONE,
              "before anything is attached", special=True),
    ProbeKind("end", (), "raw_tracepoint", Context.NONE, _K, PidFilter.NONE,
              "after everything is detached", special=True),
    ProbeKind("self", (), "raw_tracepoint", Context.NONE, _K, PidFilter.NONE,
              "a signal to the tracer itself", special=True),
    ProbeKind("test", (), "raw_tracepoint", Context.NONE, _K, PidFilter.NONE,
              "a test of --test", special=True),
    ProbeKind("bench", (), "raw_tracepoint", Context.NONE, _K, PidFilter.NONE,
              "a benchmark of --bench", special=True),
    ProbeKind("kprobe", ("k",), "kprobe", Context.REGISTERS, _K, PidFilter.INJECTED, "kernel function entry or offset",
              wildcards=True, backwards=True),
    ProbeKind("kretprobe", ("kr",), "kprobe", Context.REGISTERS, _K, PidFilter.INJECTED, "kernel function return",
              wildcards=True, returns=True),
    ProbeKind("uprobe", ("u",), "kprobe", Context.REGISTERS, _U, PidFilter.ATTACH, "user function entry or offset",
              wildcards=True, backwards=True, user=True),
    ProbeKind("uretprobe", ("ur",), "kprobe", Context.REGISTERS, _U, PidFilter.ATTACH, "user function return",
              wildcards=True, backwards=True, user=True, returns=True),
    ProbeKind("usdt", ("U",), "kprobe", Context.REGISTERS, _U, PidFilter.ATTACH, "user static tracepoint",
              wildcards=True, backwards=True, user=True),
    ProbeKind("tracepoint", ("t",), "tracepoint", Context.TRACEPOINT, _K, PidFilter.INJECTED,
              "kernel static tracepoint",
              wildcards=True),
    ProbeKind("rawtracepoint", ("rt",), "tracing", Context.SLOTS, _K, PidFilter.INJECTED,
              "kernel static tracepoint, raw arguments", attach_type="trace_raw_tp", wildcards=True),
    ProbeKind("fentry", ("f", "kfunc"), "tracing", Context.SLOTS, _K, PidFilter.INJECTED,
              "kernel function entry with typed arguments", attach_type="trace_fentry", wildcards=True, backwards=True),
    ProbeKind("fexit", ("fr", "kretfunc"), "tracing", Context.SLOTS, _K, PidFilter.INJECTED,
              "kernel function return with typed arguments", attach_type="trace_fexit", wildcards=True, backwards=True,
              returns=True),
    ProbeKind("profile", ("p",), "perf_event", Context.PERF_EVENT, _K, PidFilter.ATTACH, "timed sampling on every CPU"),
    ProbeKind("interval", ("i",), "perf_event", Context.PERF_EVENT, _K, PidFilter.NONE, "timer on one CPU"),
    ProbeKind("software", ("s",), "perf_event", Context.PERF_EVENT, _K, PidFilter.ATTACH, "kernel software event"),
    ProbeKind("hardware", ("h",), "perf_event", Context.PERF_EVENT, _K, PidFilter.ATTACH, "processor event"),
    ProbeKind("watchpoint", ("w",), "perf_event", Context.PERF_EVENT, _K, PidFilter.ATTACH, "memory watchpoint"),
    ProbeKind("iter", ("it",), "tracing", Context.ITERATOR, _K, PidFilter.NONE, "iterator over kernel objects",
              attach_type="trace_iter", backwards=True),
)  # fmt: skip




def _index() -> dict[str, ProbeKind]:
    found: dict[str, ProbeKind] = {}
    for row in PROBE_KINDS:
        for name in (row.name, *row.aliases):
            if name in found:
                raise ValueError(f"duplicate probe name {name!r}")
            found[name] = row
    return found


_INDEX = _index()


def probe_kind(name: str) -> ProbeKind | None:
    """The row of a full or short name.

    Names are case-insensitive, except that ``U`` (usdt) and ``u`` (uprobe) differ.
    """
    return _INDEX.get(name) or _INDEX.get(name.lower())


def known_kind(name: str) -> ProbeKind:
    """The row of a name that comes from the table itself, as those of a manifest do.

    Raises:
        InternalError: there is none.
    """
    found = probe_kind(name)
    if found is None:
        raise InternalError(f"unknown probe kind {name!r}")
    return found


def probe_names() -> list[str]:
    """All full names, for suggestions."""
    return [row.name for row in PROBE_KINDS]
