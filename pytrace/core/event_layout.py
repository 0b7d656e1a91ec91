"""Layout of ring buffer events, declared once for the code generator and for the decoder.

An event is an 8-byte header (``u32`` event id, ``u32`` byte length of the tail) followed by the arguments, laid out
as a tuple would be, and by the *tail*.  A string or buffer of more than :data:`TAIL_OVER` bytes does not sit in the
fixed part: there it is a ``u32`` byte count, and its bytes (strings without the NUL) follow in the tail in argument
order, without padding, so that an event takes no more of the ring than its text is long.  A cut string sets
:data:`CUT` in its count.

Event kinds
===========

One line for each: kind, arguments in layout order, keys of *static*.  Text in *static* is ``str`` decoded from the
script's bytes with ``utf-8`` and ``surrogateescape`` (JSON keeps that).  ``format`` is a checked printf format.

================ ====================================== ======================================================
kind             arguments                              static
================ ====================================== ======================================================
printf           values of the conversions, in order    format
errorf, warnf    values of the conversions              format, assertion (only there, and true, for errorf of the
                                                        library's ``assert``)
cat, system      values of the conversions              format (result: file name, command)
debugf           (none: bpf_trace_printk, no event)
time             none                                   format (strftime; default ``%H:%M:%S\\n``)
join             u32 count, then 16 strings             separator
print_value      the value                              none
print_map        none                                   map, top (0: all), div (1: none), order ("" for the
                                                        usual one, key, -key, value, -value), clear (bool:
                                                        empty the map in the same step)
quantiles        none                                   map, percents (list of float)
clear, zero      none                                   map
exit             none (code 0), or int64 code           known (bool: the compiler has seen the code)
skboutput        u64 boot ns, u32 length, buffer        path (pcap file)
unwatch          u64 address                            none
runtime_error    none                                   kind: division_by_zero, array_bounds, cpu_count,
                                                        kernel_stack, user_stack, no_dwarf, no_child (never sent: told
                                                        at the start of a run without ``-c``)
helper_error     int32 return code                      helper (``bpf_map_update_elem`` …), map (name or "")
================ ====================================== ======================================================

Values of ``print_value`` and of conversions have the type that the expression has when evaluated: a count, sum, avg,
min or max read from a map is an integer there; a stats value stays :class:`~pytrace.core.types.Stats` (merged, one
copy); ``strftime`` gives a Timestamp, ``cgroup_path`` a CgroupPath (both index the string table). ``assert`` is a
library macro over errorf and exit. *location* is the place in the user's script (for library macros: of the
outermost call that is not in the library), *expansion* the calls around it, innermost first.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pytrace.base.fast_dataclass import dataclass
from pytrace.core.types import UINT32, Buffer, String, Tuple, Type, from_data, to_data

HEADER = 8
"""Bytes before the arguments."""

EXIT_STATUSES = range(-128, 256)
"""Arguments of ``exit()`` that a process can end with; negative ones are as in C."""

TAIL_OVER = 64
"""Strings and buffers with more capacity than this travel in the tail."""

CUT = 1 << 31
"""Flag in the count of a tail string: the string did not fit its capacity."""


@dataclass(frozen=True, slots=True)
class Location:
    """A script position that the runtime can name without the script: 1-based line and columns (end excluded)."""

    file: str
    line: int
    column: int
    end_column: int = 0
    text: str = ""
    """The source line; of a very long one the part around the place."""
    skipped: int = 0
    """Characters of the line that come before *text*, less those that say so."""

    def to_data(self) -> list[Any]:
        """JSON form."""
        return [self.file, self.line, self.column, self.end_column, self.text, self.skipped]


@dataclass(frozen=True)
class EventLayout:
    """Where the arguments of an event lie."""

    args: tuple[Type, ...]

    @cached_property
    def tails(self) -> tuple[bool, ...]:
        """For each argument whether it travels in the tail."""
        return tuple(isinstance(arg, String | Buffer) and arg.capacity > TAIL_OVER for arg in self.args)

    @cached_property
    def slots(self) -> Tuple:
        """The fixed part after the header."""
        return Tuple(tuple(UINT32 if tail else arg for arg, tail in zip(self.args, self.tails, strict=True)))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Offset of each argument's fixed part from the start of the event."""
        return tuple(HEADER + offset for offset in self.slots.offsets)

    @cached_property
    def fixed_size(self) -> int:
        """Bytes of header and fixed part, a multiple of 8; the tail starts here."""
        return (HEADER + self.slots.size + 7) & ~7

    @cached_property
    def tail_capacity(self) -> int:
        """The most bytes that the tail can take."""
        total = 0
        for arg, tail in zip(self.args, self.tails, strict=True):
            if tail and isinstance(arg, String | Buffer):
                total += arg.capacity
        return total


@dataclass(frozen=True)
class EventSpec:
    """One place in a script that sends events.

    *kind* names the handler row of the runtime (``printf``, ``print_value``, ``print_map``, ``clear``, ``exit`` …);
    *static* is what the handler needs beside the arguments (format string, map name …), JSON-serialisable.
    """

    id: int
    kind: str
    args: tuple[Type, ...]
    static: dict[str, Any]
    location: Location
    expansion: tuple[Location, ...] = ()
    """Macro and import chain, innermost first."""

    @property
    def layout(self) -> EventLayout:
        """Where the arguments lie."""
        return EventLayout(self.args)

    def to_data(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "id": self.id,
            "kind": self.kind,
            "args": [to_data(arg) for arg in self.args],
            "static": self.static,
            "location": self.location.to_data(),
            "expansion": [place.to_data() for place in self.expansion],
        }

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> EventSpec:
        """The spec that :meth:`to_data` gave *data* for."""
        return cls(
            data["id"],
            data["kind"],
            tuple(from_data(arg) for arg in data["args"]),
            data["static"],
            Location(*data["location"]),
            tuple(Location(*place) for place in data["expansion"]),
        )


def cut_exit_status(code: int) -> str:
    """What becomes of an exit status that is not among :data:`EXIT_STATUSES`."""
    return f"an exit status has 8 bits: {code} becomes {code & 0xFF}"
