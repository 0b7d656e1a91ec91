"""Facts other than types that the checker records about nodes for the code generator: one class for each kind.

``CheckedProgram.facts`` holds at most one fact for a node; ``CheckedProgram.fact`` and ``find_fact`` read it. What a
type already contains (capacity of a string, mode of a stack, buckets of a histogram) is not a fact.
"""

from __future__ import annotations

import msgspec

from pytrace.core.types import Field, Struct, Type
from pytrace.frontend.ast import nodes


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
    """A query about the kernel (``kfunc_exist`` …) and its answer: a row of ``runtime.aot.layouts``."""

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
