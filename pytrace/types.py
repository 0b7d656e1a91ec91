"""Value types of the language: identity, size and alignment in memory, and a serialisable form.

A type says how a value lies in memory, in BPF maps, ring buffer events and on the BPF stack alike; the code
generator and the decoder both take layouts from here and from nowhere else.  All sizes are bytes, all integers are
little or big endian as the machine is.

Scalars (:class:`Bool`, :class:`Int`, :class:`Enum`, :class:`Pointer`) live in registers; all others live in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum as PyEnum
from typing import Any, ClassVar, cast

from pytrace.dataclass import dataclass, fields


class AddressSpace(PyEnum):
    """Which memory a pointer points into, and so which helper reads through it."""

    NONE = "none"
    """Not known: treated as the probe's default space when dereferenced."""
    KERNEL = "kernel"
    USER = "user"
    BPF = "bpf"
    """Memory of the program itself (stack, map value, context): plain loads."""


@dataclass(frozen=True, slots=True)
class Type:
    """Base of all value types."""

    tag: ClassVar[str] = ""

    @property
    def size(self) -> int:
        """Bytes that a value takes in memory."""
        raise NotImplementedError(type(self).__name__)

    @property
    def align(self) -> int:
        """Alignment of a value in memory."""
        raise NotImplementedError(type(self).__name__)

    @property
    def scalar(self) -> bool:
        """True when a value fits a register."""
        return False

    @property
    def aggregate(self) -> bool:
        """True for count(), sum() … hist(): types that only map values have."""
        return False


# ---------------------------------------------------------------------------------------------- scalars


@dataclass(frozen=True, slots=True)
class Void(Type):
    """No value: the type of a call that is made for its effect."""

    tag: ClassVar[str] = "void"

    @property
    def size(self) -> int:
        return 0

    @property
    def align(self) -> int:
        return 1

    def __str__(self) -> str:
        return "void"


@dataclass(frozen=True, slots=True)
class Bool(Type):
    """true or false, one byte."""

    tag: ClassVar[str] = "bool"

    @property
    def size(self) -> int:
        return 1

    @property
    def align(self) -> int:
        return 1

    @property
    def scalar(self) -> bool:
        return True

    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True, slots=True)
class Int(Type):
    """An integer of 1, 2, 4 or 8 bytes (16 only as a struct member)."""

    width: int
    signed: bool
    tag: ClassVar[str] = "int"

    @property
    def size(self) -> int:
        return self.width

    @property
    def align(self) -> int:
        return self.width

    @property
    def scalar(self) -> bool:
        return True

    @property
    def low(self) -> int:
        """The least value."""
        return -(1 << (8 * self.width - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """The greatest value."""
        return (1 << (8 * self.width - int(self.signed))) - 1

    def __str__(self) -> str:
        return f"{'' if self.signed else 'u'}int{8 * self.width}"


@dataclass(frozen=True, slots=True)
class Enum(Type):
    """A C enumeration; values print as member names."""

    name: str
    width: int
    signed: bool
    members: tuple[tuple[str, int], ...]
    tag: ClassVar[str] = "enum"

    @property
    def size(self) -> int:
        return self.width

    @property
    def align(self) -> int:
        return self.width

    @property
    def scalar(self) -> bool:
        return True

    @property
    def integer(self) -> Int:
        """The integer type that carries the values."""
        return Int(self.width, self.signed)

    def __str__(self) -> str:
        return f"enum {self.name}"


@dataclass(frozen=True, slots=True)
class Pointer(Type):
    """An address of a *target* in *space*.

    *trusted* marks a pointer that the verifier knows by BTF (``curtask``, fentry arguments), which plain loads may
    follow.  It takes no part in comparing types.
    """

    target: Type
    space: AddressSpace = AddressSpace.NONE
    trusted: bool = False
    tag: ClassVar[str] = "pointer"

    @property
    def size(self) -> int:
        return 8

    @property
    def align(self) -> int:
        return 8

    @property
    def scalar(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"{self.target} *" if not isinstance(self.target, Pointer) else f"{self.target}*"


# ---------------------------------------------------------------------------------------------- memory


@dataclass(frozen=True, slots=True)
class String(Type):
    """Up to *capacity* bytes; ends at the first NUL or, when cut, without one."""

    capacity: int
    tag: ClassVar[str] = "string"

    @property
    def size(self) -> int:
        return self.capacity

    @property
    def align(self) -> int:
        return 1

    def __str__(self) -> str:
        return f"string[{self.capacity}]"


@dataclass(frozen=True, slots=True)
class Buffer(Type):
    """A 4-byte length and up to *capacity* bytes."""

    capacity: int
    tag: ClassVar[str] = "buffer"
    header: ClassVar[int] = 4

    @property
    def size(self) -> int:
        return self.header + self.capacity

    @property
    def align(self) -> int:
        return 4

    def __str__(self) -> str:
        return f"buffer[{self.capacity}]"


@dataclass(frozen=True, slots=True)
class Array(Type):
    """*count* elements, one after another."""

    element: Type
    count: int
    tag: ClassVar[str] = "array"

    @property
    def size(self) -> int:
        return self.element.size * self.count

    @property
    def align(self) -> int:
        return self.element.align

    def __str__(self) -> str:
        return f"{self.element}[{self.count}]"


def _offsets(members: tuple[Type, ...]) -> tuple[tuple[int, ...], int, int]:
    at, align, found = 0, 1, []
    for member in members:
        size, step = _extent(member)
        at = (at + step - 1) // step * step
        found.append(at)
        at += size
        align = max(align, step)
    return tuple(found), (at + align - 1) // align * align, align


def _extent(kind: Type) -> tuple[int, int]:
    """Size and alignment, found in one descent: asked apart, each level of nested tuples would double the work."""
    if isinstance(kind, Tuple | Record):
        return _offsets(kind.members)[1:]
    return kind.size, max(1, kind.align)


class _Members(Type):
    """Members one after another, laid out as a C struct would be; padding is zero."""

    __slots__ = ()
    members: tuple[Type, ...]

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each member starts."""
        return _offsets(self.members)[0]

    @property
    def size(self) -> int:
        return _offsets(self.members)[1]

    @property
    def align(self) -> int:
        return _offsets(self.members)[2]


@dataclass(frozen=True, slots=True)
class Tuple(_Members):
    """Unnamed members."""

    members: tuple[Type, ...]
    tag: ClassVar[str] = "tuple"

    def __str__(self) -> str:
        inner = ",".join(str(member) for member in self.members)
        return f"({inner}{',' if len(self.members) == 1 else ''})"


@dataclass(frozen=True, slots=True)
class Record(_Members):
    """Named members in order, laid out as a :class:`Tuple` of them."""

    names: tuple[str, ...]
    members: tuple[Type, ...]
    tag: ClassVar[str] = "record"

    def __str__(self) -> str:
        return "(" + ",".join(f"{name}={member}" for name, member in zip(self.names, self.members, strict=True)) + ")"


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a struct or union.

    *offset* is in bytes from the start of the struct.  For a bitfield, *bit_size* is its width and *bit_offset* the
    distance in bits from byte *offset* (least significant bit first on little endian machines); *type* is then
    the integer type of the result.  An anonymous struct or union member has an empty name.
    """

    name: str
    type: Type
    offset: int
    bit_offset: int = 0
    bit_size: int = 0


class Struct(Type):
    """A C struct or union.  Fields are loaded on first use, so types may refer to each other.

    Two structs are equal when kind, name, origin and size are; *origin* tells where the definition comes from
    (``vmlinux``, a module, ``script``, a context), and is a unique text for anonymous ones.
    """

    __slots__ = ("_align", "_fields", "_load", "_size", "kind", "name", "origin")
    tag: ClassVar[str] = "struct"

    def __init__(
        self,
        kind: str,
        name: str,
        size: int,
        load: Callable[[], tuple[Field, ...]] | tuple[Field, ...],
        *,
        origin: str = "",
        align: int | None = None,
    ) -> None:
        # The frozen dataclass base forbids plain assignment.
        put = object.__setattr__
        put(self, "kind", kind)
        put(self, "name", name)
        put(self, "_size", size)
        put(self, "origin", origin)
        put(self, "_align", align)
        put(self, "_fields", load if isinstance(load, tuple) else None)
        put(self, "_load", load)

    kind: str
    name: str
    origin: str
    _size: int
    _align: int | None
    _fields: tuple[Field, ...] | None
    _load: Any

    @property
    def size(self) -> int:
        return self._size

    @property
    def align(self) -> int:
        if self._align is None:
            found = max((field.type.align for field in self.fields), default=1)
            object.__setattr__(self, "_align", found)
        return cast(int, self._align)

    @property
    def fields(self) -> tuple[Field, ...]:
        """Members in declaration order, anonymous ones included as such."""
        if self._fields is None:
            object.__setattr__(self, "_fields", self._load())
        return cast("tuple[Field, ...]", self._fields)

    def find(self, name: str) -> Field | None:
        """The member *name*, also inside anonymous members, with its offset from the start of this struct."""
        for field in self.fields:
            if field.name == name:
                return field
            if not field.name and isinstance(field.type, Struct):
                inner = field.type.find(name)
                if inner is not None:
                    at = field.offset + inner.offset
                    return Field(inner.name, inner.type, at, inner.bit_offset, inner.bit_size)
        return None

    def names(self) -> Iterator[str]:
        """All names that :meth:`find` knows."""
        for field in self.fields:
            if field.name:
                yield field.name
            elif isinstance(field.type, Struct):
                yield from field.type.names()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str, str, int]:
        return (self.kind, self.name, self.origin, self._size)

    def __repr__(self) -> str:
        return f"Struct({self.kind} {self.name!r}, size={self._size})"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else f"{self.kind} {{…}}"


# ---------------------------------------------------------------------------------------------- produced by functions


class StackMode(PyEnum):
    """How a stack prints."""

    BPFTRACE = "bpftrace"
    PERF = "perf"
    RAW = "raw"
    BUILD_ID = "build_id"


@dataclass(frozen=True, slots=True)
class Stack(Type):
    """A kernel or user stack of at most *limit* frames.

    Layout: ``i32`` count of frames (or a negative errno), ``u32`` process id (0 for kernel stacks), then *limit*
    frames: ``u64`` addresses, innermost first, or for build_id mode ``struct bpf_stack_build_id`` (32 bytes).
    """

    user: bool
    limit: int = 127
    mode: StackMode = StackMode.BPFTRACE
    tag: ClassVar[str] = "stack"
    header: ClassVar[int] = 8

    @property
    def frame_size(self) -> int:
        """Bytes of one frame."""
        return 32 if self.mode is StackMode.BUILD_ID else 8

    @property
    def size(self) -> int:
        return self.header + self.frame_size * self.limit

    @property
    def align(self) -> int:
        return 8

    def __str__(self) -> str:
        return "ustack" if self.user else "kstack"


@dataclass(frozen=True, slots=True)
class _Fixed(Type):
    """A type whose size does not depend on parameters."""

    _size: ClassVar[int] = 8
    _align: ClassVar[int] = 8

    @property
    def size(self) -> int:
        return self._size

    @property
    def align(self) -> int:
        return self._align

    def __str__(self) -> str:
        return self.tag


@dataclass(frozen=True, slots=True)
class KSym(_Fixed):
    """A kernel address (``u64``) that prints as a symbol."""

    tag: ClassVar[str] = "ksym_t"


@dataclass(frozen=True, slots=True)
class USym(_Fixed):
    """``u64`` user address, ``u32`` process id, ``u32`` zero; prints as a symbol of that process."""

    tag: ClassVar[str] = "usym_t"
    _size: ClassVar[int] = 16


@dataclass(frozen=True, slots=True)
class Inet(_Fixed):
    """``u32`` address family (2 or 10) and 16 bytes of address in network order (unused ones zero)."""

    tag: ClassVar[str] = "inet"
    _size: ClassVar[int] = 20
    _align: ClassVar[int] = 4


@dataclass(frozen=True, slots=True)
class Mac(_Fixed):
    """Six bytes of hardware address."""

    tag: ClassVar[str] = "macaddr_t"
    _size: ClassVar[int] = 6
    _align: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Timestamp(_Fixed):
    """``u64`` nanoseconds, ``u32`` index of the format in the string table, ``u32`` clock (0 boot, 1 tai, 2 sw_tai)."""

    tag: ClassVar[str] = "timestamp"
    _size: ClassVar[int] = 16


@dataclass(frozen=True, slots=True)
class Username(_Fixed):
    """``u64`` user id that prints as the user's name."""

    tag: ClassVar[str] = "username"


@dataclass(frozen=True, slots=True)
class CgroupPath(_Fixed):
    """``u64`` cgroup id, ``u32`` index of the filter in the string table, ``u32`` zero; prints as the path."""

    tag: ClassVar[str] = "cgroup_path_t"
    _size: ClassVar[int] = 16


# ---------------------------------------------------------------------------------------------- aggregations


@dataclass(frozen=True, slots=True)
class _Aggregate(Type):
    @property
    def aggregate(self) -> bool:
        return True

    @property
    def align(self) -> int:
        return 8

    @property
    def size(self) -> int:
        return 8

    def __str__(self) -> str:
        return f"{self.tag}_t"


@dataclass(frozen=True, slots=True)
class Count(_Aggregate):
    """``u64`` per CPU; merged by adding."""

    tag: ClassVar[str] = "count"


@dataclass(frozen=True, slots=True)
class _Signed(_Aggregate):
    signed: bool = True

    def __str__(self) -> str:
        return f"{'' if self.signed else 'u'}{self.tag}_t"


@dataclass(frozen=True, slots=True)
class Sum(_Signed):
    """64-bit sum per CPU; merged by adding."""

    tag: ClassVar[str] = "sum"


class _Pair(_Signed):
    __slots__ = ()

    @property
    def size(self) -> int:
        return 16


@dataclass(frozen=True, slots=True)
class Avg(_Pair):
    """64-bit total, ``u64`` count; merged by adding both, prints total / count."""

    tag: ClassVar[str] = "avg"


@dataclass(frozen=True, slots=True)
class Stats(_Pair):
    """64-bit total, ``u64`` count; merged by adding both, prints count, average and total."""

    tag: ClassVar[str] = "stats"


class _Extreme(_Pair):
    """``u64`` rank of the best value, ``u64`` set flag; a CPU whose flag is 0 does not count.

    The rank is the value with the bits of :attr:`mask` turned over, so that the greater rank is the better value and
    zeroed memory has the least: an update is one step of "take the greater", in which nothing can come between.
    """

    __slots__ = ()
    least: ClassVar[bool] = False

    @property
    def mask(self) -> int:
        """What turns a value, as 64 bits, into its rank and back."""
        return (((1 << 64) - 1) * self.least) ^ ((1 << 63) * self.signed)

    def rank(self, value: int) -> int:
        """The rank of a value."""
        return (value ^ self.mask) & ((1 << 64) - 1)

    def value(self, rank: int) -> int:
        """The value of a rank."""
        found = rank ^ self.mask
        return found - (1 << 64) if self.signed and found >> 63 else found


@dataclass(frozen=True, slots=True)
class Min(_Extreme):
    """The least value."""

    tag: ClassVar[str] = "min"
    least: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Max(_Extreme):
    """The greatest value."""

    tag: ClassVar[str] = "max"


@dataclass(frozen=True, slots=True)
class Hist(_Aggregate):
    """Log2 histogram with 2**bits buckets for each power of two: ``u64`` counts, bucket numbers as in the reference."""

    bits: int = 0
    tag: ClassVar[str] = "hist"

    @property
    def buckets(self) -> int:
        """How many buckets there are (the highest number is that of 2**63)."""
        return ((63 - self.bits + 1) << self.bits) + (1 << self.bits) + 1

    @property
    def size(self) -> int:
        return 8 * self.buckets


@dataclass(frozen=True, slots=True)
class LHist(_Aggregate):
    """Linear histogram: ``u64`` counts of below, each step, and above."""

    low: int = 0
    high: int = 0
    step: int = 1
    tag: ClassVar[str] = "lhist"

    @property
    def buckets(self) -> int:
        """How many buckets there are, the two open ones included."""
        return (self.high - self.low) // self.step + 2

    @property
    def size(self) -> int:
        return 8 * self.buckets


@dataclass(frozen=True, slots=True)
class TSeries(_Aggregate):
    """Ring of *count* intervals of *interval* nanoseconds.

    Each: ``u64`` epoch (interval number plus 1; 0 for never used), 64-bit value, ``u64`` meta (samples for avg, time
    of the sample in ns for the last value kept when *reduce* is empty).
    """

    interval: int = 1
    count: int = 1
    reduce: str = ""
    signed: bool = True
    tag: ClassVar[str] = "tseries"

    @property
    def size(self) -> int:
        return 24 * self.count


# ---------------------------------------------------------------------------------------------- common instances

VOID = Void()
BOOL = Bool()
INT8, INT16, INT32, INT64 = Int(1, True), Int(2, True), Int(4, True), Int(8, True)
UINT8, UINT16, UINT32, UINT64 = Int(1, False), Int(2, False), Int(4, False), Int(8, False)

ALL: tuple[type[Type], ...] = (
    Void, Bool, Int, Enum, Pointer, String, Buffer, Array, Tuple, Record, Struct, Stack, KSym, USym, Inet, Mac,
    Timestamp, Username, CgroupPath, Count, Sum, Avg, Stats, Min, Max, Hist, LHist, TSeries,
)  # fmt: skip
"""Every concrete type; a renderer, decoder or LLVM table that lacks one of them is incomplete."""

_BY_TAG: dict[str, type[Type]] = {kind.tag: kind for kind in ALL}


def parts(roots: Iterable[Type]) -> Iterator[Type]:
    """*roots* and all types that values of them hold (not what pointers point to)."""
    for kind in roots:
        yield kind
        if isinstance(kind, Array):
            yield from parts((kind.element,))
        elif isinstance(kind, Tuple | Record):
            yield from parts(kind.members)
        elif isinstance(kind, Struct):
            yield from parts(field.type for field in kind.fields)


# ---------------------------------------------------------------------------------------------- serialisable form


def to_data(value: Type) -> list[Any]:
    """The type as JSON-serialisable lists; what a pointer points to is reduced to its name."""
    if isinstance(value, Struct):
        members = [[f.name, to_data(f.type), f.offset, f.bit_offset, f.bit_size] for f in value.fields]
        return [value.tag, value.kind, value.name, value.size, value.align, members]
    if isinstance(value, Pointer):
        return [value.tag, value.space.value]
    return [value.tag, *(_pack(getattr(value, field.name)) for field in fields(value))]


def from_data(data: list[Any]) -> Type:
    """The type that :func:`to_data` gave *data* for (pointer targets are :data:`VOID`)."""
    tag, *rest = data
    if tag == Struct.tag:
        kind, name, size, align, members = rest
        loaded = tuple(Field(m[0], from_data(m[1]), m[2], m[3], m[4]) for m in members)
        return Struct(kind, name, size, loaded, align=align)
    if tag == Pointer.tag:
        return Pointer(VOID, AddressSpace(rest[0]))
    kind_ = _BY_TAG[tag]
    return kind_(*(_unpack(item) for item in rest))


def _pack(item: Any) -> Any:
    if isinstance(item, Type):
        return {"t": to_data(item)}
    if isinstance(item, PyEnum):
        return {"mode": item.value}
    if isinstance(item, tuple):
        return [_pack(inner) for inner in item]
    return item


def _unpack(item: Any) -> Any:
    if isinstance(item, dict):
        return from_data(item["t"]) if "t" in item else StackMode(item["mode"])
    if isinstance(item, list):
        return tuple(_unpack(inner) for inner in item)
    return item
