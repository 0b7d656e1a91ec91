"""State of code generation: of a script with its data sections and scratch areas, and of each of its programs.

Data sections have unkeyed maps, counters and session data. A scratch area is per-CPU memory that programs share which
do not interrupt each other. A program consists of an entry function and its other functions: loop callbacks and copies
of user functions. These share the scratch area; variables that several of them use live there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from pytrace.codegen.emit.bodies import LateBody, Plan
from pytrace.codegen.emit.map_uses import SamplingPlan, Words
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.module import LOAD_TIME, PERCPU_SECTION, SHARED_SECTION, Module
from pytrace.codegen.ir.values import Ptr, global_pointer
from pytrace.core.event_layout import EmptiedMap, Location, PrintedMap
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.manifest import (
    RATE_LINE,
    SLOT_FLAG,
    WEIGHT,
    AheadOfTime,
    Counters,
    GlobalSlot,
    OpenValue,
    RandomWords,
    Row,
    SessionData,
    Site,
)
from pytrace.core.options import CompileOptions
from pytrace.core.probe_kinds import ProbeKind
from pytrace.core.types import CHUNK_SIZE, SUMS, Array, Field, Int, Stack, Struct, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import children
from pytrace.frontend.syntax.typed_program import CheckedProgram, FunctionInfo, MapInfo, ProbeUnit, VariableInfo

if TYPE_CHECKING:
    from pytrace.codegen.emit.emitter import Emitter


class Ahead(msgspec.Struct):
    """Load-time values of one ahead-of-time file, and the layouts that it relies on."""

    kernel: KernelInfo
    data: bytearray = msgspec.field(default_factory=bytearray)
    values: list[OpenValue] = msgspec.field(default_factory=list)
    relies: dict[Row, None] = msgspec.field(default_factory=dict)
    binaries: dict[Row, None] = msgspec.field(default_factory=dict)
    """Locations of the probes in user binaries, for ``pytrace.runtime.load.ahead_of_time``."""
    _places: dict[tuple[str, Row, int], int] = msgspec.field(default_factory=dict)

    def place(self, what: str, parts: Row, initial: bytes) -> Ptr:
        """Address of a load-time value with the placeholder *initial*; equal values are deduplicated."""
        key = (what, parts, len(initial))
        if key not in self._places:
            self._places[key] = len(self.data)
            self.values.append(OpenValue(what, parts, len(self.data), len(initial)))
            self.data += initial + bytes(-len(initial) % 8)
        return global_pointer(LOAD_TIME, self._places[key])

    def section(self, copies: int) -> AheadOfTime:
        """The manifest section, for code with per-CPU data for *copies* CPUs."""
        return AheadOfTime(copies, tuple(self.values), tuple(self.relies), tuple(self.binaries))

    def rely(self, *row: object) -> None:
        """Record that the code is valid only if *row* holds (see ``pytrace.runtime.load.ahead_of_time``)."""
        self.relies[tuple(str(part) for part in row)] = None

    def exact(self, path: str, why: str) -> None:
        """Record that a user binary must be unchanged."""
        self.binaries["exact", path, why] = None

    def rely_on_type(self, type_: Type, seen: set[Type] | None = None) -> None:
        """Record size and members of all kernel structs that values of *type_* contain."""
        seen = set() if seen is None else seen
        for inner in _held(type_):
            if inner in seen:
                continue
            seen.add(inner)
            if not self.is_kernel(inner):
                continue
            self.rely("size", inner.kind, inner.name, inner.size)
            for member in inner.fields:
                if member.name:
                    self.rely_on_member(inner, member)
                self.rely_on_type(member.type, seen)

    def rely_on_member(self, struct: Struct, member: Field) -> None:
        """Record the offset of a member, if the struct is the kernel's."""
        if self.is_kernel(struct):
            bits = (member.bit_offset, member.bit_size)
            self.rely("member", struct.kind, struct.name, member.name, member.offset, *bits, member.type)

    def rely_on_size(self, type_: Type) -> None:
        """Record the sizes of the kernel's structs that *type_* consists of."""
        for inner in _held(type_):
            if self.is_kernel(inner):
                self.rely("size", inner.kind, inner.name, inner.size)

    def is_kernel(self, type_: Struct) -> bool:
        """Whether a struct is the kernel's, and not the script's or synthesised for ``args``."""
        return bool(type_.name) and self.kernel.struct(type_.kind, type_.name) == type_


def _held(type_: Type) -> Iterable[Struct]:
    while isinstance(type_, Array):
        type_ = type_.element
    return (type_,) if isinstance(type_, Struct) else ()


COPIES = 4
"""Copies of the area of preemptible programs: how many of these can run interleaved on one CPU."""

USER_AREA = "user"

CLAIM = 8
"""Size of the bitmap of copies in use, which precedes the copies."""


def area_name(kind: ProbeKind, symbol: str, *, pinned: bool = False, owner: str = "") -> str:
    """Name of the area that programs of *kind* use; *pinned* marks a pinned iterator.

    *owner* is the raw tracepoint program that stands in for tracepoints; those of system calls are parts of one
    program, which run one after the other.
    """
    if owner:
        return f"own.{owner}"
    if kind.special:
        return "special"
    if kind.user or pinned:
        return USER_AREA
    if kind.program_type == "tracing":
        return f"own.{symbol}"
    return "guarded"


def unit_area(unit: ProbeUnit) -> str:
    """Name of the area that the program of a unit uses."""
    owner = (unit.part_of or unit.symbol) if unit.raw_tracepoint else ""
    return area_name(unit.kind, unit.symbol, pinned=unit.pinned, owner=owner)


class Scratch(msgspec.Struct):
    """First-fit allocator of offsets in one area."""

    size: int = 0
    _free: list[tuple[int, int]] = msgspec.field(default_factory=list)

    def allocate(self, size: int) -> int:
        """Offset of *size* bytes, 8-byte aligned."""
        size = (size + 7) & ~7
        for index, (offset, available) in enumerate(self._free):
            if available >= size:
                if available == size:
                    del self._free[index]
                else:
                    self._free[index] = (offset + size, available - size)
                return offset
        offset = self.size
        self.size += size
        return offset

    def release(self, offset: int, size: int) -> None:
        """Free memory from :meth:`allocate`."""
        size = (size + 7) & ~7
        merged: list[tuple[int, int]] = []
        for start, length in sorted([*self._free, (offset, size)]):
            if merged and merged[-1][0] + merged[-1][1] == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._free = merged


CACHE_LINE = 64

SESSION = SessionData(
    SHARED_SECTION,
    start=0, cpid=8, tai=16, wall=24, root=32, exit=40, stopped=44, deadline=48, own=56, filters=72,
)  # fmt: skip
"""Numbers at the start of the shared section; values of filters come after them."""


def _up(size: int, step: int) -> int:
    return (size + step - 1) // step * step


class Layout(msgspec.Struct):
    """Offsets in the per-CPU block (one copy for each CPU, *stride* apart) and in the shared section."""

    copies: int
    slots: dict[str, int] = msgspec.field(default_factory=dict)
    generations: frozenset[str] = frozenset()
    """Maps that are double-buffered, so that one buffer can be read while programs write to the other."""
    resettable: frozenset[str] = frozenset()
    """Maps that the user may clear at any time."""
    awaited: frozenset[str] = frozenset()
    """Maps of which the runtime waits for programs that still use an older buffer, or digests of keys."""
    selectors: dict[str, int] = msgspec.field(default_factory=dict)
    """For unkeyed double-buffered maps, the offset in the shared section of the bit that selects the buffer."""
    digested: frozenset[str] = frozenset()
    """Maps whose BPF map is keyed by digests."""
    emptied: frozenset[str] = frozenset()
    """Maps that the script clears or zeroes."""
    key_words: int = 0
    """Offset in the shared section of the random words of digests, *key_bytes* in total."""
    key_bytes: int = 0
    rates: int | None = None
    """Offset in the shared section of the limits of rates; None without them."""
    weights: int | None = None
    """Offset in the shared section of the weights of programs; None without sampling."""
    waiting: int | None = None
    """Offset in the shared section of the number of events that wait for the return of a system call."""
    stack_depths: dict[int, int] = msgspec.field(default_factory=dict)
    """Offsets in the shared section of how deep ``bpf_get_stack`` walks, by the limit of stacks."""
    percpu: int = 0
    shared: int = 0
    stride: int = 0
    counters: dict[tuple[str, int], int] = msgspec.field(default_factory=dict)
    """Index of each counter, allocated on first use."""
    counters_at: int = 0
    sites: dict[Site, int] = msgspec.field(default_factory=dict)
    """Script locations where helpers may fail: the subjects of their counters."""
    areas: dict[str, int] = msgspec.field(default_factory=dict)
    addressed: bool = False
    """Whether a program computes the address of its CPU's block, even if the block is empty."""

    @classmethod
    def plan(
        cls,
        checked: CheckedProgram,
        cpus: int,
        filters: int = 0,
        digested: frozenset[str] = frozenset(),
        *,
        resets: bool = False,
    ) -> Layout:
        """Place the slots of unkeyed maps, after *filters* bytes of values of process filters.

        *digested* are the maps whose BPF map is keyed by digests; *resets* is as for :func:`snapshots`.
        """
        layout = cls(1 << max(0, cpus - 1).bit_length())
        layout.shared = _up(SESSION.filters + filters, CACHE_LINE)
        layout.digested = digested
        if checked.event_list:
            layout.generations, layout.emptied = snapshots(checked), emptied(checked)
        # A reset of the user does not wait for a program that sleeps: its update comes after the next reset.
        layout.awaited = layout.generations | (digested & layout.emptied)
        if resets:
            layout.generations = snapshots(checked, resets=True)
            layout.resettable = resettable(checked)
            layout.emptied |= layout.resettable
        largest = CHUNK_SIZE if checked.config.max_stack_depth > Stack(True).limit else 0
        for info in checked.maps.values():
            if info.name in digested and info.key is not None:
                largest = max(largest, info.key.size)
        if largest:
            # Two for each word of the largest key and of one more: the second sum uses those of the next word.
            layout.key_words, layout.key_bytes = layout.shared, 2 * (_up(largest, 8) + 8)
            layout.shared += _up(layout.key_bytes, CACHE_LINE)
        for info in checked.maps.values():
            if info.key is None:
                layout._place(info)
        return layout

    def limit_rates(self, blocks: int) -> None:
        """Place the limits of the rates of *blocks* blocks."""
        self.rates = self.shared
        self.shared += RATE_LINE * blocks

    def place_weights(self, units: int) -> None:
        """Place the weights of *units* programs, which are only read mostly, and the mark before them."""
        self.weights = self.shared
        self.shared += _up(WEIGHT * (1 + units), CACHE_LINE)

    def place_waiting(self) -> int:
        """Offset of the number of events that wait, in a cache line of its own: all system calls read it."""
        if self.waiting is None:
            self.waiting = self.shared
            self.shared += CACHE_LINE
        return self.waiting

    def place_stack_depth(self, limit: int) -> int:
        """Offset of two words for stacks of at most *limit* frames: :class:`pytrace.core.manifest.StackDepth`."""
        if limit not in self.stack_depths:
            self.stack_depths[limit] = self.shared
            self.shared += CACHE_LINE
        return self.stack_depths[limit]

    def _place(self, info: MapInfo) -> None:
        size = SLOT_FLAG + _up(info.value.size, 8)
        times = 1
        if info.name in self.generations:
            times = 2
            # The bit is in a cache line that nothing else writes, as all CPUs read it for each event.
            self.selectors[info.name] = self.shared
            self.shared += CACHE_LINE
        if info.value.aggregate:
            self.slots[info.name] = self.percpu
            self.percpu += times * size
        else:
            # A cache line of its own, to avoid false sharing between CPUs that write different maps.
            self.slots[info.name] = self.shared
            self.shared += times * _up(size, CACHE_LINE)

    def generation(self, info: MapInfo) -> int:
        """Bytes between the two buffers of a double-buffered slot, else 0."""
        if info.name not in self.selectors:
            return 0
        size = SLOT_FLAG + _up(info.value.size, 8)
        return size if info.value.aggregate else _up(size, CACHE_LINE)

    def counter(self, kind: str, subject: int) -> int:
        """Offset of a counter from the late operand ``counters``; allocated on first use."""
        return 8 * self.counters.setdefault((kind, subject), len(self.counters))

    def site(self, helper: str, place: Location) -> int:
        """Index of a script location where *helper* may fail."""
        return self.sites.setdefault(Site(helper, place), len(self.sites))

    def area(self, name: str, size: int) -> None:
        """Record that a program needs *size* bytes of the scratch area *name*."""
        self.areas[name] = max(self.areas.get(name, 0), size)

    def finish(self, module: Module) -> None:
        """Set the value of every late operand."""
        self.counters_at = self.percpu
        module.settle("counters", self.counters_at)
        offset = _up(self.counters_at + 8 * len(self.counters), CACHE_LINE)
        for name, size in self.areas.items():
            module.settle(f"area.{name}", offset)
            module.settle(f"size.{name}", _up(size, 8))
            offset += _up(CLAIM + COPIES * _up(size, 8) if name == USER_AREA else size, CACHE_LINE)
        self.stride = _up(max(offset, int(self.addressed)), 2 * CACHE_LINE)
        module.settle("stride", self.stride)

    @property
    def total(self) -> int:
        """Bytes of the per-CPU section."""
        return self.copies * self.stride

    def slot(self, info: MapInfo) -> GlobalSlot | None:
        """The location of an unkeyed map, for the manifest."""
        if info.key is not None:
            return None
        selector: tuple[int, str, int] = (0, "", 0)
        if info.name in self.selectors:
            selector = (self.generation(info), SHARED_SECTION, self.selectors[info.name])
        if info.value.aggregate:
            return GlobalSlot(PERCPU_SECTION, self.slots[info.name], self.copies, self.stride, *selector)
        return GlobalSlot(SHARED_SECTION, self.slots[info.name], 1, 0, *selector)

    def random_words(self) -> RandomWords | None:
        """Location of the random words of digests, for the manifest; None without digests."""
        return RandomWords(SHARED_SECTION, self.key_words, self.key_bytes) if self.key_bytes else None

    def manifest_counters(self) -> Counters | None:
        """The location of the counters, for the manifest; None when there are none."""
        names, sites = tuple(self.counters), tuple(self.sites)
        if not names and not sites:
            return None
        return Counters(PERCPU_SECTION, self.counters_at, self.copies, self.stride, names, sites)


# ---------------------------------------------------------------------------------------------- double-buffered maps

_PASSED = frozenset({"print_map", "quantiles", "clear", "zero"})
"""Calls that pass the map itself to user space, and do not read it in the kernel."""


def snapshots(checked: CheckedProgram, *, resets: bool = False) -> frozenset[str]:
    """Names of the double-buffered maps.

    These are keyed maps that are printed and cleared in one step, and unkeyed maps that are cleared in any way, except
    for sums that programs do not read: for these the runtime subtracts the previous value. *resets*: the user may
    clear :func:`resettable` maps at any time.
    """
    printed, emptied = set(), set()
    for spec in checked.event_list:
        static = spec.static
        if isinstance(static, PrintedMap) and static.clear:
            printed.add(static.map)
        elif isinstance(static, EmptiedMap) and not static.joined:
            emptied.add(static.map)
    if resets:
        printed |= resettable(checked)
    unkeyed = {name for name in printed | emptied if checked.maps[name].key is None}
    read = frozenset(_read(checked)) if unkeyed else frozenset()
    buffered = {name for name in unkeyed if name in read or not isinstance(checked.maps[name].value, SUMS)}
    return frozenset(buffered | (printed - unkeyed))


def resettable(checked: CheckedProgram) -> frozenset[str]:
    """Names of the maps that may be cleared at any time: aggregations, and numbers that programs only count.

    What programs store in others, such as the start of a request, they read again.
    """
    others = frozenset(_uncounted(checked))
    return frozenset(
        name for name, info in checked.maps.items()
        if info.value.aggregate or (isinstance(info.value, Int) and name not in others)
    )  # fmt: skip


def emptied(checked: CheckedProgram) -> frozenset[str]:
    """Names of the maps that the script clears or zeroes, whether it prints them in the same step or not."""
    parts = (spec.static for spec in checked.event_list)
    return frozenset(
        part.map for part in parts if isinstance(part, EmptiedMap) or (isinstance(part, PrintedMap) and part.clear)
    )


def _read(checked: CheckedProgram) -> Iterator[str]:
    """Unkeyed maps that programs read."""
    pending = _bodies(checked)
    while pending:
        node = pending.pop()
        if isinstance(node, nodes.MapRef):
            yield node.name
        elif isinstance(node, nodes.Assign) and isinstance(node.target, nodes.MapRef) and node.operator == "=":
            pending.append(node.value)
        elif not _passes(checked, node):
            pending.extend(children(node))


def _uncounted(checked: CheckedProgram) -> Iterator[str]:
    """Maps that programs use for something else than ``@n++``, ``@n += NUMBER`` and the like."""
    pending = _bodies(checked)
    while pending:
        node = pending.pop()
        target: nodes.Node | None = None
        if isinstance(node, nodes.MapRef):
            yield node.name
        elif isinstance(node, nodes.Assign) and node.operator in ("+=", "-="):
            target = node.target
        elif isinstance(node, nodes.ExprStmt) and isinstance(node.value, nodes.Unary):
            target = node.value.operand if node.value.operator in ("++", "--") else None
        if isinstance(target, nodes.MapRef | nodes.MapIndex):
            pending.extend(target.keys if isinstance(target, nodes.MapIndex) else ())
            pending.extend([node.value] if isinstance(node, nodes.Assign) else ())
        elif not _passes(checked, node):
            pending.extend(children(node))


def _bodies(checked: CheckedProgram) -> list[nodes.Node]:
    return [*(unit.body for unit in checked.units), *(function.body for function in checked.functions)]


def _passes(checked: CheckedProgram, node: nodes.Node) -> bool:
    return isinstance(node, nodes.Call) and node in checked.events and checked.events[node].kind in _PASSED


# ---------------------------------------------------------------------------------------------- scripts and programs


class Script(msgspec.Struct, eq=False):
    """State that all programs of a script share during generation."""

    checked: CheckedProgram
    kernel: KernelInfo
    options: CompileOptions
    module: Module
    layout: Layout
    stack_limit: int
    map_indexes: dict[str, int]
    writers: dict[str, set[str]] = msgspec.field(default_factory=dict)
    """For each map, the scratch areas of the programs that assign to it."""
    digests: dict[tuple[Words, ...], str] = msgspec.field(default_factory=dict)
    """Functions that digest large keys, by the words of the keys."""
    emitted: set[str] = msgspec.field(default_factory=set)
    """Functions and maps of :meth:`once`."""
    stack_maps: dict[nodes.Node, str] | None = None
    """Maps that stacks are keys or values of (``codegen.walkers.frame_pointers``), by the call; None: not
    looked for yet."""
    counting: str = ""
    sleepable: set[str] = msgspec.field(default_factory=set)
    """Symbols of the programs that call helpers that sleep."""
    pending: set[str] = msgspec.field(default_factory=set)
    """Maps of events that wait for their strings (``codegen.emit.events``)."""
    returning: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """Of the places whose events wait for the return of a system call: their maps, and the functions that complete
    them (``codegen.walkers.service_programs``)."""
    deciding: frozenset[nodes.Node] = frozenset()
    """The calls of ``str()`` and ``buf()`` that keys and conditions use: those that fail are counted."""
    string_function: str = ""
    """The function that repeats the read of a string (``codegen.emit.memory``)."""
    original_function: str = ""
    """The function that finds a return address which a uretprobe replaced (``codegen.walkers.user_stacks``)."""
    uses_session: bool = False
    unwinds: bool = False
    """Whether a program unwinds user stacks of selected processes by unwind tables."""
    asks: bool = False
    """Whether a program asks for the tables of processes that it meets."""
    reads_ahead: bool = False
    """Whether a program reads the code ahead of a frame without a table (``codegen.walkers.unwinding``)."""
    images: bool = False
    """Whether stacks or symbols have the images of processes."""
    chunks_stacks: bool = False
    """Whether a program stores stacks in chunks (``codegen.lower.stack_family``)."""
    walks_python: bool = False
    """Whether a program walks stacks of CPython."""
    python_choices: dict[object, int] = msgspec.field(default_factory=dict)
    """Numbers of what probes of Python functions remember for each code object."""
    ahead: Ahead | None = None
    """Load-time values of an ahead-of-time file; None for other scripts."""
    sparing: bool = False
    """Whether variables and large temporaries are in scratch memory, because the stack is too small."""
    element_maps: frozenset[str] = frozenset()
    """Maps for which repeated reads of an element are eliminated (:mod:`pytrace.codegen.emit.map_uses`)."""
    sampling: SamplingPlan | None = None
    """Which programs may be sampled; None without ``--budget``."""
    inserted: Mapping[nodes.Block, frozenset[str]] = msgspec.field(default_factory=dict)
    """By body, maps whose elements are mostly missing when they are assigned (:mod:`..emit.map_uses`)."""

    def once(self, name: str, emit: Callable[[], None]) -> str:
        """*name* of a function or map of the script, which *emit* adds when it is first asked for."""
        if name not in self.emitted:
            self.emitted.add(name)
            emit()
        return name

    def counting_callback(self) -> Ptr:
        """An empty callback: ``bpf_for_each_map_elem`` with it returns the number of entries."""
        if not self.counting:
            self.counting = "count_entry"
            self.module.function(self.counting, ("*map", "*key", "*value", "*frame"), None).ret(0)
        return global_pointer(self.counting)


class Loop(msgspec.Struct, frozen=True):
    """The innermost loop: whether ``break`` and ``continue`` are jumps or results of a callback."""

    leave: Block | None
    again: Block | None


class Part:
    """A part of the emitter of one function: what it emits for one subject."""

    def __init__(self, e: Emitter) -> None:
        self.e = e
        self.b = e.b
        self.program = e.program
        self.script = e.script
        self.checked = e.checked
        self.module = e.module


class Variable(msgspec.Struct, eq=False):
    """Storage of a scratch variable: an ``i64`` register, stack bytes, or an offset in the scratch area."""

    type: Type
    register: Ptr | None = None
    stack: Ptr | None = None
    offset: int | None = None


class PythonCall(msgspec.Struct, frozen=True):
    """Scratch offsets of the call that a probe of a Python function is at (``codegen.walkers.python_calls``).

    They are those of the state of its thread, of what the service works with, and of the objects that the body reads.
    """

    state: int
    work: int
    objects: int
    site: int
    """Where failures are counted."""


class Program(msgspec.Struct, eq=False):
    """State of one BPF program during generation."""

    script: Script
    unit: ProbeUnit
    index: int
    shared: frozenset[VariableInfo]
    plan: Plan = msgspec.field(default_factory=Plan)
    scratch: Scratch = msgspec.field(default_factory=Scratch)
    variables: dict[VariableInfo, Variable] = msgspec.field(default_factory=dict)
    functions: dict[FunctionInfo, str] = msgspec.field(default_factory=dict)
    results: dict[FunctionInfo, int] = msgspec.field(default_factory=dict)
    """Scratch memory of function results that do not fit a register."""
    origins: dict[VariableInfo, nodes.Expr] | None = None
    """Provenance of variables (:mod:`pytrace.codegen.lower.operators`), computed on first use."""
    failure_function: str = ""
    """The function that counts and reports failed helper calls, if it has been emitted."""
    repeated: Mapping[nodes.Expr, nodes.MapIndex] = msgspec.field(default_factory=dict)
    """Maps repeated reads of elements to the earlier reads whose values they reuse."""
    read_again: frozenset[nodes.Expr] = frozenset()
    """The values of :attr:`repeated`: reads whose values are kept."""
    inserted: frozenset[str] = frozenset()
    """Maps to whose elements this program assigns without a look-up."""
    sampled: bool = False
    """Whether hits may be left out."""
    storing: frozenset[str] = frozenset()
    """Maps for whose values it stores weights (``codegen.lower.map_access``)."""
    reading: frozenset[str] = frozenset()
    """Maps whose values give it their weight."""
    lookup_functions: dict[str, str] = msgspec.field(default_factory=dict)
    """Functions that look up keys, by map name."""
    loop_budget: int | None = None
    """Scratch offset of the remaining loop budget (``codegen.emit.loops``); None if they cannot exceed it."""
    may_sleep: bool | None = None
    """Whether the program may be sleepable; None if that has not been asked."""
    sleeps: bool = False
    """Whether the program calls helpers that sleep."""
    numbers: int = 0
    late: LateBody | None = None
    """How the body is postponed where a string cannot be read; None where it keeps its place."""
    late_function: str = ""
    """The function that runs the body of a hit that was kept, if the program keeps any."""
    postponed: bool = False
    """Whether this is the body of hits that were kept, which runs at the return of system calls."""
    python: PythonCall | None = None
    """The call of a Python function, in probes of these."""

    @property
    def area(self) -> str:
        """Name of the scratch area."""
        # It may interrupt programs that the entry of the call cannot.
        return f"own.late.{self.unit.symbol}" if self.postponed else unit_area(self.unit)

    @property
    def weighted(self) -> bool:
        """Whether a hit may stand for several."""
        return self.sampled or bool(self.reading)

    @property
    def preemptible(self) -> bool:
        """Whether the program can be preempted by another task that runs programs of the same area on the same CPU."""
        return self.area == USER_AREA

    def name(self, what: str) -> str:
        """Symbol of another function of this program."""
        self.numbers += 1
        return f"{self.unit.symbol}__{what}{self.numbers}"
