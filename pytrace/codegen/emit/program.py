"""State of code generation, for a whole script and for each of its programs.

A program consists of an entry function and its other functions: loop callbacks and copies of user functions.
They share the per-CPU scratch area; variables that several of them use live there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from pytrace.codegen.emit.bodies import LateBody, Plan
from pytrace.codegen.emit.map_uses import SamplingPlan, Words
from pytrace.codegen.emit.storage import USER_AREA, Ahead, Layout, Scratch, unit_area
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.module import Module
from pytrace.codegen.ir.values import Ptr, global_pointer
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options import CompileOptions
from pytrace.core.types import Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import CheckedProgram, FunctionInfo, ProbeUnit, VariableInfo

if TYPE_CHECKING:
    from pytrace.codegen.emit.emitter import Emitter


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
    walks: set[str] = msgspec.field(default_factory=set)
    """Functions that walk user stacks."""
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
