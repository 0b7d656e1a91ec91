"""All value types of the language: those that C also has, and those that only builtins produce.

A type defines the layout of a value, which is the same in memory, BPF maps, ring buffer events and on the BPF stack.
Sizes are in bytes, integers in the machine's byte order.

Scalars (:class:`Bool`, :class:`Int`, :class:`Float`, :class:`Enum`, :class:`Pointer`) live in registers;
all others live in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum as PyEnum
from functools import cached_property, reduce
from operator import or_
from typing import ClassVar

import msgspec
from msgspec.structs import replace


class AddressSpace(PyEnum):
    """The address space that a pointer points into; it decides which BPF helper reads through it."""

    NONE = "none"
    """Unknown: dereferenced in the probe's default space."""
    KERNEL = "kernel"
    USER = "user"
    BPF = "bpf"
    """Memory of the program itself (stack, map value, context): plain loads."""
    EITHER = "either"
    """Kernel or user memory, as the address says; only while code is generated."""


class Type:
    """Base of all value types. What is declared as ``Type`` is decoded by :func:`pytrace.core.types.decoded`."""

    __slots__ = ()

    _size: ClassVar[int] = 8
    _align: ClassVar[int] = 8
    """Size and alignment of classes in which all types have the same."""
    scalar: ClassVar[bool] = False
    """True when a value fits a register."""
    aggregate: ClassVar[bool] = False
    """True for count(), sum() … hist(): types of map values only."""

    @property
    def tag(self) -> str:
        """The name of the class in files."""
        raise NotImplementedError(type(self).__name__)

    @property
    def size(self) -> int:
        """Bytes that a value takes in memory."""
        return self._size

    @property
    def align(self) -> int:
        """Alignment of a value in memory."""
        return self._align


class Data(Type, msgspec.Struct, frozen=True, array_like=True):
    """Base of the classes of types: data that can be encoded, as a list of tag and fields."""

    @property
    def tag(self) -> str:
        return str(self.__struct_config__.tag)

    def __str__(self) -> str:
        return self.tag


# ---------------------------------------------------------------------------------------------- scalars


class Void(Data, frozen=True, tag="void"):
    """No value: the type of a call that only has side effects."""

    _size: ClassVar[int] = 0
    _align: ClassVar[int] = 1


class ScalarType(Data, frozen=True):
    """A value that fits a register, aligned to its size."""

    scalar: ClassVar[bool] = True

    @property
    def align(self) -> int:
        return self.size


class Bool(ScalarType, frozen=True, tag="bool"):
    """true or false, one byte."""

    _size: ClassVar[int] = 1


class Int(ScalarType, frozen=True, tag="int"):
    """An integer of 1, 2, 4 or 8 bytes (16 only as a struct member)."""

    width: int
    signed: bool

    @property
    def size(self) -> int:
        return self.width

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


class Float(ScalarType, frozen=True, tag="float"):
    """A floating-point number in memory: ``float`` (4 bytes) or ``double`` (8 bytes) of C."""

    width: int

    @property
    def size(self) -> int:
        return self.width

    def __str__(self) -> str:
        return "float" if self.width == 4 else "double"


class Enum(ScalarType, frozen=True, tag="enum"):
    """A C enumeration; values print as member names."""

    name: str
    width: int
    signed: bool
    members: tuple[tuple[str, int], ...]

    @property
    def size(self) -> int:
        return self.width

    @property
    def integer(self) -> Int:
        """The integer type that carries the values."""
        return Int(self.width, self.signed)

    def __str__(self) -> str:
        return f"enum {self.name}"


class Pointer(ScalarType, frozen=True, tag="pointer"):
    """An address of a *target* in *space*.

    *trusted* marks a pointer that the verifier knows by BTF (``curtask``, fentry arguments), which plain loads may
    follow.  It takes no part in comparing types.
    """

    target: Type
    space: AddressSpace = AddressSpace.NONE
    trusted: bool = False

    def __str__(self) -> str:
        return f"{self.target} *" if not isinstance(self.target, Pointer) else f"{self.target}*"


# ---------------------------------------------------------------------------------------------- memory


class String(Data, frozen=True, tag="string"):
    """Up to *capacity* bytes; ends at the first NUL, or has none when it was truncated."""

    capacity: int
    _align: ClassVar[int] = 1

    @property
    def size(self) -> int:
        return self.capacity

    def __str__(self) -> str:
        return f"string[{self.capacity}]"


class Buffer(Data, frozen=True, tag="buffer"):
    """A 4-byte length and up to *capacity* bytes."""

    capacity: int
    header: ClassVar[int] = 4
    _align: ClassVar[int] = 4

    @property
    def size(self) -> int:
        return self.header + self.capacity

    def __str__(self) -> str:
        return f"buffer[{self.capacity}]"


class Array(Data, frozen=True, tag="array"):
    """*count* elements, one after another."""

    element: Type
    count: int

    @property
    def size(self) -> int:
        return self.element.size * self.count

    @property
    def align(self) -> int:
        return self.element.align

    def __str__(self) -> str:
        return f"{self.element}[{self.count}]"


def _offsets(members: tuple[Type, ...]) -> tuple[tuple[int, ...], int, int]:
    """Offsets of members that are laid out as in a C struct, their size and their alignment."""
    offset, align, offsets = 0, 1, []
    for member in members:
        if isinstance(member, Members):
            # Together: separate traversals would double the work at each level of nesting.
            _, size, step = _offsets(member.members)
        else:
            size, step = member.size, max(1, member.align)
        offset = (offset + step - 1) // step * step
        offsets.append(offset)
        offset += size
        align = max(align, step)
    return tuple(offsets), (offset + align - 1) // align * align, align


class Members(Data, frozen=True):
    """Members one after another, laid out as a C struct would be; padding is zero."""

    @property
    def members(self) -> tuple[Type, ...]:
        """The types of the members, in order."""
        raise NotImplementedError(type(self).__name__)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Byte offset of each member."""
        return _offsets(self.members)[0]

    @property
    def size(self) -> int:
        return _offsets(self.members)[1]

    @property
    def align(self) -> int:
        return _offsets(self.members)[2]


class Tuple(Members, frozen=True, tag="tuple"):
    """Unnamed members."""

    members: tuple[Type, ...]

    def __str__(self) -> str:
        inner = ",".join(str(member) for member in self.members)
        return f"({inner}{',' if len(self.members) == 1 else ''})"


class Record(Members, frozen=True, tag="record"):
    """Named members in order, laid out as a :class:`Tuple` of them.

    A name that is quoted in the script keeps its quotes; :func:`shown_name` is the printed form.
    """

    names: tuple[str, ...]
    members: tuple[Type, ...]

    def __str__(self) -> str:
        return "(" + ",".join(f"{name}={member}" for name, member in zip(self.names, self.members, strict=True)) + ")"


def shown_name(name: str) -> str:
    """The name of a record's member, or the path of one, without quotes."""
    return name.replace('"', "")


class Field(msgspec.Struct, frozen=True, array_like=True):
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


class FieldLoader(msgspec.Struct, frozen=True):
    """In place of a struct's members: a function that returns them, so that types may refer to each other."""

    load: Callable[[], tuple[Field, ...]]


class Struct(Data, frozen=True, dict=True, tag="struct"):
    """A C struct or union.

    Two structs are equal when kind, name, origin and size are; *origin* says where the definition comes from
    (``vmlinux``, a module, ``script``, a context), and is a unique text for anonymous ones.
    """

    kind: str
    name: str
    size: int
    members: tuple[Field, ...] | FieldLoader = ()
    origin: str = ""
    alignment: int | None = None
    """None: that of the fields."""

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Members in declaration order, anonymous ones included as such; loaded on first use."""
        return self.members if isinstance(self.members, tuple) else self.members.load()

    @cached_property
    def align(self) -> int:
        if self.alignment is not None:
            return self.alignment
        return max((field.type.align for field in self.fields), default=1)

    def find(self, name: str) -> Field | None:
        """The member *name*, also inside anonymous members, with its offset from the start of this struct."""
        for field in self.fields:
            if field.name == name:
                return field
            if not field.name and isinstance(field.type, Struct):
                inner = field.type.find(name)
                if inner is not None:
                    offset = field.offset + inner.offset
                    return Field(inner.name, inner.type, offset, inner.bit_offset, inner.bit_size)
        return None

    def names(self) -> Iterator[str]:
        """All names that :meth:`find` accepts."""
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
        return (self.kind, self.name, self.origin, self.size)

    def __repr__(self) -> str:
        return f"Struct({self.kind} {self.name!r}, size={self.size})"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else f"{self.kind} {{…}}"


def plainly_read(type_: Type, offset: int, size: int) -> bool:
    """Whether the verifier accepts a plain load of *size* bytes at *offset* of a typed pointer's target.

    It takes the first member that covers the offset, and rejects a load that extends beyond that member, even if
    another member of a union has the right size (``btf_struct_walk`` in kernel/bpf/btf.c; ``struct qstr.hash_len``).
    """
    if isinstance(type_, Array) and type_.element.size:
        return plainly_read(type_.element, offset % type_.element.size, size)
    if not isinstance(type_, Struct):
        return offset + size <= type_.size
    for member in type_.fields:
        if member.bit_size or not member.offset <= offset < member.offset + member.type.size:
            continue
        return plainly_read(member.type, offset - member.offset, size)
    return True


_OF_KERNEL = frozenset(
    ("list_head", "hlist_node", "hlist_head", "hlist_bl_node", "hlist_nulls_node", "llist_node", "rb_node")
    + ("callback_head", "spinlock", "raw_spinlock", "mutex", "rw_semaphore", "lockref", "refcount_struct", "kref")
    + ("wait_queue_head", "work_struct", "timer_list", "hrtimer", "completion", "xarray", "kobject", "percpu_ref")
    + ("pt_regs", "task_struct", "file", "inode", "dentry", "sock", "sk_buff")
)
"""Structs that no interface between the kernel and user space has: links, locks, counts, saved registers.

And the commonest ones that have such members, which need not be read then.
"""


def in_kernel_only(type_: Type) -> bool:
    """Whether a struct of the kernel is never in user memory.

    That shows in a member, at any depth, that no user program can have: a link of a kernel list, a lock, or a pointer
    to a struct that has one. Members of unions do not count: ``struct xt_entry_match`` has a pointer of the kernel in
    place of what the user wrote. ``struct iovec`` and ``struct timespec64`` may be in either memory.
    """
    seen: set[Type] = set()
    level: list[Type] = [type_]
    while level:
        pointed: list[Type] = []
        while level:
            item = level.pop()
            if not isinstance(item, Struct) or item in seen:
                continue
            seen.add(item)
            if item.name in _OF_KERNEL:
                return True
            if item.kind == "union":
                continue
            for field in item.fields:
                inner: Type = field.type
                while isinstance(inner, Array):
                    inner = inner.element
                if isinstance(inner, Pointer):
                    pointed.append(inner.target)
                else:
                    level.append(inner)
        level = pointed
    return False


# -------------------------------------------------------------------------------------------------------- builtin types

# Types that only builtins produce: stacks, values that print as names, aggregations.
#
# Layout rules are those of `pytrace.core.types`.


# ---------------------------------------------------------------------------------------------- stacks, names


class StackMode(PyEnum):
    """How a stack prints."""

    BPFTRACE = "bpftrace"
    PERF = "perf"
    RAW = "raw"
    BUILD_ID = "build_id"
    FOLDED = "folded"
    """One line, root first, for flame graphs."""
    ANNOTATED = "annotated"
    """As folded, with marks at functions of the kernel and inlined ones."""
    INVERTED = "inverted"
    """One line, innermost first."""

    @property
    def one_line(self) -> bool:
        """Whether frames are printed on one line, separated by semicolons."""
        return self in (StackMode.FOLDED, StackMode.ANNOTATED, StackMode.INVERTED)


TRUNCATED = 1 << 64
"""In place of an address in a decoded stack: frames after the ones before were left out. It is no 64-bit address."""

TRUNCATED_NAME = "[truncated]"
"""The function of such a frame, in all output."""

JIT = "[JIT]"
"""The function of a frame in code that was compiled at run time and has no name, in all output."""


class Stack(Data, frozen=True, tag="stack"):
    """A kernel or user stack of at most *limit* frames.

    Layout: ``i32`` count of frames (or a negative errno), ``u32`` process (0 for kernel stacks; its id, or the
    number of an image, see ``core.stack_formats``), then *limit*
    frames: ``u64`` addresses, innermost first, or for build_id mode ``struct bpf_stack_build_id`` (32 bytes). A count
    of *limit* + 1 is that of a truncated stack, which may have zeros in place of the outermost frames.

    If it is *chunked*, the frames are in chunks (:data:`CHUNK_SIZE`), and the 16 bytes after count and process are the
    digest of the first one.
    """

    user: bool
    limit: int = 127
    mode: StackMode = StackMode.BPFTRACE
    chunked: bool = False
    header: ClassVar[int] = 8

    @property
    def frame_size(self) -> int:
        """Bytes of one frame."""
        return 32 if self.mode is StackMode.BUILD_ID else 8

    @property
    def size(self) -> int:
        return self.header + (16 if self.chunked else self.frame_size * self.limit)

    def __str__(self) -> str:
        return "ustack" if self.user else "kstack"


# Chunks of deep stacks: `pytrace.codegen.lower.stack_family` writes them, decoders read them.
#
# Frames are counted from the root: the outermost `CHUNK_FRAMES` frames are the first chunk, those that they call the
# second, and so on; the last one has the innermost frames, of which there may be fewer. So stacks with the same callers
# share their chunks. A chunk is the value of a map: the digest of the next outer chunk (zeros: there is none), then
# `CHUNK_FRAMES` addresses, innermost first. Its key is a digest of all that. The innermost chunk begins with the
# innermost frame, and has zeros, or frames that are in the next chunk as well, after its own.

CHUNK_FRAMES = 32
"""Frames of a chunk."""
CHUNK_LINK = 16
"""Bytes of a digest."""
CHUNK_SIZE = CHUNK_LINK + 8 * CHUNK_FRAMES

CHUNK_MAP = "stack_chunks"
"""Symbol of the map."""

DEEPEST_STACK = 1024
"""Highest limit of a stack."""


class KSym(Data, frozen=True, tag="ksym_t"):
    """A kernel address (``u64``) that prints as a symbol."""


class USym(Data, frozen=True, tag="usym_t"):
    """``u64`` user address, ``u32`` process as in a stack, ``u32`` zero; prints as a symbol of that process."""

    _size: ClassVar[int] = 16


AF_INET, AF_INET6 = 2, 10
"""Address families (``include/linux/socket.h``); the module ``socket`` is not imported for them."""


class Inet(Data, frozen=True, tag="inet"):
    """``u32`` address family (2 or 10) and 16 bytes of address in network order (unused bytes are zero)."""

    _size: ClassVar[int] = 20
    _align: ClassVar[int] = 4


class Mac(Data, frozen=True, tag="macaddr_t"):
    """Six bytes of hardware address."""

    _size: ClassVar[int] = 6
    _align: ClassVar[int] = 1


class Timestamp(Data, frozen=True, tag="timestamp"):
    """``u64`` nanoseconds, ``u32`` index of the format in the string table, ``u32`` clock (0 boot, 1 tai, 2 sw_tai)."""

    _size: ClassVar[int] = 16


class Username(Data, frozen=True, tag="username"):
    """``u64`` user id that prints as the user's name."""


class InterfaceName(Data, frozen=True, tag="ifname_t"):
    """``u64`` index of a network interface that prints as its name."""


class NetworkNamespace(Data, frozen=True, tag="netns_t"):
    """``u64`` inode of a network namespace that prints as its name."""


class CgroupPath(Data, frozen=True, tag="cgroup_path_t"):
    """``u64`` cgroup id, ``u32`` index of the filter in the string table, ``u32`` zero; prints as the path."""

    _size: ClassVar[int] = 16


class Fixed(ScalarType, frozen=True, tag="fixed_t"):
    """A 64-bit integer that prints as a decimal number: divided by *divisor*, with *digits* decimals.

    With a *path* it is not the value sent but, at the time of decoding, word number *word* (from 1) of that file.
    """

    divisor: int
    digits: int
    signed: bool = True
    path: str = ""
    word: int = 0

    @property
    def one(self) -> int:
        """The number 1 in units of the last decimal."""
        one: int = 10**self.digits
        return one

    def scaled(self, value: int) -> int:
        """*value* / divisor in units of the last decimal, rounded half away from zero."""
        rounded = (2 * abs(value) * self.one + self.divisor) // (2 * self.divisor)
        return rounded if value >= 0 else -rounded

    def number(self, value: int) -> float:
        """The printed number as a float."""
        return self.scaled(value) / self.one


class Joined(Members, frozen=True, tag="joined_t"):
    """Values that print as one text, laid out as a tuple of them.

    *separator* separates them; if *formatted*, it is the printf format that they are arguments of.
    """

    separator: str
    members: tuple[Type, ...]
    formatted: bool = False


# ---------------------------------------------------------------------------------------------- aggregations


class Aggregate(Data, frozen=True):
    """Base of the types of aggregations."""

    aggregate: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.tag}_t"


class Count(Aggregate, frozen=True, tag="count"):
    """``u64`` per CPU; merged by adding."""

    signed: ClassVar[bool] = False


def truncated(total: int, count: int) -> int:
    """*total* / *count* truncated towards zero as in C; 0 if *count* is 0."""
    if not count:
        return 0
    return total // count if total >= 0 else -(-total // count)


def wrapped(signed: bool) -> Callable[[int], int]:
    """A function that wraps an integer to 64 bits."""
    if signed:
        return lambda value: ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
    return lambda value: value & ((1 << 64) - 1)


class Signed(Aggregate, frozen=True):
    """Aggregations whose numbers may be signed."""

    signed: bool = True
    either: bool = False
    """Only during inference: the number is a non-negative constant, which takes the signedness of other operands."""

    def __str__(self) -> str:
        return f"{'' if self.signed else 'u'}{self.tag}_t"


class Sum(Signed, frozen=True, tag="sum"):
    """64-bit sum per CPU; merged by adding."""


class _Pair(Signed, frozen=True):
    _size: ClassVar[int] = 16


class Avg(_Pair, frozen=True, tag="avg"):
    """64-bit total, ``u64`` count; merged by adding both, prints total / count."""


class Stats(_Pair, frozen=True, tag="stats"):
    """64-bit total, ``u64`` count; merged by adding both, prints count, average and total."""


class _Extreme(_Pair, frozen=True):
    """``u64`` rank of the best value, ``u64`` set flag; a CPU whose flag is 0 does not count.

    The rank is the value XOR :attr:`mask`, so that a greater rank is a better value and zeroed memory has the lowest
    rank: an update is a single atomic "take the greater".
    """

    least: ClassVar[bool] = False

    @property
    def mask(self) -> int:
        """The 64-bit mask: value XOR mask is the rank, rank XOR mask the value."""
        return (((1 << 64) - 1) * self.least) ^ ((1 << 63) * self.signed)

    def rank(self, value: int) -> int:
        """The rank of a value."""
        return (value ^ self.mask) & ((1 << 64) - 1)

    def value(self, rank: int) -> int:
        """The value of a rank."""
        value = rank ^ self.mask
        return value - (1 << 64) if self.signed and value >> 63 else value


class Min(_Extreme, frozen=True, tag="min"):
    """The least value."""

    least: ClassVar[bool] = True


class Max(_Extreme, frozen=True, tag="max"):
    """The greatest value."""


class Hist(Aggregate, frozen=True, tag="hist"):
    """Log2 histogram with 2**bits buckets for each power of two: ``u64`` counts, bucket numbers as in bpftrace."""

    bits: int = 0

    @property
    def buckets(self) -> int:
        """Number of buckets (the last one holds 2**63)."""
        return ((63 - self.bits + 1) << self.bits) + (1 << self.bits) + 1

    @property
    def size(self) -> int:
        return 8 * self.buckets


class LHist(Aggregate, frozen=True, tag="lhist"):
    """Linear histogram: ``u64`` counts of values below, in each step, and above."""

    low: int = 0
    high: int = 0
    step: int = 1

    @property
    def buckets(self) -> int:
        """Number of buckets, including the two open ones (below *low*, above *high*)."""
        return (self.high - self.low) // self.step + 2

    @property
    def size(self) -> int:
        return 8 * self.buckets


class TSeries(Aggregate, frozen=True, tag="tseries"):
    """Ring of *count* intervals of *interval* nanoseconds.

    Each: ``u64`` epoch (interval number plus 1; 0 for never used), 64-bit value, ``u64`` meta (samples for avg, time
    of the sample in ns for the last value kept when *reduce* is empty).
    """

    interval: int = 1
    count: int = 1
    reduce: str = ""
    signed: bool = True

    @property
    def size(self) -> int:
        return 24 * self.count


# ---------------------------------------------------------------------------------------------------------------- types

# All value types of the language: identity, size and alignment in memory, and a serialisable form.
#
# The code generator and the decoder both take all layouts from here.


# ---------------------------------------------------------------------------------------------- common instances

VOID = Void()
BOOL = Bool()
INT8, INT16, INT32, INT64 = Int(1, True), Int(2, True), Int(4, True), Int(8, True)
FLOAT, DOUBLE = Float(4), Float(8)
UINT8, UINT16, UINT32, UINT64 = Int(1, False), Int(2, False), Int(4, False), Int(8, False)

ALL: tuple[type[Type], ...] = (
    Void, Bool, Int, Float, Enum, Pointer, String, Buffer, Array, Tuple, Record, Struct, Stack, KSym, USym, Inet, Mac,
    Timestamp, Username, InterfaceName, NetworkNamespace, CgroupPath, Fixed, Joined, Count, Sum, Avg, Stats, Min, Max,
    Hist, LHist, TSeries,
)
"""Every concrete type; a renderer, decoder or LLVM table that lacks one of them is incomplete."""

AGGREGATIONS = tuple(kind for kind in ALL if issubclass(kind, Aggregate))
SUMS = (Count, Sum, Avg, Stats, Hist, LHist)
"""Aggregations that only add to their value or buckets: two values of one are added member by member."""

_ANY = reduce(or_, ALL)

def parts(roots: Iterable[Type]) -> Iterator[Type]:
    """*roots* and the types of all parts of their values (without the targets of pointers)."""
    for type_ in roots:
        yield type_
        if isinstance(type_, Array):
            yield from parts((type_.element,))
        elif isinstance(type_, Members):
            yield from parts(type_.members)
        elif isinstance(type_, Struct):
            yield from parts(field.type for field in type_.fields)


def named_fields(type_: Struct, base: int = 0) -> Iterator[Field]:
    """The members of a struct as printed: anonymous members are flattened, offsets are relative to the struct.

    Character arrays are strings, as when a script reads the member alone.
    """
    for field in type_.fields:
        inner = field.type
        if field.name:
            text = isinstance(inner, Array) and inner.element == INT8 and inner.count > 0
            shown = String(inner.size) if text else inner
            yield Field(field.name, shown, base + field.offset, field.bit_offset, field.bit_size)
        elif isinstance(inner, Struct):
            yield from named_fields(inner, base + field.offset)


def member_types(type_: Type) -> Sequence[Type]:
    """The types of the members of a tuple, a record, or a struct as printed; none of other types."""
    if isinstance(type_, Struct):
        return tuple(field.type for field in named_fields(type_))
    return type_.members if isinstance(type_, Members) else ()


# ---------------------------------------------------------------------------------------------- encoding


def rebuilt(type_: Type, change: Callable[[Type], Type]) -> Type:
    """*type_* with *change* applied to it and to all types that values of it hold, innermost first."""
    if isinstance(type_, Array):
        type_ = replace(type_, element=rebuilt(type_.element, change))
    elif isinstance(type_, Tuple | Record | Joined):
        type_ = replace(type_, members=tuple(rebuilt(member, change) for member in type_.members))
    elif isinstance(type_, Struct):
        fields = tuple(replace(field, type=rebuilt(field.type, change)) for field in type_.fields)
        type_ = Struct(type_.kind, type_.name, type_.size, fields, type_.origin, type_.align)
    return change(type_)


def settled(type_: Type) -> Type:
    """*type_* as data that can be encoded: with all members of structs, without what pointers point to.

    It is the same for a script that was just compiled and for a cached one.
    """
    return rebuilt(type_, _settled)


def _settled(type_: Type) -> Type:
    if isinstance(type_, Pointer):
        return Pointer(VOID, type_.space)
    return replace(type_, origin="") if isinstance(type_, Struct) else type_


def decoded(wanted: type, data: object) -> Type:
    """The type that was encoded as *data*: ``dec_hook`` of msgspec for what is declared as :class:`Type`.

    Raises:
        msgspec.ValidationError: *data* does not describe a type.
    """
    if wanted is not Type:
        raise NotImplementedError(wanted)
    found: Type = msgspec.convert(data, _ANY, dec_hook=decoded)
    return found
