"""Types that C also has: scalars, strings, arrays, tuples, structs. Other packages import them from ``core.types``.

A type defines the layout of a value, which is the same in memory, BPF maps, ring buffer events and on the BPF stack.
Sizes are in bytes, integers in the machine's byte order.

Scalars (:class:`Bool`, :class:`Int`, :class:`Float`, :class:`Enum`, :class:`Pointer`) live in registers;
all others live in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum as PyEnum
from functools import cached_property
from typing import ClassVar

import msgspec


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

    @property
    def scalar(self) -> bool:
        """True when a value fits a register."""
        return False

    @property
    def aggregate(self) -> bool:
        """True for count(), sum() … hist(): types of map values only."""
        return False


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

    @property
    def align(self) -> int:
        return self.size

    @property
    def scalar(self) -> bool:
        return True


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
    offset, align, offsets = 0, 1, []
    for member in members:
        size, step = _extent(member)
        offset = (offset + step - 1) // step * step
        offsets.append(offset)
        offset += size
        align = max(align, step)
    return tuple(offsets), (offset + align - 1) // align * align, align


def _extent(type_: Type) -> tuple[int, int]:
    """Size and alignment, computed together: separate traversals would double the work at each level of nesting."""
    if isinstance(type_, Members):
        return _offsets(type_.members)[1:]
    return type_.size, max(1, type_.align)


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
