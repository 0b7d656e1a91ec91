"""Layout of ring buffer events, declared once for the code generator and for the decoder.

An event is an 8-byte header (``u32`` event id, ``u32`` byte length of the tail) followed by the arguments, laid out
as a tuple would be, and by the *tail*.  A string or buffer of more than :data:`_TAIL_OVER` bytes has only a ``u32``
byte count in the fixed part; its bytes (strings without the NUL) are in the tail, in argument order and without
padding, so that an event takes no more ring space than its text needs.  A truncated string has :data:`CUT` set in its
count.

Event kinds
===========

One line for each: kind, arguments in layout order, and the class of its static part (:data:`STATIC_PARTS`).

================ ====================================== ======================
kind             arguments                              static part
================ ====================================== ======================
printf, heading  values of the conversions, in order    :class:`Formatted`
errorf, warnf    values of the conversions              :class:`Formatted`
cat, system      values of the conversions              :class:`Formatted`
time             none                                   :class:`CurrentTime`
join             u32 count, then 16 strings             :class:`Joined`
print_value      the value                              :class:`NoStaticPart`
row              values of the members, or one record   :class:`RowMembers`
print_rows       none (all), or int64 number of rows    :class:`NoStaticPart`
clear_terminal   none                                   :class:`NoStaticPart`
print_map        none                                   :class:`PrintedMap`
quantiles        none                                   :class:`Quantiles`
clear, zero      none                                   :class:`EmptiedMap`
exit             none (code 0), or int64 code           :class:`Exit`
skboutput        u64 boot ns, u32 length, buffer        :class:`PacketFile`
unwatch          u64 address                            :class:`NoStaticPart`
runtime_error    none                                   :class:`RuntimeFailure`
helper_error     int32 return code                      :class:`HelperFailure`
================ ====================================== ======================

(``debugf`` sends no event: the kernel writes it, ``bpf_trace_printk``.)

Values of ``print_value`` and of conversions have the type that the expression has when evaluated: a count, sum, avg,
min or max read from a map is an integer there; a stats value stays :class:`~pytrace.core.types.Stats` (merged, one
copy); ``strftime`` returns a Timestamp, ``cgroup_path`` a CgroupPath (both index the string table). ``assert`` is a
library macro that uses errorf and exit. *location* is the location in the user's script (for library macros: of the
outermost call that is not in the library), *expansion* the calls around it, innermost first.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, TypeVar

import msgspec

from pytrace.core.diagnostics import InternalError
from pytrace.core.types import UINT32, UINT64, Buffer, String, Tuple, Type

HEADER = 8
"""Bytes before the arguments."""

RECORD_HEADER = 8
"""Bytes of the kernel's header before each record of the ring buffer (``BPF_RINGBUF_HDR_SZ``)."""

WORD = 4
"""Bytes of the words in which places of records are counted."""

EXIT_STATUSES = range(-128, 256)
"""Arguments of ``exit()`` that are valid exit statuses; negative ones are as in C."""

_TAIL_OVER = 64
"""Strings and buffers with more capacity than this are in the tail."""

CUT = 1 << 31
"""Flag in the count of a tail string: the string did not fit its capacity."""


class Location(msgspec.Struct, frozen=True, array_like=True):
    """A script position, for messages without the script's text: 1-based line and columns (end excluded)."""

    file: str
    line: int
    column: int
    end_column: int = 0
    text: str = ""
    """The source line; of a very long one, the part around the location."""
    skipped: int = 0
    """Characters of the line before *text*, minus the characters that mark the omission."""


class EventLayout(msgspec.Struct, frozen=True, dict=True):
    """Offsets of an event's arguments."""

    args: tuple[Type, ...]
    _after: ClassVar[tuple[Type, ...]] = ()
    """What follows the arguments in the fixed part."""

    @cached_property
    def tails(self) -> tuple[bool, ...]:
        """For each argument, whether it is in the tail."""
        return tuple(isinstance(arg, String | Buffer) and arg.capacity > _TAIL_OVER for arg in self.args)

    @cached_property
    def slots(self) -> Tuple:
        """The fixed part after the header: of an argument in the tail, its length."""
        fixed = (UINT32 if tail else arg for arg, tail in zip(self.args, self.tails, strict=True))
        return Tuple((*fixed, *self._after))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Offset of each argument's fixed part from the start of the event."""
        return tuple(HEADER + offset for offset in self.slots.offsets[: len(self.args)])

    @cached_property
    def fixed_size(self) -> int:
        """Bytes of header and fixed part, a multiple of 8; the tail starts here."""
        return (HEADER + self.slots.size + 7) & ~7

    @property
    def tail_capacity(self) -> int:
        """The maximum size of the tail in bytes."""
        total = 0
        for arg, tail in zip(self.args, self.tails, strict=True):
            if tail and isinstance(arg, String | Buffer):
                total += arg.capacity
        return total


class LayoutWithProbe(EventLayout, frozen=True, dict=True):
    """The layout of events with provenance.

    A ``u64`` follows the arguments: index of the program in the manifest (upper half), and attach cookie.
    """

    _after: ClassVar[tuple[Type, ...]] = (UINT64,)

    @property
    def probe_offset(self) -> int:
        """Offset of that ``u64``."""
        return HEADER + self.slots.offsets[-1]


# ---------------------------------------------------------------------------------------------- static parts


class StaticPart(msgspec.Struct, frozen=True, tag=True):
    """Compile-time data that the handler of an event needs besides the arguments.

    Text is decoded from the script's bytes with ``utf-8`` and ``surrogateescape``, which JSON preserves. All
    fields have values that JSON supports; the JSON form is an object of them.
    """


class NoStaticPart(StaticPart, frozen=True):
    """The static part of events that need none."""


class Formatted(StaticPart, frozen=True):
    """A checked printf format; the text is output, the name of a file (cat), or a command (system)."""

    format: str
    assertion: bool = False
    """Whether this is the ``errorf`` of the library's ``assert``."""


class RowMembers(StaticPart, frozen=True):
    """The members of a row."""

    names: list[str]
    """For each argument, its path in the record (:mod:`pytrace.core.value_tables`); empty for the record itself."""
    order: list[int] = msgspec.field(default_factory=list)
    """Columns by which ``print_rows()`` sorts the rows: numbers from 1, negative for descending order; empty for rows
    that are printed immediately."""


class CurrentTime(StaticPart, frozen=True):
    """A strftime format."""

    format: str


class Joined(StaticPart, frozen=True):
    """The separator of the strings."""

    separator: str


class OfMap(StaticPart, frozen=True):
    """The name of the map that an event is about."""

    map: str


class PrintedMap(OfMap, frozen=True):
    """Arguments of a ``print()`` of a map."""

    top: int = 0
    """Number of entries; 0 for all."""
    div: int = 1
    """The divisor of values."""
    order: str = ""
    """``key``, ``-key``, ``value``, ``-value``; empty for the default order."""
    clear: bool = False
    """Whether the map is cleared in the same step."""


class Quantiles(OfMap, frozen=True):
    """Percentiles between 0 and 100."""

    percents: list[float]


class EmptiedMap(OfMap, frozen=True):
    """A map whose entries are removed (clear) or set to zero (zero)."""

    joined: bool = False
    """Whether the preceding print clears the map (:attr:`PrintedMap.clear`), so that no program sends this event."""


class Exit(StaticPart, frozen=True):
    """Compile-time properties of an ``exit()``.

    *known*: the status is a constant, and the compiler has warned if it is out of range. *timed*: a timer probe calls
    it, so later events are outside of the requested time and not lost.
    """

    known: bool = False
    timed: bool = False


class PacketFile(StaticPart, frozen=True):
    """The pcap file that packets are written to."""

    path: str


class RuntimeFailure(StaticPart, frozen=True):
    """A failure in a program."""

    kind: str
    """``division_by_zero``, ``array_bounds``, ``cpu_count``, ``kernel_stack``, ``user_stack``, ``no_dwarf``, or
    ``no_child`` (never sent: reported at the start of a run without ``-c``)."""


class HelperFailure(StaticPart, frozen=True):
    """The helper that failed (``bpf_map_update_elem`` …), and the map that it worked on (or empty)."""

    helper: str
    map: str = ""


AnyStaticPart = (
    NoStaticPart
    | Formatted
    | RowMembers
    | CurrentTime
    | Joined
    | PrintedMap
    | Quantiles
    | EmptiedMap
    | Exit
    | PacketFile
    | RuntimeFailure
    | HelperFailure
)
"""The classes of static parts, as msgspec decodes them."""

STATIC_PARTS: dict[str, type[AnyStaticPart]] = {
    "printf": Formatted,
    "heading": Formatted,
    "errorf": Formatted,
    "warnf": Formatted,
    "cat": Formatted,
    "system": Formatted,
    "time": CurrentTime,
    "join": Joined,
    "print_value": NoStaticPart,
    "row": RowMembers,
    "print_rows": NoStaticPart,
    "clear_terminal": NoStaticPart,
    "print_map": PrintedMap,
    "quantiles": Quantiles,
    "clear": EmptiedMap,
    "zero": EmptiedMap,
    "exit": Exit,
    "skboutput": PacketFile,
    "unwatch": NoStaticPart,
    "runtime_error": RuntimeFailure,
    "helper_error": HelperFailure,
}
"""The class of each event kind's static part."""


# ---------------------------------------------------------------------------------------------- events

S = TypeVar("S", bound=StaticPart)


class EventSpec(msgspec.Struct, frozen=True):
    """A location in a script that sends events.

    *kind* names the handler row of the runtime (``printf``, ``print_value``, ``print_map``, ``clear``, ``exit`` …);
    *static* is of the class that :data:`STATIC_PARTS` has for it.
    """

    id: int
    kind: str
    args: tuple[Type, ...]
    static: AnyStaticPart
    location: Location
    expansion: tuple[Location, ...] = ()
    """Macro and import chain, innermost first."""
    provenance: bool = False
    """Whether the event has provenance (the probe that sent it)."""

    @property
    def layout(self) -> EventLayout:
        """The layout of the arguments."""
        return LayoutWithProbe(self.args) if self.provenance else EventLayout(self.args)

    def static_part(self, kind: type[S]) -> S:
        """The static part, which must be of the class *kind*.

        Raises:
            InternalError: it is of another class.
        """
        if not isinstance(self.static, kind):
            raise InternalError(f"expected {kind.__name__} for {self.kind}, found {self.static!r}")
        return self.static


def cut_exit_status(code: int) -> str:
    """The message about an exit status that is not in :data:`EXIT_STATUSES`."""
    return f"an exit status has 8 bits: {code} is truncated to {code & 0xFF}"
