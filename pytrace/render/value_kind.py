"""A value type as one class: all that memory, output, snapshots and comparisons make of its values.

:class:`ValueKind` is the base, with what most types share. The types are in :mod:`pytrace.render.values` (with the
table of all), :mod:`.aggregations`, :mod:`.histogram` and :mod:`.tseries`. A new type is a new class there, and nothing
else.

A value has four forms:

- in *memory*: bytes of a map or an event, as :mod:`pytrace.core.types` lays them out; in maps one copy for each CPU;
- *decoded*: a plain Python value that compares and sorts as the language does; output formats these;
- *portable*: what a snapshot holds, without anything that only one machine could resolve;
- for *Python programs*.

=========================== ============================================ ==========================================
type                        decoded                                      portable
=========================== ============================================ ==========================================
bool                        ``bool``                                     the same
int, enum, pointer, fixed   ``int``                                      the same
float                       ``float``                                    the same; of NaN one object for each sign
string                      ``bytes`` up to the first NUL; the trailer   ``str``; bytes that are no UTF-8 as lone
                            after a truncated one                        surrogates (``surrogateescape``)
buffer                      ``bytes``                                    the same
void, array, tuple, record  ``tuple`` of members                         the same
struct, union               ``tuple`` of named members, anonymous ones   the same
                            flattened
stack                       ``(process, frames, error)``: no frames and  :class:`pytrace.results.snapshot.StackTrace`
                            a negative errno when there is no stack; the
                            frame after the last one of a truncated
                            stack is ``TRUNCATED``
ksym, username, interface,  ``int``                                      ``str``: what they print as, also of all
network namespace                                                        types below
usym                        ``(process, address)``                       ``str``
inet                        ``(family, address bytes)``                  ``str``
mac                         ``bytes``                                    ``str``
timestamp                   ``(nanoseconds, format index, clock)``       ``str``
cgroup path                 ``(id, filter index)``                       ``str``
joined                      ``tuple`` of members                         ``str``
count, sum                  ``int``                                      the same
avg, stats                  ``(total, count)``                           the same
min, max                    ``(value, set)``                             ``int`` (a key without a value is left out)
hist, lhist                 ``tuple`` of counts                          ``dict`` of bucket number to count, buckets
                                                                         that are not empty
tseries                     ``tuple`` of ``(epoch, value, meta)``        ``dict`` of interval number (aligned to
                                                                         wall time, 0 starts in 1970) to
                                                                         ``(value, meta)``
=========================== ============================================ ==========================================
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Never, TypeAlias, TypeVar

import msgspec

from pytrace.core import types
from pytrace.render.json import number, quoted
from pytrace.render.text import Decode, Value, for_any

if TYPE_CHECKING:
    from pytrace.render.forms import Decoders, JsonForms, PortableForms, TextForms

T = TypeVar("T", bound=types.Type)
V = TypeVar("V")

Decoded: TypeAlias = Any
"""A decoded value of the kind's own type."""
Plain: TypeAlias = Any
"""A portable value, whose class depends on its type."""
Result: TypeAlias = Any
"""A key or a value for a Python program, whose class depends on the script."""
Pair: TypeAlias = tuple[int, int]
"""An average or statistics, decoded and portable: total and count."""
Counts: TypeAlias = dict[int, int]
"""A portable histogram: bucket numbers and counts."""
_Delta: TypeAlias = int | Pair | Counts
"""A difference of two portable values."""
Join: TypeAlias = Callable[[V | None, V], V]
"""Joins a portable value to another of its type, or to None; changes neither."""
Subtract: TypeAlias = "Callable[[Plain | None, Plain | None], tuple[_Delta | None, int]]"
"""The delta of two portable values, of which one may be None, and its size (:class:`Change`)."""

WORD_MASK = (1 << 64) - 1


class Held(Enum):
    """The forms of values in snapshots."""

    BOOL = "bool"
    INTEGER = "integer"
    FLOAT = "float"
    TEXT = "text"
    BYTES = "bytes"
    STACK = "stack"
    ARRAY = "array"
    MEMBERS = "members"
    """Tuples, records and structs."""
    PAIR = "total and count"
    COUNTS = "counts"
    SERIES = "series"


class Piece(msgspec.Struct, frozen=True):
    """A part of a value's memory: *size* bytes from *start* on.

    *number*: a number, whose sign counts if it is *signed*; otherwise it is text or anything else. *frames* is the
    limit of a stack, whose whole memory the part is, and 0 for anything else. *ends*: a string, which has only zeros
    after its first NUL.
    """

    start: int
    size: int
    number: bool = True
    signed: bool = False
    frames: int = 0
    ends: bool = False

    def moved(self, distance: int) -> Piece:
        """The same part where the value lies *distance* bytes further."""
        return Piece(self.start + distance, self.size, self.number, self.signed, self.frames, self.ends)


class Reduction(msgspec.Struct, frozen=True):
    """Merging of the per-CPU copies of many values at once, to memory of *type*, *size* bytes for each value.

    *one* takes values and returns their copies. *ranks* returns, for such copies, the numbers by which entries are
    sorted where these are not in the memory; *signed*: these are signed.
    """

    type: types.Type
    size: int
    one: Callable[[bytes], bytes]
    ranks: Callable[[bytes], array[int]] | None = None
    signed: bool = False


class Change(msgspec.Struct, frozen=True):
    """The change of one key. At least one of the two values exists; they differ."""

    before: Plain | None
    """None: the key was added."""
    after: Plain | None
    """None: the key was removed."""
    delta: _Delta | None
    """After less before, signed, and not wrapped; a missing key counts as nothing. Of avg and stats both numbers, of
    histograms the buckets that differ, of time series the intervals (their values, as they print). None for what is no
    number, and for min and max where a value is missing."""
    size: int
    """The size of the change, never negative; 0 for values that are no numbers."""

    def from_to(self, form: Callable[[Plain], bytes]) -> bytes:
        """Both values as text."""
        if self.before is None:
            return b"new"
        if self.after is None:
            return b"was %s" % form(self.before)
        return "%s → %s".encode() % (form(self.before), form(self.after))


class MetricKind(Enum):
    """The type of a metric family; the value is OpenMetrics' word for it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    INFO = "info"

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of the names of its samples after the name of the family."""
        return _SUFFIXES[self]


_SUFFIXES = {
    MetricKind.COUNTER: ("_total", "_created"),
    MetricKind.GAUGE: ("",),
    MetricKind.HISTOGRAM: ("_bucket", "_count", "_sum", "_created"),
    MetricKind.SUMMARY: ("_count", "_sum", "_created", ""),
    MetricKind.INFO: ("_info",),
}

Labels: TypeAlias = "tuple[tuple[str, str], ...]"
"""Names and values; the names of one family are the same in all its samples, but for ``le``."""


class Sample(NamedTuple):
    """One number: its name is that of the family and *suffix*."""

    suffix: str
    labels: Labels
    value: int | float
    timestamp: int | None = None
    """Nanoseconds since 1970; None: the time at which it is read."""


class Metric(NamedTuple):
    """A metric family that a map of the type has."""

    kind: MetricKind
    samples: Callable[[Labels, Plain], Iterable[Sample]]
    """From the labels of a key and its portable value."""
    suffix: str = ""
    """Of the name of the family, after that of the map."""
    note: str = ""
    """After the help of the map."""
    unit: bool = True
    """The name of the map may end in the unit."""


class MismatchError(Exception):
    """Two types that have nothing in common."""


def same_or_mismatch(first: object, second: object) -> None:
    """Check what decides the meaning of values.

    Raises:
        MismatchError: the two differ.
    """
    if first != second:
        raise MismatchError


class ValueKind(Generic[T]):
    """One value type: *type* of class *T*.

    Methods return functions for values of the type, which the makers of :mod:`pytrace.render.forms` keep.
    """

    held: ClassVar[Held]
    """The form of values in snapshots."""
    number: ClassVar[bool] = False
    """Formats for numbers show values of the type."""
    width: ClassVar[int | None] = None
    """Characters that texts in columns of tables usually have, where that is known."""
    traced: ClassVar[bool] = False
    """The traced program decides the text, which may have control characters; not of types with members."""
    durable: ClassVar[bool] = True
    """A value means the same at any later time. Others are resolved when they arrive: processes end."""
    json_type: ClassVar[str] = "map"
    """The type of a map's lines in JSON output."""
    bucketed: ClassVar[bool] = False
    """Keyed maps have an entry for each bucket, and the text of a value takes several lines."""

    def __init__(self, type_: T) -> None:
        self.type = type_

    # ---- memory

    def code(self) -> str | None:
        """The code of :mod:`struct` for values of up to 8 bytes that one has."""
        return None

    def decode(self, decoders: Decoders) -> Decode:
        """From memory to decoded values."""
        code = self.code()
        assert code is not None
        return single("=" + code)

    def merge(self, size: int, decoders: Decoders) -> Callable[[bytes], Value]:
        """From the copies of all CPUs, which lie one after another in *size* bytes, to one decoded value."""
        decode = decoders.decoder(self.type)
        return lambda data: decode(data, 0)

    def reduction(self, size: int, decoders: Decoders) -> Reduction | None:
        """The same for many values at once, of *size* bytes each; None if they are merged singly."""
        return Reduction(self.type, size, itself)

    def pieces(self) -> list[Piece] | None:
        """The parts of the memory of a value in the order in which they compare; None: only decoded values compare.

        The order is that of decoded values.
        """
        return None

    # ---- decoded values

    def rank(self) -> Callable[[Decoded], Value] | None:
        """The number by which entries of a map are sorted before their keys; None: they are sorted by key alone."""
        return None

    def subtract(self) -> Callable[[Decoded, Decoded], Value] | None:
        """Subtracts an earlier merged value from a later one; None where that is impossible."""
        return None

    def extreme(self) -> Callable[[int, int], int] | None:
        """Of a least or greatest value: which of two stays. Sums of several mean nothing."""
        return None

    def divided(self, div: int) -> Callable[[Never], Value]:
        """Divides the numbers of a value, at any nesting, by the ``div`` argument of ``print()``; others stay."""
        return itself

    def text(self, forms: TextForms) -> Callable[[Never], bytes]:
        """From decoded values to text."""
        raise NotImplementedError

    def json(self, forms: JsonForms) -> Callable[[Never], bytes]:
        """From decoded values to JSON; the text where a type has no other form."""
        text = forms.texts.form(self.type)
        return lambda value: quoted(text(value))

    # ---- snapshots

    def portable(self, forms: PortableForms) -> Callable[[Never], Plain]:
        """From decoded values to portable ones; :func:`itself` where they are the same, so that no tuple is rebuilt."""
        return itself

    def restored(self) -> Callable[[Plain], Value]:
        """From portable values back to decoded ones."""
        return itself

    def python(self) -> Callable[[Plain], Result]:
        """From portable values to those for Python programs."""
        return itself

    def described(self) -> str:
        """The type for a message, with the parameters that decide whether it joins."""
        return str(self.type)

    def union(self, other: T) -> types.Type:
        """One type for what two snapshots call the same, where their scripts or kernels differ a little.

        What may differ is what portable values do not depend on: capacities of strings and buffers, limits of stacks,
        width and sign of integers, members of enumerations, where members of structs lie. The larger one is taken, so
        that the order of joining does not matter. What decides the meaning of values may not: the names and number of
        members, the parameters of histograms and time series, the sort of stack.

        Raises:
            MismatchError: values of the two cannot stand in one map.
        """
        return self.type

    def join(self) -> Join[Plain]:
        """Joins values of one map and one key: aggregations as if one map had aggregated all, else the greater stays.

        Commutative and associative, so that any number of values joins to the same one in any order. Sums wrap at 64
        bits as the kernel's do, which is what one sum of everything would have become.
        """
        if any(isinstance(part, types.Float) for part in types.parts((self.type,))):
            return lambda first, second: second if first is None else max(first, second, key=_rank)
        return lambda first, second: second if first is None else max(first, second)

    def change(self) -> Subtract:
        """The delta of two values and its size; None and 0 for what is no number."""
        return lambda _was, _is: (None, 0)

    def signed(self) -> types.Type | None:
        """The type of deltas where these are values themselves."""
        return None

    def change_text(self, form: Callable[[Plain], bytes]) -> Callable[[Change], bytes]:
        """From a change to the text after the key; *form* is that of a value."""

        def shown(change: Change) -> bytes:
            if isinstance(change.delta, int):
                return b" %+d (%s)\n" % (change.delta, change.from_to(form))
            if change.before is None:
                return b" %s (new)\n" % form(change.after)
            if change.after is None:
                return b" removed (%s)\n" % change.from_to(form)
            return b" %s\n" % change.from_to(form)

        return shown

    def change_json(self) -> Callable[[Change], bytes]:
        """From a change that has a delta to the JSON of that."""

        def shown(change: Change) -> bytes:
            assert isinstance(change.delta, int)
            return number(change.delta)

        return shown

    def metrics(self, name: str, values: Callable[[], Iterator[Plain]], *, timestamps: bool) -> list[Metric]:
        """The metric families of a map.

        Args:
            name: that of the family, for messages.
            values: goes through the portable values of the map.
            timestamps: samples may have times of their own.

        Raises:
            TraceError: the values are none that a family can have.
        """
        return [Metric(MetricKind.GAUGE, lambda labels, value: [Sample("", labels, int(value))])]


def itself(value: V) -> V:
    """The value."""
    return value


def single(layout: str) -> Decode:
    """A decoder of the one value of a layout of :mod:`struct`."""
    unpack = struct.Struct(layout).unpack_from
    return lambda memory, offset: unpack(memory, offset)[0]


def words(data_size: int, code: str) -> Callable[[bytes], tuple[int, ...]]:
    """From memory of *data_size* bytes to its 64-bit words."""
    return struct.Struct(f"={data_size // 8}{code}").unpack


def _rank(value: object) -> tuple[object, ...]:
    """What orders values with floating-point numbers: NaN, which compares with nothing, is less than the others."""
    if isinstance(value, tuple):
        return tuple(map(_rank, value))
    if isinstance(value, float):
        return (False, math.copysign(1, value)) if math.isnan(value) else (True, value)
    return (value,)


def numbers_change(was: int | None, is_: int | None) -> tuple[int, int]:
    """The change of numbers (:meth:`ValueKind.change`)."""
    delta = (is_ or 0) - (was or 0)
    return delta, abs(delta)


def counts_change(was: Counts, is_: Counts) -> tuple[Counts, int]:
    """The change of counts by bucket or interval: those that differ."""
    every = {number: is_.get(number, 0) - was.get(number, 0) for number in sorted({*was, *is_})}
    delta = {number: value for number, value in every.items() if value}
    return delta, sum(map(abs, delta.values()))


def merged_copies(
    kind: ValueKind[T], size: int, copy_size: int, pack: Callable[[Never], bytes], decoders: Decoders
) -> Callable[[bytes], bytes]:
    """Merges values of *size* bytes to copies of *copy_size*, which *pack* encodes."""
    if size == copy_size:
        return itself
    merge, split = kind.merge(size, decoders), struct.Struct(f"{size}s").iter_unpack
    packed = for_any(pack)
    return lambda values: b"".join([packed(merge(value)) for (value,) in split(values)])
