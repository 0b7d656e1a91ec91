"""A compiled script: ELF bytes and a manifest of plain data.

A run needs nothing else.  The compile cache and ahead-of-time files contain exactly this; reading it imports neither
LLVM nor the parser.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from pytrace.base import typed_json
from pytrace.core.diagnostics import InternalError, MisfitError, TraceError
from pytrace.core.event_layout import STATIC_PARTS, EventSpec, Location
from pytrace.core.options import Config
from pytrace.core.probe_kinds import PROGRAM_CALL, AnyTarget, ProbeTarget, known_kind
from pytrace.core.types import AGGREGATIONS, Stack, Type, USym, decoded, parts, settled

P = TypeVar("P", bound=ProbeTarget)

MAGIC = b"PYTRACE\n"
FORMAT = 12
"""Incremented whenever ELF conventions, manifest or event layouts change."""


class Target(msgspec.Struct, frozen=True, array_like=True):
    """One target that a program attaches to.

    *probe* is the full probe name (the value of the ``probe`` builtin). *cookie* is the result of
    ``bpf_get_attach_cookie``: the index of the target in its program. *place* is of the class that the probe
    kind's row names (``pytrace.core.probe_kinds``).
    """

    probe: str
    cookie: int
    place: AnyTarget

    def of(self, kind: type[P]) -> P:
        """The target, checked to be an instance of *kind*.

        Raises:
            InternalError: it is of another class.
        """
        if not isinstance(self.place, kind):
            raise InternalError(f"{self.probe}: {kind.__name__} expected, not {self.place!r}")
        return self.place


class ProgramSpec(msgspec.Struct, frozen=True):
    """One BPF program of the ELF file and where it attaches.

    *symbol* is the function's name in the ELF file; *kind* the probe kind's name. *index* counts blocks in source
    order. *multi* is set when the program was compiled for a multi link (``kprobe_multi``, ``uprobe_multi``,
    ``kprobe_session``) or for a raw tracepoint in place of its targets (``system_calls``, ``raw_tracepoint``), empty
    for one link for each target.
    """

    symbol: str
    kind: str
    index: int
    targets: tuple[Target, ...]
    location: Location
    multi: str = ""
    part_of: str = ""
    """The program that contains this one's code: for the return part of a kprobe session, and for system calls."""
    service: bool = False
    """A service program (``--follow``): attaches before the others, must not fail, and is not a probe of the script."""
    sleepable: bool = False
    """Loaded as a program that may sleep."""
    type_id: int = 0
    """Number in the kernel's own BTF of what a tracing program attaches to; 0 where the load has to look for it."""


RING = "events"
"""Name of the ring buffer map."""

PENDING = "pending_"
"""Prefix of the names of maps of events that wait for their strings, with 64-bit keys."""

LOAD_TIME_SECTION = ".rodata.load"
"""Section of an ahead-of-time file with load-time values."""

SLOT_FLAG = 8
"""Bytes of the written flag before the value of a slot."""

DIGEST = 16
"""Bytes of the digest of a large key; the bucket number follows it, if keys have one."""


class MapType(IntEnum):
    """``enum bpf_map_type``, the members that pytrace uses or may encounter."""

    HASH = 1
    ARRAY = 2
    PERF_EVENT_ARRAY = 4
    PERCPU_HASH = 5
    PERCPU_ARRAY = 6
    LRU_HASH = 9
    LRU_PERCPU_HASH = 10
    ARRAY_OF_MAPS = 12
    RINGBUF = 27


MAP_TYPES = {
    "hash": MapType.HASH,
    "lruhash": MapType.LRU_HASH,
    "percpuhash": MapType.PERCPU_HASH,
    "percpulruhash": MapType.LRU_PERCPU_HASH,
}
"""Map types by the kinds that a script declares (:attr:`MapSpec.kind`)."""

PER_CPU_TYPES = frozenset({MapType.PERCPU_HASH, MapType.PERCPU_ARRAY, MapType.LRU_PERCPU_HASH})


class GlobalSlot(msgspec.Struct, frozen=True):
    """Location of an unkeyed map in a data section.

    *section* is the ELF section (its BPF array map is mapped into memory by the runtime). The slot starts with a
    ``u64`` that is 1 once the map has been written, followed by the value. A per-CPU slot has *copies* copies,
    *stride* bytes apart. A slot that is printed and cleared in one step is double-buffered, *generation* bytes apart:
    the lowest bit of the ``u64`` at *selector* in the section *selector_section* says which one programs use.
    """

    section: str
    offset: int
    copies: int = 1
    stride: int = 0
    generation: int = 0
    selector_section: str = ""
    selector: int = 0


class MapSpec(msgspec.Struct, frozen=True):
    """One ``@map`` of the script.

    *symbol* names the BPF map in the ELF file (empty for a *slot*). *key* is None for an unkeyed map. *kind* is
    one of :data:`MAP_TYPES` or ``global``. For keyed hist, lhist and tseries the
    BPF key is *key* padded to 8 bytes followed by a ``u64`` bucket number, and the BPF value one ``u64`` count per CPU
    (tseries: one 24-byte interval). A keyed map that is printed and cleared in one step has *inner*, the type number,
    key size and value size of the BPF maps that hold it in turn; the one in use lies in the array of maps *symbol*.
    """

    name: str
    symbol: str
    kind: str
    key: Type | None
    value: Type
    max_entries: int
    slot: GlobalSlot | None = None
    location: Location | None = None
    inner: tuple[int, int, int] | None = None
    help: str = ""
    """The comment above the first use of the map, or above its declaration."""
    keys: str = ""
    """For a map with large keys the symbol of a second map: the BPF key of *symbol* then has a digest of :data:`DIGEST`
    bytes in place of the key, and the second map has the key of each digest."""
    counted: bool = False
    """Whether programs only count it (``@n++``), and it is double-buffered for resets of the user."""
    key_names: tuple[str, ...] = ()
    """What the script calls the members of its keys (``filename`` of ``str(args.filename)``), for pictures; empty where
    an expression has no name."""
    private: bool = False
    """Whether it is not printed at the end, as the script declares (``let @m = private;``)."""

    @property
    def resettable(self) -> bool:
        """Whether the user may empty it at any time: an aggregation, or a number that programs only count."""
        return isinstance(self.value, AGGREGATIONS) or self.counted

    @property
    def types(self) -> tuple[Type, ...]:
        """Of its keys, if it has any, and of its values."""
        return (self.value,) if self.key is None else (self.key, self.value)


class RandomWords(msgspec.Struct, frozen=True):
    """Location of the random words for digests of keys: *size* bytes of a data section, filled in at load time."""

    section: str
    offset: int
    size: int


class StackDepth(msgspec.Struct, frozen=True):
    """Location of two ``u64`` of a data section that are filled in at load time.

    The second is ``kernel.perf_event_max_stack``, the first is the lesser of it and *limit*.
    """

    section: str
    offset: int
    limit: int


class Site(msgspec.Struct, frozen=True):
    """A location in the script where a BPF helper may fail."""

    helper: str
    location: Location


class Counters(msgspec.Struct, frozen=True):
    """Location of the failure counters of all programs: an array in a data section, see ``session.services``."""

    section: str
    offset: int
    copies: int
    stride: int
    names: tuple[tuple[str, int], ...]
    """(kind, subject) of each ``u64`` in a copy: ``("lost", program index)``, ``("map_full", map index)``,
    ``("helper", site index)`` …"""
    sites: tuple[Site, ...] = ()


class RateLimits(msgspec.Struct, frozen=True):
    """Location of the limits of ``--max-rate``: :data:`RATE_LINE` bytes for each block, by :attr:`ProgramSpec.index`.

    The session writes two ``u64``: nanoseconds for each hit (0: no limit), and nanoseconds by which hits may be ahead
    of that. Programs keep in a third one when the next hit is due.
    """

    section: str
    offset: int


RATE_LINE = 64
"""A cache line, as all CPUs read and write it."""


HITS = "hits"
"""Kind of the counters of programs that may be sampled: hits that passed their filters, and no failures."""

CALL_COUNTS = ("call_entered", "call_returned", "call_begun")
"""Kinds of the counters of ``call:`` probes, by map: entries, returns that belong to one, and returns of calls that had
begun before. They are no failures."""

WEIGHT = 8
"""Bytes of a weight."""


class SampledUnit(msgspec.Struct, frozen=True, array_like=True):
    """How a program is sampled, and what it does with maps."""

    sampled: bool
    """Whether it leaves hits out when its weight is not 1."""
    inherits: bool
    """Whether it counts with the weights of values that sampled programs stored."""
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    events: tuple[int, ...]
    linked: tuple[str, ...]
    """Maps by which it depends on hits of other programs."""


class Sampling(msgspec.Struct, frozen=True):
    """Location of the weights of ``--budget``, a ``u64`` for each program of the script, and one before them.

    The session writes them: that before them is 1 as soon as a program has been sampled.
    """

    section: str
    offset: int
    units: tuple[SampledUnit, ...]
    """The first programs of :attr:`Manifest.programs`; others are services."""


class SessionData(msgspec.Struct, frozen=True):
    """Offsets of a running session's values in the data section *section*; mostly ``u64``.

    The session writes, before begin probes run, *start* (boot-clock nanoseconds), *cpid* (the ``-c`` child or 0), *tai*
    and *wall* (what to add to the boot clock for atomic and for wall time) and *root* (the process of ``-p`` or ``-c``,
    for ``--follow``), and from *filters* on the values of process filters
    (``core.options.ProcessFilters.pack``). While it runs it moves *deadline* on, the tick of the timer
    (``jiffies``) after which programs return at once (``codegen.walkers.program_filters``). *own* is the tracer's
    process (``u32``), and after it are those of its live view: the picture, and what answers questions about processes.

    It reads *exit* (``u32``): 1 more than the status of an ``exit()`` for whose event there was no room. *stopped*
    (``u32``) is not 0 when programs are to return at once for ever: :data:`EXITED` after an ``exit()``, when only those
    that the tracer's own process runs go on until it knows, :data:`STOPPED` for all.
    """

    section: str
    start: int
    cpid: int
    tai: int
    wall: int
    root: int
    exit: int
    stopped: int
    deadline: int
    own: int
    filters: int


EXITED, STOPPED = 1, 2
"""Values of ``SessionData.stopped``."""


# ---------------------------------------------------------------------------------------------- optional sections

Row = tuple[str, ...]
"""Each fact as words, its kind first."""


class UnwindMaps(msgspec.Struct, frozen=True):
    """The maps of unwind tables (``core.stack_formats``), which the session fills.

    *spaces* has the location of the *ranges* of each process; *rows* has *room* for that many rows, and may be enlarged
    before it is loaded. *selected*: there are programs that unwind selected processes only (``dw_ustack``). Through the
    ring *requests* programs ask for the tables of processes that they meet; it is empty if none does.
    """

    spaces: str
    ranges: str
    rows: str
    room: int
    selected: bool
    requests: str


class ImageMaps(msgspec.Struct, frozen=True):
    """The maps of images of processes (``core.stack_formats``): *images* by process, by its number in the initial
    pid namespace, and the array of perf events *reports*, which the session fills.
    """

    images: str
    reports: str


class PythonChoice(msgspec.Struct, frozen=True):
    """Decision *number* of the map ``PythonMaps.choices``: whether a function is one of a probe's."""

    number: int
    files: tuple[str, ...]
    """Patterns of file names."""
    function: str
    """A pattern of qualified names."""


class PythonMaps(msgspec.Struct, frozen=True):
    """The maps of Python stacks (``core.python_format``): rows of *processes*, which the session fills, and
    what the programs fill: *codes* that are known, the array of *names*, and its *cursor*.
    """

    processes: str
    codes: str
    names: str
    cursor: str
    calls: str = ""
    """The second rows of processes, for probes of Python functions; empty without any."""
    choices: str = ""
    """What was decided of each function that ran, by place in *names* and number of the decision."""
    targets: tuple[PythonChoice, ...] = ()
    """The decisions that are about functions of probes."""


class OpenValue(msgspec.Struct, frozen=True):
    """A value of *size* bytes at *offset* of the section of load-time values, resolved when the file is loaded.

    *what* is ``parameter``, ``member``, ``kaddr`` …, *parts* are its arguments (``runtime.load.ahead_of_time`` has
    a row for each).
    """

    what: str
    parts: Row
    offset: int
    size: int


class Parameters(msgspec.Struct, frozen=True):
    """Parameters of a script: *positional* and *fixed* have their values in the file, *names* may be given.

    *most* is the highest index of a positional parameter, *help* has a line for each name.
    """

    positional: tuple[str, ...] = ()
    fixed: tuple[tuple[str, str | None], ...] = ()
    names: tuple[str, ...] = ()
    help: str = ""
    most: int = 0


class AheadOfTime(msgspec.Struct, frozen=True):
    """Data to resolve and conditions to check when an ahead-of-time file is loaded.

    *copies* is the number of CPUs that per-CPU data has room for. *relies* lists the kernel's struct layouts that the
    code relies on, *binaries* the probe locations in user binaries, *features* the required kernel features
    (``runtime.load.ahead_of_time``). *follow*: compiled with ``--follow``.
    """

    copies: int
    values: tuple[OpenValue, ...] = ()
    relies: tuple[Row, ...] = ()
    binaries: tuple[Row, ...] = ()
    parameters: Parameters = Parameters()
    follow: bool = False
    filters: str = ""
    features: tuple[str, ...] = ()
    script_hash: str = ""
    """SHA-256 of the script's text."""


# ---------------------------------------------------------------------------------------------- manifest


class Manifest(msgspec.Struct, frozen=True):
    """Everything about a compiled script except its code; JSON-serialisable through :meth:`encoded`."""

    programs: tuple[ProgramSpec, ...]
    maps: tuple[MapSpec, ...]
    events: tuple[EventSpec, ...]
    strings: tuple[str, ...]
    """String table that values refer to by index (formats of timestamps, filters of cgroup paths)."""
    config: Config
    ring: str = RING
    """Name of the ring buffer map."""
    counters: Counters | None = None
    warnings: tuple[str, ...] = ()
    """Rendered warnings of the compilation, repeated on a cached start."""
    facts: tuple[tuple[str, ...], ...] = ()
    """Facts about the machine that the result depends on; checked before a cached script is used."""
    session: SessionData | None = None
    """Set when a program reads values of the running session."""
    unwind: UnwindMaps | None = None
    """Set when user stacks are unwound by tables."""
    python: PythonMaps | None = None
    """Set when stacks of CPython are walked."""
    images: ImageMaps | None = None
    """Set when stacks or symbols have the images of processes."""
    follow_map: str = ""
    """Symbol of the map of followed processes (``--follow``)."""
    objects: tuple[bytes, ...] = ()
    """Imported object files."""
    ahead: AheadOfTime | None = None
    """Set in ahead-of-time files."""
    output_format: str = ""
    """The format of ``output_format()``; a run without ``-f`` is written in it."""
    stack_layout: tuple[str, ...] = ()
    """The words of ``stack_layout()``: how text shows maps whose keys have stacks; empty: as bpftrace does."""
    sampling: Sampling | None = None
    """Set when programs may be sampled."""
    limits: RateLimits | None = None
    """Set when programs limit the rate of their hits."""
    random_words: RandomWords | None = None
    """Set when a map has digests of keys (:attr:`MapSpec.keys`)."""
    stack_depths: tuple[StackDepth, ...] = ()
    """For stacks that are walked by the kernel, by their limits."""
    stack_chunks: str = ""
    """Symbol of the map with the frames of stacks that are chunked."""
    call_maps: tuple[MapSpec, ...] = ()
    """The maps of ``call:`` probes from calls that are under way to what is kept of their entries; no output has them.
    Counters about maps number them after :attr:`maps`."""
    calls_named: bool = False
    """Whether the third member of their records is the call's name, for the live view."""
    goroutine_numbers: tuple[int, ...] = ()
    """Where ``runtime.g`` may have the number of a goroutine, in the programs whose calls are probed."""

    def printed_types(self) -> Iterator[Type]:
        """Types of all values that events and maps may print, and of their parts."""
        roots = [type_ for event in self.events for type_ in event.args]
        return parts([*roots, *(type_ for item in self.maps for type_ in item.types)])

    @property
    def calls_of_programs(self) -> bool:
        """Whether a map has calls of functions of programs."""
        return any(spec.key_names == PROGRAM_CALL for spec in self.call_maps)

    def shows_user_addresses(self) -> bool:
        """Whether the script prints user addresses."""
        return any(
            isinstance(type_, USym) or (isinstance(type_, Stack) and type_.user) for type_ in self.printed_types()
        )

    def with_types(self, change: Callable[[Type], Type]) -> Manifest:
        """The manifest with *change* applied to the types of maps and events."""
        maps, call_maps = (
            tuple(
                replace(item, key=None if item.key is None else change(item.key), value=change(item.value))
                for item in specs
            )
            for specs in (self.maps, self.call_maps)
        )
        events = tuple(replace(item, args=tuple(map(change, item.args))) for item in self.events)
        return replace(self, maps=maps, call_maps=call_maps, events=events)

    def encoded(self) -> bytes:
        """The JSON form."""
        return typed_json.encode(self.with_types(settled))

    @classmethod
    def decoded(cls, data: bytes) -> Manifest:
        """Inverse of :meth:`encoded`.

        Raises:
            msgspec.ValidationError: *data* is damaged, or another version wrote it.
        """
        manifest = typed_json.decode(data, cls, decoded)
        for program in manifest.programs:
            try:
                place = known_kind(program.kind).target
            except KeyError:
                raise msgspec.ValidationError(f"unknown kind of probe {program.kind!r}") from None
            if any(type(target.place) is not place for target in program.targets):
                raise msgspec.ValidationError(f"a target of {program.symbol} is of another kind than {program.kind}")
        for event in manifest.events:
            if type(event.static) is not STATIC_PARTS.get(event.kind):
                raise msgspec.ValidationError(f"event {event.id} is of another kind than {event.kind}")
        return manifest


INTERPRETER = b"#!/usr/bin/env pytrace\n"
"""First line of an executable file."""


def is_compiled(data: bytes) -> bool:
    """Whether a file is a compiled script, of this version or another one."""
    return data.removeprefix(INTERPRETER).startswith(MAGIC)


_HEADER = struct.Struct("<8sII32s")
"""Magic, format number, length of the manifest, SHA-256 of the manifest and the ELF file, which follow."""

_AGAIN = "compile it again with --aot"


def file_form(manifest: bytes, elf: bytes) -> bytes:
    """The file form of a manifest and an ELF file."""
    digest = hashlib.sha256(manifest + elf).digest()
    return _HEADER.pack(MAGIC, FORMAT, len(manifest), digest) + manifest + elf


class CompiledScript(msgspec.Struct, frozen=True):
    """ELF bytes and manifest."""

    elf: bytes
    manifest: Manifest

    def to_bytes(self, *, executable: bool = False) -> bytes:
        """The file form: a header, the manifest (JSON), ELF; *executable* with ``#!`` line."""
        return (INTERPRETER if executable else b"") + file_form(self.manifest.encoded(), self.elf)

    @classmethod
    def from_bytes(cls, data: bytes) -> CompiledScript:
        """Read the file form.

        Args:
            data: the result of :meth:`to_bytes`, with or without ``#!`` line.

        Raises:
            MisfitError: it was written by another version.
        TraceError: *data* is not a compiled script, or is damaged.
        """
        data = data.removeprefix(INTERPRETER)
        if not data.startswith(MAGIC):
            raise TraceError("not a compiled pytrace script")
        if len(data) < _HEADER.size:
            raise TraceError("the compiled script is truncated", hints=(_AGAIN,))
        _, version, length, digest = _HEADER.unpack_from(data)
        if version != FORMAT:
            raise MisfitError(
                f"compiled by another version of pytrace (format {version}, this one reads {FORMAT})", hints=(_AGAIN,)
            )
        head, elf = data[_HEADER.size :][:length], data[_HEADER.size + length :]
        if digest != hashlib.sha256(head + elf).digest() or len(head) != length:
            raise TraceError("the compiled script is damaged: its digest does not fit its content", hints=(_AGAIN,))
        try:
            return cls(elf, Manifest.decoded(head))
        except msgspec.ValidationError as error:
            raise MisfitError(
                f"another version of pytrace wrote the compiled script ({error})", hints=(_AGAIN,)
            ) from error
