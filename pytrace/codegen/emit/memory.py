"""Reading, writing, copying and converting values in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.codegen.emit import user_memory
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import INLINE_BYTES
from pytrace.codegen.ir.values import I1, I64, Made, Memory, Number, Operand, Parts, Ptr, Remote, Scalar
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import (
    AddressSpace,
    Array,
    Bool,
    Buffer,
    Enum,
    Int,
    Members,
    Pointer,
    Record,
    String,
    Struct,
    Type,
)

if TYPE_CHECKING:
    from pytrace.codegen.emit.emitter import Emitter


def is_signed(type_: Type) -> bool:
    """Whether a scalar type is sign-extended."""
    return isinstance(type_, Int | Enum) and type_.signed


def bits(type_: Type) -> int:
    """Width of a scalar type."""
    return 8 * type_.size


def inline(size: int, align: int) -> bool:
    """Whether *size* bytes are few enough to be copied inline."""
    return size <= INLINE_BYTES and size // align <= 64


# ---------------------------------------------------------------------------------------------- plain memory


def zero(e: Emitter, pointer: Ptr, size: int, align: int = 8) -> None:
    """Zero memory of the program."""
    if inline(size, align):
        e.b.clear(pointer, size, align)
    elif size:
        e.b.helper(helpers.PROBE_READ_KERNEL, pointer, size, e.b.address(e.module.zeros(size)))


def copy(e: Emitter, target: Ptr, source: Ptr, size: int, align: int = 8) -> None:
    """Copy within memory of the program."""
    if inline(size, align):
        e.b.copy(target, source, size, align)
    elif size:
        e.b.helper(helpers.PROBE_READ_KERNEL, target, size, e.b.address(source))


def read_helper(space: AddressSpace, *, string: bool = False) -> helpers.ReadHelper:
    """The helper that reads from an address space."""
    of_bytes, of_strings = _READ.get(space, _READ[AddressSpace.KERNEL])
    return of_strings if string else of_bytes


_READ = {
    AddressSpace.KERNEL: (helpers.PROBE_READ_KERNEL, helpers.PROBE_READ_KERNEL_STR),
    AddressSpace.USER: (helpers.PROBE_READ_USER, helpers.PROBE_READ_USER_STR),
    AddressSpace.EITHER: (helpers.PROBE_READ, helpers.PROBE_READ_STR),
}
_SEPARATE = frozenset({"x86_64", "aarch64"})
"""Machines on which an address determines its space (kernel option ARCH_HAS_NON_OVERLAPPING_ADDRESS_SPACE)."""


def resolve_space(e: Emitter, space: AddressSpace) -> AddressSpace:
    """Resolve the address space of a pointer that was made by the program itself."""
    return e.space if space is AddressSpace.NONE else space


def pointed_space(e: Emitter, space: AddressSpace) -> AddressSpace:
    """The address space to be read through a value of the script: a pointer into *space*, or an integer (NONE).

    Outside user probes both spaces are possible for an integer (arguments of kernel functions and system calls,
    ``skbaddr``), and for a pointer that a kernel structure has: a kernel that GCC has built does not say in its type
    information which are ``__user`` (``struct iovec.iov_base``). There the address decides, where it can.
    """
    if space is AddressSpace.NONE:
        space = e.space
    if space is AddressSpace.BPF:
        # Memory of the program without known provenance is read like other kernel memory.
        return AddressSpace.KERNEL
    either = space is AddressSpace.KERNEL and e.script.kernel.arch in _SEPARATE
    return AddressSpace.EITHER if either else space


def load(e: Emitter, pointer: Ptr, type_: Type, align: int = 8) -> Scalar:
    """Load a scalar from the program's memory."""
    return Scalar(e.b.load(pointer, bits(type_), is_signed(type_), min(align, type_.size)), type_)


def store(e: Emitter, pointer: Ptr, value: Number, type_: Type, align: int = 8) -> None:
    """Store an ``i64`` as a scalar of *type_*."""
    e.b.store(value, pointer, bits(type_), min(align, type_.size))


# ---------------------------------------------------------------------------------------------- foreign memory


def read(e: Emitter, pointer: Ptr, size: Number | int, address: Number, space: AddressSpace) -> I64:
    """Read kernel or user memory. Returns the helper's error code. On a fault the kernel zeroes the destination."""
    return user_memory.read(e, read_helper(resolve_space(e, space)), pointer, size, address)


def read_scalar(e: Emitter, address: Number, type_: Type, space: AddressSpace) -> Scalar:
    """Read a scalar from kernel or user memory; 0 on a fault."""
    cell = e.cell
    read(e, cell, type_.size, address, space)
    return load(e, cell, type_)


# ---------------------------------------------------------------------------------------------- operands


def number(e: Emitter, operand: Operand) -> Number:
    """The value of a scalar operand in a register, loaded or read if necessary."""
    match operand:
        case Scalar(direct=True):
            return e.launder(operand.value)
        case Scalar():
            return operand.value
        case Memory():
            return load(e, operand.pointer, operand.type, operand.align).value
        case Remote(direct=True):
            return load(e, e.b.pointer(operand.address), operand.type).value
        case Remote():
            return read_scalar(e, operand.address, operand.type, operand.space).value
        case Made():
            return number(e, place(e, operand))
    raise InternalError(f"no register for {operand}")


def truth(e: Emitter, operand: Operand) -> I1:
    """``i1``: a scalar is not zero."""
    return e.b.truth(number(e, operand))


def place(e: Emitter, operand: Operand) -> Memory:
    """The operand in the program's memory."""
    if isinstance(operand, Memory):
        return operand
    pointer = e.temporary(operand.type.size)
    write(e, operand, pointer, operand.type)
    return Memory(pointer, operand.type)


def detached(e: Emitter, operand: Operand, type_: Type) -> Memory:
    """The operand as a value of *type_* that can be copied even to memory that it was computed from."""
    return operand if isinstance(operand, Memory) and operand.type == type_ else copied(e, operand, type_)


def copied(e: Emitter, operand: Operand, type_: Type | None = None) -> Memory:
    """A copy of the operand (as a value of *type_*) in temporary memory, valid until the end of the statement."""
    type_ = type_ or operand.type
    pointer = e.temporary(type_.size)
    write(e, operand, pointer, type_)
    return Memory(pointer, type_)


def write(e: Emitter, operand: Operand, pointer: Ptr, type_: Type, align: int = 8) -> None:
    """Write *operand* as a value of *type_*, with implicit conversion and zeroed padding."""
    if type_.scalar:
        _write_scalar(e, operand, pointer, type_, align)
    elif isinstance(operand, Parts):
        _write_members(e, operand, pointer, type_, align)
    elif isinstance(type_, String | Buffer) and type_ != operand.type:
        _write_text(e, operand, pointer, type_, align)
    elif isinstance(type_, Members) and type_ != operand.type:
        _write_members(e, place(e, operand), pointer, type_, align)
    else:
        _write_same(e, operand, pointer, type_, align)


def _write_scalar(e: Emitter, operand: Operand, pointer: Ptr, type_: Type, align: int) -> None:
    if isinstance(operand.type, Array):
        _write_same(e, operand, pointer, type_, align)
        return
    store(e, pointer, number(e, operand), type_, align)


def _write_same(e: Emitter, operand: Operand, pointer: Ptr, type_: Type, align: int) -> None:
    match operand:
        case Memory():
            copy(e, pointer, operand.pointer, type_.size, min(align, operand.align))
        case Remote():
            if isinstance(operand.type, String):
                read_string(e, pointer, operand.type.capacity, operand.address, operand.space, align)
            else:
                read(e, pointer, type_.size, operand.address, operand.space)
        case Made():
            operand.write(pointer, align)
        case Scalar():
            store(e, pointer, operand.value, operand.type, align)
        case _:
            raise InternalError(f"cannot write {operand} as {type_}")


def _write_text(e: Emitter, operand: Operand, pointer: Ptr, type_: String | Buffer, align: int) -> None:
    source = operand.type
    if source.size <= type_.size:
        _write_same(e, operand, pointer, source, align)
        rest = type_.size - source.size
        zero(e, e.b.offset(pointer, source.size), rest, 8 if source.size % 8 == 0 and align == 8 else 1)
        return
    text = place(e, operand)
    copy(e, pointer, text.pointer, type_.size, min(align, text.align))


def members_of(type_: Type) -> tuple[tuple[Type, ...], tuple[int, ...], tuple[str, ...]]:
    """Types, offsets and names (empty for tuples) of a tuple, record or struct."""
    if isinstance(type_, Record):
        return type_.members, type_.offsets, type_.names
    if isinstance(type_, Members):
        return type_.members, type_.offsets, ()
    raise InternalError(f"{type_} has no members")


def has_gaps(type_: Type) -> bool:
    """Whether a tuple or record has padding."""
    members, offsets, _ = members_of(type_)
    end = 0
    for member, offset in zip(members, offsets, strict=True):
        if offset != end:
            return True
        end = offset + member.size
    return end != type_.size


def source_index(source: Type, target: Type, index: int) -> int:
    """Index of the source member for member *index* of *target*: records convert by name, tuples by position."""
    if isinstance(source, Record) and isinstance(target, Record):
        return source.names.index(target.names[index])
    return index


def natural(align: int, offset: int) -> int:
    """The alignment at *offset* bytes from an address of alignment *align*."""
    while offset % align:
        align //= 2
    return align


def _write_members(e: Emitter, source: Operand, pointer: Ptr, type_: Type, align: int) -> None:
    members, offsets, _ = members_of(type_)
    if has_gaps(type_):
        zero(e, pointer, type_.size, align)
    for index, (member, offset) in enumerate(zip(members, offsets, strict=True)):
        part = member_of(e, source, source_index(source.type, type_, index))
        write(e, part, e.b.offset(pointer, offset), member, natural(align, offset))


def member_of(e: Emitter, operand: Operand, index: int) -> Operand:
    """One member of a tuple or record."""
    if isinstance(operand, Parts):
        return operand.members[index]
    value = place(e, operand)
    members, offsets, _ = members_of(value.type)
    return Memory(e.b.offset(value.pointer, offsets[index]), members[index], natural(value.align, offsets[index]))


def convert(e: Emitter, operand: Operand, type_: Type) -> Operand:
    """The operand as a value of *type_*."""
    if type_.scalar:
        if isinstance(operand.type, Array):
            value = place(e, operand)
            return load(e, value.pointer, type_, value.align)
        if isinstance(operand, Scalar) and operand.direct and isinstance(type_, Pointer):
            if type_.trusted or type_.space is AddressSpace.BPF:
                return Scalar(operand.value, type_, direct=True)
        return Scalar(fit(e, number(e, operand), type_), type_)
    if operand.type == type_:
        return operand
    if isinstance(type_, Struct) and isinstance(operand, Memory | Remote):
        return operand
    pointer = e.temporary(type_.size)
    write(e, operand, pointer, type_)
    return Memory(pointer, type_)


def fit(e: Emitter, value: Number, type_: Type) -> Number:
    """An ``i64`` truncated and extended to a scalar type."""
    if isinstance(type_, Bool):
        return e.b.number(e.b.truth(value))
    return e.b.fit(value, bits(type_), is_signed(type_))


# ---------------------------------------------------------------------------------------------- strings


def longest_string(e: Emitter) -> int:
    """Maximum size of a string in bytes (``max_strlen``)."""
    return e.checked.config.max_strlen


def read_string(
    e: Emitter, pointer: Ptr, capacity: int, address: Number, space: AddressSpace, align: int = 8
) -> None:
    """Read a string and pad it; a string that does not fit fills all *capacity* bytes with text and has no NUL.

    It counts as truncated only at the maximum capacity: with a smaller one it is a full character array.
    """
    zero(e, pointer, capacity, align)
    _read_text(e, pointer, capacity, address, space)


def read_string_only(
    e: Emitter, pointer: Ptr, capacity: int, address: Number, space: AddressSpace, cleared: int
) -> None:
    """As :func:`read_string`, but only the next *cleared* bytes after the string are zeroed.

    They are also zeroed after a string of *capacity* bytes. Both *pointer* and *capacity* must be multiples of 8, and
    the machine little-endian.
    """
    length = _read_text(e, pointer, capacity, address, space)
    some, none, done = e.b.block(), e.b.block(), e.b.block()
    hidden = e.b.opaque(length)
    e.b.branch(e.b.icmp("sgt", hidden, 0), some, none, likely=True)
    e.b.start(some)
    # By words, as these are loaded next: a load that spans several stores cannot be forwarded from them.
    last = e.b.sub(hidden, 1)
    word = e.b.offset(pointer, e.b.op("and", last, -8))
    bits_used = e.b.op("shl", e.b.op("and", last, 7), 3)
    text = e.b.sub(e.b.op("shl", 1, bits_used), 1)
    # The last byte of a full string is not NUL.
    text = e.b.select(e.b.icmp("eq", hidden, capacity), -1, text)
    e.b.store(e.b.op("and", e.b.load(word), text), word)
    _clear_words(e, e.b.offset(word, 8), cleared)
    e.b.jump(done)
    e.b.start(none)
    _clear_words(e, pointer, cleared)
    e.b.jump(done)
    e.b.start(done)


def _clear_words(e: Emitter, pointer: Ptr, size: int) -> None:
    for offset in range(0, size, 8):
        e.b.store(0, e.b.offset(pointer, offset))


def _read_text(e: Emitter, pointer: Ptr, capacity: int, address: Number, space: AddressSpace) -> I64:
    """Read a string, and its last byte if it has no NUL. Returns the helper's result."""
    resolved = resolve_space(e, space)
    length = user_memory.read(e, read_helper(resolved, string=True), pointer, capacity, address)
    with e.b.when(e.b.icmp("eq", length, capacity), likely=False):
        # The helper writes a NUL to the last byte; the source byte shows whether the string ends there.
        last = capacity - 1
        end = e.b.offset(pointer, last)
        e.b.helper(read_helper(resolved), end, 1, e.b.add(address, last))
        if capacity >= longest_string(e):
            e.count_cut(e.b.truth(e.b.load(end, 8)))
    return length


def string_tail(e: Emitter, pointer: Ptr, limit: int, address: Number, space: AddressSpace) -> I64:
    """Read a string of at most *limit* bytes without its NUL. Returns its length."""
    result = user_memory.read(e, read_helper(resolve_space(e, space), string=True), pointer, limit + 1, address)
    return text_length(e, result)


def text_length(e: Emitter, result: Number) -> I64:
    """The result of a string read as a length without NUL, in a form that the verifier can follow.

    The path with the widest range comes first, so that the verifier prunes the other one.
    """
    hidden = e.b.opaque(result)
    good, bad, done = e.b.block(), e.b.block(), e.b.block()
    e.b.branch(e.b.icmp("sgt", hidden, 0), good, bad, likely=True)
    e.b.start(good)
    length = e.b.sub(hidden, 1)
    e.b.jump(done)
    e.b.start(bad)
    e.b.jump(done)
    e.b.start(done)
    return e.b.phi([(length, good), (0, bad)])


def as_string(operand: Operand, capacity: int) -> Operand:
    """Bytes in memory, as a string operand."""
    if isinstance(operand, Memory):
        return Memory(operand.pointer, String(capacity), operand.align)
    if isinstance(operand, Remote):
        return Remote(operand.address, String(capacity), operand.space)
    raise InternalError(f"{operand.type} is not text")
