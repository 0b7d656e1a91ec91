"""The typed program: the interface between front end and code generator, with names resolved and types checked.

The trees are fully expanded: macros and parameters are substituted, constant conditions evaluated, and each
:class:`ProbeUnit` owns its nodes (a body with several contexts was copied), so a node has exactly one type.
The code generator does not check legality; a missing table entry is a bug (``InternalError``).

How the generator uses these tables
===================================

**Constants first.** A node in ``constants`` is that value of type ``types[node]``; nodes below it are not visited (they
may have no types). ``bytes`` are strings without NUL (``types[node]`` is ``String``), or the bytes of an ``Array``
(``pton``). Enum members are constants of type ``Enum``. ``sizeof``, ``offsetof``, ``comptime``, compile-time builtins
and folded arithmetic are constants.

**Decided branches.** When the condition of an ``If`` or ``Ternary`` is in ``constants``, only the branch that it
selects is typed and may be generated. The same for ``&&``/``||`` whose left side decides: then the whole node is a
constant. Nodes in ``dead`` (statements and trailing values that cannot be reached) are not typed and must not be
generated; so a block may end early.

**Trailing values.** ``Block.value`` is the value where the block is used as a value (body of a ``BlockExpr`` or
``If`` whose own type is not ``Void``); else it is evaluated for its effect and discarded. ``types`` of a
``BlockExpr`` or ``If`` used as a statement is ``VOID``. An ``If``/``Ternary`` as a value converts the chosen branch
to its own type.

**Conversions are implicit.** ``types[e]`` is *e*'s own type. Wherever it goes into a typed slot
(variable: ``VariableInfo.type``; map key or value: ``MapInfo``; event argument: ``EventSpec.args``; parameter or
result of a function; branch of a conditional; member of a tuple or record of such a slot) the generator converts:
integers and bools are extended by the signedness of the source or truncated; enums are integers; strings are copied
and padded with NUL or truncated; tuples member by member, records **by name** (order may differ); pointers and arrays
of the same size unchanged. Types that need another conversion have been rejected. A key of several
expressions is a tuple of them.

**Aggregates.** ``types`` of a map reference that is read is the type of the value read: ``INT64`` or ``UINT64`` for
count, sum, avg, min, max (merged over all CPUs), ``Stats`` for stats (merged, one copy; only printed).
``MapInfo.value`` holds the aggregate itself. An update is ``Assign(map, "=", Call)`` with the aggregate's row in
``calls`` and its parameters in the map's value type.

**Integers.** Arithmetic and comparison first extend both operands to 64 bits, each by its own signedness (bool, enum
and pointer as unsigned); the result is 64 bits wide (``types[node]``: ``INT64`` or ``UINT64``; ``BOOL`` for
comparisons and logic). Its ``Signedness`` says for ``/ % >> < > <= >=`` (and their assignment forms) whether
the operation is signed. Signed ``/`` and ``%`` truncate as in C; division by zero reports and returns 1. Shifts use the
count modulo 64. Compound assignment and ``++ --`` do the same in 64 bits and store into the slot; ``types[Unary ++]``
is the slot's type. Pointer ± integer scales by ``target.size`` (void and incomplete types: 1), also in ``+=``,
``++``, ``Index``.

**Comparisons** ``== !=`` of strings go up to the first NUL or the smaller capacity; of tuples and records member by
member; of arrays by bytes. A condition (``if``, ``?:``, ``!``, ``&&``, ``||``, ``while``) is an integer, bool, enum
or pointer: true when not 0.

**Pointers.** ``types[e].space`` says how to read through it: BPF plain loads (null-checked where the pointer comes
from a map), KERNEL and USER probe reads, NONE the probe kind's ``space``; ``trusted`` ones may be followed by plain
loads. ``&$x`` points into BPF memory, as do ``&@m`` (the value of an unkeyed map) and ``&@m[k]`` (null when there is
no such key).

**Field and index.** ``fields[node]``. A member of type ``char[N]`` has ``types[node] == String(N)`` while
``FieldPath.type`` stays the array; a bitfield has its integer type. An ``Index`` has a base that is an array,
pointer, string (an element is ``UINT8``) or tuple (constant index); for an array, ``BoundsCheck`` says whether the
index must be checked at run time (report ``array_bounds``; the value is then zero).

**Casts.** Between scalars; integer → array (bytes of the integer, least significant first on little endian) and array
→ integer of the same size; string → array (truncated or NUL-padded); anything → its own type; aggregate map → integer
(the read above).

**typeinfo.** ``types[TypeInfo]`` is a ``Record`` of an integer and two strings; ``TypeDescription.record``
is a ``RecordLiteral`` of constants to generate in its place. A ``FieldAccess``
of it is a constant.

**Builtins.** Other facts about a ``Call`` or ``Identifier`` are in ``facts``, one class for each kind; capacities,
buckets and modes of stacks are in the types.

- ``str``: a length argument is evaluated (``args[1]``). ``strerror``, ``signal_name``, ``syscall_name``:
  type ``String(64)``.
- ``print`` and the other asynchronous ones: ``events[node]`` and ``event_arguments[node]``.
  ``join``: argument 0 is the ``char **``; ``skboutput``: the expressions skb, length, offset (the generator computes
  the event's own arguments); a ``print`` of ``args`` has the ``Identifier`` as argument, of type
  ``ProbeContext.args_type``.
- ``exit`` sends its event and ends the program.
- ``assert``, ``container_of`` and other library macros have been expanded.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from pytrace.core.builtins import Builtin
from pytrace.core.diagnostics import InternalError, cut_line
from pytrace.core.event_layout import STATIC_PARTS, AnyStaticPart, EventSpec, HelperFailure, Location, RuntimeFailure
from pytrace.core.manifest import Target
from pytrace.core.options import Config
from pytrace.core.probe_kinds import (
    RAW_TRACEPOINT,
    SYSTEM_CALLS,
    IteratorTarget,
    ProbeKind,
    TracepointTarget,
    call_name,
)
from pytrace.core.source import Source, Span, expansion_chain
from pytrace.core.types import INT32, Field, Struct, Type
from pytrace.frontend.syntax import nodes

# ---------------------------------------------------------------------------------------------------- facts about nodes

# Facts other than types that the checker records about nodes for the code generator: one class for each kind.
#
# `CheckedProgram.facts` holds at most one fact for a node; `CheckedProgram.fact` and `find_fact` read it. What a
# type already contains (capacity of a string, mode of a stack, buckets of a histogram) is not a fact.

_WITHOUT_PROVENANCE = frozenset(
    ("exit", "clear", "zero", "unwatch", "skboutput", "runtime_error", "helper_error", "print_rows", "clear_terminal")
)
"""Kinds of events without provenance, which users do not see as separate events."""


class Fact(msgspec.Struct, frozen=True):
    """A fact about one node."""


# ---------------------------------------------------------------------------------------------- operators, types


class Signedness(Fact, frozen=True):
    """Whether arithmetic, a comparison or a compound assignment is signed (``/ % >> < > <= >=`` depend on it).

    Pointer arithmetic is not.
    """

    signed: bool


class BoundsCheck(Fact, frozen=True):
    """Whether the index of an array or string is checked at run time (a failure reports ``array_bounds``)."""

    needed: bool


class GoroutineNumber(Fact, frozen=True):
    """Where in Go's ``runtime.g`` the number of a goroutine is, in the binaries *paths*."""

    offset: int
    paths: tuple[str, ...]


class LayoutReliance(Fact, frozen=True):
    """The struct layout that a constant ``sizeof`` or ``offsetof`` of an ahead-of-time file relies on.

    *members* are the steps of ``offsetof``.
    """

    type: Type
    members: tuple[tuple[Struct, Field], ...] = ()


class Existence(Fact, frozen=True):
    """A query about the kernel (``kfunc_exist`` …) and its answer: a row of ``runtime.load.ahead_of_time``."""

    row: tuple[str, ...]


class OneOf(Fact, frozen=True):
    """The entries that ``one_of`` compares with: integers, or texts."""

    entries: tuple[int, ...] | tuple[bytes, ...]


class TypeDescription(Fact, frozen=True):
    """The result of ``typeinfo``: BTF id, kind and full name; *record* holds them as constants to generate."""

    btf_id: int
    base_type: bytes
    full_type: bytes
    record: nodes.RecordLiteral

    @property
    def values(self) -> tuple[int, bytes, bytes]:
        """The members of the record in order."""
        return self.btf_id, self.base_type, self.full_type


# ---------------------------------------------------------------------------------------------- context, process, time


class ArgumentIndex(Fact, frozen=True):
    """``argN``: the N."""

    index: int


class RegisterName(Fact, frozen=True):
    """``reg``: the name in ``struct pt_regs``."""

    register: str


class PidNamespace(Fact, frozen=True):
    """``pid`` and ``tid``: in the pid namespace of the ``tracer`` or in the ``init``ial one."""

    name: str


class SignalNumber(Fact, frozen=True):
    """``signal`` and ``signal_thread``: the number; None if it is known at run time only."""

    number: int | None


class Clock(Fact, frozen=True):
    """``nsecs``: ``boot``, ``monotonic``, ``tai`` or ``sw_tai``."""

    name: str


class DateFormat(Fact, frozen=True):
    """``strftime``: index of the format in ``CheckedProgram.strings``; the clock is 0 boot, 1 tai, 2 sw_tai."""

    string: int
    clock: int


class CgroupFilter(Fact, frozen=True):
    """``cgroup_path``: index of the filter in ``CheckedProgram.strings``."""

    string: int


# ---------------------------------------------------------------------------------------------- maps, strings, memory


class MapAccess(Fact, frozen=True):
    """``delete``, ``find``, ``has_key``, and ``len`` of a map: the map's name and the key expressions.

    *keys* are like those of a ``MapIndex``; an unkeyed map has none. ``find`` writes the variable that is its third
    argument. ``len`` of a stack has no such fact.
    """

    map: str
    keys: tuple[nodes.Expr, ...] = ()


class ShortText(msgspec.Struct, frozen=True):
    """A text in its object, at byte *text*, if a bit is zero; another byte has its length, above *length_shift* bits.

    *flag* and *flag_bit* say where the bit is, *length* where the byte is, of which *length_bits* count.
    """

    text: int
    flag: int
    flag_bit: int
    length: int
    length_shift: int
    length_bits: int


class CountedString(msgspec.Struct, frozen=True):
    """An object that has the address and the length of a text, at these byte offsets.

    *in_front*: the length is that many bytes before the text, not in the object. *short*: where a short text is, which
    has no address.
    """

    address: int
    length: int
    in_front: int = 0
    short: ShortText | None = None


class StringLength(Fact, frozen=True):
    """``str`` with a length: whether the length is a constant that does not truncate the string; and ``str`` of an
    object that has the length of its text.
    """

    whole: bool
    counted: CountedString | None = None


class BufferLength(Fact, frozen=True):
    """``buf``: its constant length in bytes; a ``buf`` of variable length has no such fact."""

    length: int


class ComparedLength(Fact, frozen=True):
    """``strncmp``, ``memcmp``: number of bytes compared; if not *constant*, the maximum of the run-time argument."""

    length: int
    constant: bool = True


# ---------------------------------------------------------------------------------------------- addresses, output


class KernelVariable(Fact, frozen=True):
    """``percpu_kaddr``: the symbol, and its link address."""

    symbol: str
    address: int


class UserSymbol(Fact, frozen=True):
    """``uaddr``: the symbol, the binary that has it, and its virtual address in that file."""

    symbol: str
    path: str
    address: int


class NetworkAddress(Fact, frozen=True):
    """``ntop``: the family (2 or 10; None: the run-time value of the first argument), and the address."""

    family: int | None
    address: nodes.Expr


class DebugFormat(Fact, frozen=True):
    """``debugf``: the format for ``bpf_trace_printk``."""

    text: str


# ------------------------------------------------------------------------------------------------------- probe contexts

# Probe contexts: the locations of `args`, `argN`, `retval` and `ctx`.


class ContextField(msgspec.Struct, frozen=True):
    """An argument at a byte offset of the context (tracepoint records, iterator contexts)."""

    offset: int


class DataLoc(msgspec.Struct, frozen=True):
    """A ``__data_loc`` (or, *relative*, ``__rel_loc``) field: offset and length of the data, at a byte offset."""

    offset: int
    relative: bool = False


class Slot(msgspec.Struct, frozen=True):
    """Element *index* of the ``u64`` array that is the context (fentry, fexit, raw tracepoints)."""

    index: int


class Argument(msgspec.Struct, frozen=True):
    """Function argument *index* by the calling convention, from ``pt_regs``."""

    index: int


class ReturnValue(msgspec.Struct, frozen=True):
    """The function's result, from ``pt_regs``."""


class RegisterLocation(msgspec.Struct, frozen=True):
    """A value in a register (*dereference* False) or in memory at register + offset; from DWARF or a USDT note.

    *size* and *signed* describe the value at that location. *register* is a ``pt_regs`` name (``ax``, ``r12`` …),
    *index* a second register times *scale*; register empty with dereference False means the constant *offset*.
    *fraction*: the value is a floating-point number.
    """

    register: str
    offset: int = 0
    dereference: bool = False
    size: int = 8
    signed: bool = False
    index: str = ""
    scale: int = 1
    fraction: bool = False


class RegisterParts(msgspec.Struct, frozen=True):
    """A value in several registers: offset and size in bytes of each part, and its register."""

    parts: tuple[tuple[int, int, str], ...]


class CountedText(msgspec.Struct, frozen=True):
    """A string without a NUL in user memory, by its address and length."""

    address: RegisterLocation
    length: RegisterLocation


class Unreadable(msgspec.Struct, frozen=True):
    """A value that programs cannot read, and that ``args`` as a whole shows as this text."""

    text: str


class CallRegister(msgspec.Struct, frozen=True):
    """A signed or unsigned value of *size* bytes from the registers of a system call: an argument, or its number.

    *offset* is in ``struct pt_regs``.
    """

    offset: int
    size: int = 8
    signed: bool = False


class CallResult(msgspec.Struct, frozen=True):
    """The result of a system call."""


class RawRead(msgspec.Struct, frozen=True):
    """*size* bytes of a raw tracepoint's argument, or of memory reached through it.

    *slot* is the argument's index, None for the current task. *offsets* are member offsets: all but the last are of
    pointers to follow; without any, the value is the argument itself. *direct*: the verifier accepts plain loads of
    the first member.
    """

    slot: int | None
    offsets: tuple[int, ...]
    size: int
    signed: bool = False
    direct: bool = False


class RawField(msgspec.Struct, frozen=True):
    """A tracepoint field that a raw tracepoint program computes in the same way as the kernel's tracepoint.

    *formula* names one of ``codegen.emit.context``; *reads* and *numbers* are its operands.
    """

    formula: str
    reads: tuple[RawRead, ...]
    numbers: tuple[int, ...] = ()


class PythonValue(msgspec.Struct, frozen=True):
    """A Python object: one of those that the program finds when it begins."""

    index: int


ArgumentLocation = (
    ContextField
    | DataLoc
    | Slot
    | Argument
    | ReturnValue
    | RegisterLocation
    | RegisterParts
    | CountedText
    | Unreadable
    | CallRegister
    | CallResult
    | RawField
    | PythonValue
)


class ProbeArgument(msgspec.Struct, frozen=True):
    """One member of ``args``."""

    name: str
    type: Type
    place: ArgumentLocation


class ProbeContext(msgspec.Struct, frozen=True):
    """The locations of ``args``, ``argN``, ``retval`` and ``ctx`` in a unit.

    *args_type* is the struct that ``args`` prints as (None without ``args``); its fields have the names of
    *arguments*. *positional* are the locations of ``arg0`` … for USDT probes (else derived from the kind).
    """

    arguments: tuple[ProbeArgument, ...] = ()
    args_type: Struct | None = None
    result: ProbeArgument | None = None
    positional: tuple[RegisterLocation, ...] = ()
    ctx_type: Type | None = None
    slots: int = 0
    """Number of ``u64`` arguments in a :class:`Slot` context."""
    missing: tuple[str, ...] = ()
    """Hints that say why ``args`` is missing."""
    lost: tuple[str, ...] = ()
    """Arguments (``args.rate``), members of these and ``retval`` that are in floating-point registers, which programs
    cannot read."""

    reads_result: bool = False
    """Whether the body of a uretprobe reads ``retval``."""

    def argument(self, name: str) -> ProbeArgument | None:
        """The member of ``args`` of that name."""
        return next((item for item in self.arguments if item.name == name), None)


# ---------------------------------------------------------------------------------------------------------- the program


Constant = int | bool | bytes
F = TypeVar("F", bound=Fact)


# ---------------------------------------------------------------------------------------------- probe units


KPROBE_SESSION = "kprobe_session"
"""``ProbeUnit.multi`` of units that are entry and return of the same functions: kprobe session links."""
SESSION_IS_RETURN = "bpf_session_is_return"
"""The kfunc that returns whether a session's program runs at the return (kernel/trace/bpf_trace.c)."""


class ProbeUnit(msgspec.Struct, frozen=True, eq=False):
    """One BPF program: a body in one context, attached to one or more targets.

    *body* contains the predicate already (as an ``if``). *symbol* is unique and a valid C name. *index* counts the
    script's probe blocks in source order (several units may come from one block).
    """

    symbol: str
    index: int
    kind: ProbeKind
    targets: tuple[Target, ...]
    context: ProbeContext
    body: nodes.Block
    span: Span
    multi: str = ""
    part_of: str = ""
    """The unit whose program also contains this one's code: the entry of a session, or the first of system calls."""
    pid_filter: bool = False
    """The program compares the process id with those of ``-p``."""
    of_child: bool = False
    """The program compares the process id with that of ``-c``, if there is one."""
    filtered: bool = False
    """The program has the filters of ``--comm``, ``--uid``, ``--cgroup`` and ``--netns``."""
    foreign: bool = False
    """The program leaves out the tracer's own process."""
    calls: tuple[int, ...] = ()
    """With :data:`~pytrace.core.probe_kinds.SYSTEM_CALLS` as *multi*: the system call's number for each target."""
    follow: bool = False
    """With ``--follow``: the program checks that it runs in the process of ``-p`` or ``-c`` or a descendant."""
    role: str = ""
    """``entry`` or ``return`` of a ``call:``."""

    @property
    def names(self) -> list[str]:
        """The names of the targets, as the script has them."""
        return [call_name(target.probe) if self.role else target.probe for target in self.targets]

    @property
    def combined(self) -> bool:
        """Whether the unit's code is a function that the program of several units calls."""
        return self.multi in (KPROBE_SESSION, SYSTEM_CALLS)

    @property
    def raw_tracepoint(self) -> str:
        """The raw tracepoint that replaces the unit's tracepoints; empty for other units."""
        if self.multi not in (SYSTEM_CALLS, RAW_TRACEPOINT):
            return ""
        place = self.targets[0].of(TracepointTarget)
        return place.call[0] if self.multi == SYSTEM_CALLS else place.event

    @property
    def pinned(self) -> bool:
        """Whether the program is a pinned iterator, read by other processes than the tracer."""
        return any(isinstance(target.place, IteratorTarget) and target.place.pin for target in self.targets)


# ---------------------------------------------------------------------------------------------- resources


class VariableInfo(msgspec.Struct, eq=False):
    """A scratch variable: one for each declaration (scope), shared by all nodes that refer to it."""

    name: str
    type: Type
    span: Span


class MapInfo(msgspec.Struct, frozen=True):
    """A map of the script. *kind* as in :class:`pytrace.core.manifest.MapSpec`."""

    name: str
    key: Type | None
    value: Type
    kind: str
    max_entries: int
    span: Span
    help: str = ""
    key_names: tuple[str, ...] = ()
    """What the script calls the members of its keys; empty where an expression has no name."""
    private: bool = False
    """Declared as ``private``: it is shown only where the script prints it."""

    @property
    def hidden(self) -> bool:
        """Whether it is one of a ``call:`` probe, not of the script: its name is none that a script can write."""
        return ":" in self.name

    @property
    def shared(self) -> bool:
        """True for a keyed map of an aggregation with one value per key that all CPUs update."""
        return self.kind == "hash" and self.value.aggregate


class FunctionInfo(msgspec.Struct, frozen=True, eq=False):
    """A user function after checking."""

    name: str
    symbol: str
    parameters: tuple[VariableInfo, ...]
    result: Type
    body: nodes.Block
    span: Span


class ImportedFunction(msgspec.Struct, frozen=True, eq=False):
    """A function of imported C: its parameter and result types, as types of the language."""

    name: str
    parameters: tuple[tuple[str, Type], ...]
    result: Type
    span: Span
    """The import."""


class FieldPath(msgspec.Struct, frozen=True):
    """The kind of base of a field access, and the field's location in it.

    *how* is ``pointer`` (base is a pointer to struct; follow it), ``memory`` (base is a struct value in memory),
    ``record`` (member *index* of a record), ``argument`` (member of ``args``: see *argument*).
    """

    how: str
    type: Type
    offset: int = 0
    bit_offset: int = 0
    bit_size: int = 0
    index: int = 0
    argument: ProbeArgument | None = None


class LoadTime(msgspec.Struct, frozen=True):
    """A value that is resolved each time an ahead-of-time file is loaded: its kind *what*, and its parameters.

    ``parameter`` (name, form, default, skip), ``kaddr`` (symbol), ``cgroup`` (path), ``cpus``, ``child``; the
    generator adds others (``codegen.emit.load_time``).
    """

    what: str
    parts: tuple[str, ...] = ()
    now: int = 0
    """The value on the compiling machine."""


class CheckedProgram(msgspec.Struct, eq=False):
    """The result of the front end.

    - *types*: the type of every expression that is evaluated.
    - *constants*: expressions whose value is known; the code generator does not visit nodes below them.
    - *loaded*: expressions whose value is filled in when the program is loaded (ahead-of-time files only).
    - *variables*: the variable of each ``Variable`` node (declarations and uses).
    - *fields*: for each ``FieldAccess``.
    - *calls*: for each ``Call``, and each ``Identifier`` that names a builtin, the row, or the function.
    - *events*: for each node that sends an event, its spec (its arguments are in *event_arguments*).
    - *event_arguments*: the expressions evaluated into the event, in layout order.
    - *runtime_events*: specs for run-time errors, created on demand by :meth:`report`.
    - *dead*: statements and trailing values that are never reached, and compile-time calls that have been evaluated.
    - *taking*: loops over maps that delete each entry when they have read it, in place of a ``clear()`` after them.
    - *discarded*: calls of ``delete()`` whose result is not used: a missing key is reported at run time.
    - *facts*: other facts about a node: see :mod:`pytrace.frontend.syntax.typed_program`.
    """

    units: list[ProbeUnit] = msgspec.field(default_factory=list)
    functions: list[FunctionInfo] = msgspec.field(default_factory=list)
    maps: dict[str, MapInfo] = msgspec.field(default_factory=dict)
    types: dict[nodes.Expr, Type] = msgspec.field(default_factory=dict)
    constants: dict[nodes.Expr, Constant] = msgspec.field(default_factory=dict)
    loaded: dict[nodes.Expr, LoadTime] = msgspec.field(default_factory=dict)
    variables: dict[nodes.Variable, VariableInfo] = msgspec.field(default_factory=dict)
    fields: dict[nodes.FieldAccess, FieldPath] = msgspec.field(default_factory=dict)
    calls: dict[nodes.Expr, Builtin | FunctionInfo | ImportedFunction] = msgspec.field(default_factory=dict)
    events: dict[nodes.Node, EventSpec] = msgspec.field(default_factory=dict)
    event_arguments: dict[nodes.Node, tuple[nodes.Expr, ...]] = msgspec.field(default_factory=dict)
    runtime_events: dict[tuple[nodes.Node, AnyStaticPart], EventSpec] = msgspec.field(default_factory=dict)
    dead: set[nodes.Node] = msgspec.field(default_factory=set)
    taking: set[nodes.Node] = msgspec.field(default_factory=set)
    discarded: set[nodes.Node] = msgspec.field(default_factory=set)
    facts: dict[nodes.Node, Fact] = msgspec.field(default_factory=dict)
    event_list: list[EventSpec] = msgspec.field(default_factory=list)
    """All specs; a spec's id is its index."""
    strings: list[str] = msgspec.field(default_factory=list)
    objects: list[bytes] = msgspec.field(default_factory=list)
    """Imported BPF object files."""
    decided: tuple[tuple[str, ...], ...] = ()
    """Facts about the kernel that selected items of the script (:class:`~pytrace.frontend.syntax.nodes.Program`)."""
    config: Config = msgspec.field(default_factory=Config)
    sources: list[Source] = msgspec.field(default_factory=list)
    """Every source, the script first."""
    output_format: str = ""
    """The format of ``output_format()``."""
    stack_layout: tuple[str, ...] = ()
    """The words of all ``stack_layout()``."""
    provenance: bool = False
    """Whether events carry their provenance, the probe that sent them (``CompileOptions.provenance``)."""

    def fact(self, node: nodes.Node, kind: type[F]) -> F:
        """The fact of a given class that the checker recorded for a node.

        Raises:
            InternalError: there is none, or one of another class.
        """
        fact = self.facts.get(node)
        if not isinstance(fact, kind):
            raise InternalError(f"expected {kind.__name__} for {type(node).__name__}, found {fact!r}")
        return fact

    def find_fact(self, node: nodes.Node, kind: type[F]) -> F | None:
        """The fact of a given class about a node; None when there is none, or one of another class."""
        fact = self.facts.get(node)
        return fact if isinstance(fact, kind) else None

    def send(self, node: nodes.Node, kind: str, args: tuple[Type, ...], static: AnyStaticPart) -> EventSpec:
        """Add a new event.

        Args:
            node: the node that sends it, whose location it gets.
            kind: the kind of event, a key of :data:`~pytrace.core.event_layout.STATIC_PARTS`.
            args: types of its arguments, in layout order.
            static: its static part.

        Returns:
            The event, with its id.

        Raises:
            InternalError: *static* is not of the class for events of this kind.
        """
        if type(static) is not STATIC_PARTS[kind]:
            raise InternalError(f"expected {STATIC_PARTS[kind].__name__} for {kind}, found {static!r}")
        place, expansion = locate(node.span)
        provenance = self.provenance and kind not in _WITHOUT_PROVENANCE
        spec = EventSpec(len(self.event_list), kind, args, static, place, expansion, provenance)
        self.event_list.append(spec)
        return spec

    def amend(self, node: nodes.Node, static: AnyStaticPart) -> None:
        """Replace the static part of the event that *node* sends."""
        spec = replace(self.events[node], static=static)
        self.events[node] = self.event_list[spec.id] = spec

    def report(self, node: nodes.Node, failure: RuntimeFailure | HelperFailure) -> EventSpec:
        """The ``runtime_error`` or ``helper_error`` event for a failure at *node*; created once."""
        spec = self.runtime_events.get((node, failure))
        if spec is None:
            helper = isinstance(failure, HelperFailure)
            kind, args = ("helper_error", (INT32,)) if helper else ("runtime_error", ())
            spec = self.runtime_events[node, failure] = self.send(node, kind, args, failure)
        return spec


LIBRARY_PREFIX = "stdlib/"
"""Names of the sources of library macros start with this."""

SCRIPT_ORIGIN = "script"
"""Origin of struct types that the script defines in C (:attr:`pytrace.core.types.Struct.origin`)."""


def location(span: Span) -> Location:
    """The span as a location for runtime messages."""
    first, last = span.first, span.last
    end = last.column if last.line == first.line else first.column
    text, start, _ = cut_line(span.source.line(first.line), first.column - 1, max(first.column, end) - 1)
    return Location(span.source.name, first.line, first.column, end, text, first.column - 1 - start)


def locate(span: Span) -> tuple[Location, tuple[Location, ...]]:
    """The location of *span* in the user's script, and the macro calls around it, innermost first.

    Locations inside the library are omitted: the call is reported instead.
    """
    chain = (span, *expansion_chain(span))
    outside = [item for item in chain if not item.source.name.startswith(LIBRARY_PREFIX)] or list(chain)
    return location(outside[0]), tuple(location(item) for item in outside[1:])
