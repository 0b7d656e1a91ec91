"""The probe table: one row for each kind of probe.

A row has the kind's names, its BPF program type, its context, how ``-p`` filters it, and the class of its targets.
Code for it (parsing an attach point, expanding it, attaching it, listing it) is looked up by the row's name in
``frontend.probes.attach_points``, ``runtime.attach.attachments`` and ``runtime.listing.probes``; a test checks that
none is missing.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from pytrace.core.probes.targets import (
    CountedEventTarget,
    IteratorTarget,
    KernelFunctionTarget,
    NamedRunTarget,
    NoTarget,
    ProbeTarget,
    PythonTarget,
    RawTracepointTarget,
    SignalTarget,
    StaticProbeTarget,
    TimerTarget,
    TracepointTarget,
    TypedFunctionTarget,
    UserTarget,
    WatchpointTarget,
)
from pytrace.core.types import AddressSpace

BEGIN, END, SELF, TEST, BENCH = "begin", "end", "self", "test", "bench"
KPROBE, KRETPROBE, FENTRY, FEXIT = "kprobe", "kretprobe", "fentry", "fexit"
UPROBE, URETPROBE, USDT = "uprobe", "uretprobe", "usdt"
PYTHON, PYTHONRET = "python", "pythonret"
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


def known_kind(name: str) -> ProbeKind:
    """The row of a full name that is known to be in the table, such as one from a manifest.

    Raises:
        KeyError: there is no such row.
    """
    return _INDEX[name]


def probe_names() -> list[str]:
    """All full names, for suggestions."""
    return [row.name for row in PROBE_KINDS]
