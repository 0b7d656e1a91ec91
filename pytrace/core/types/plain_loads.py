"""The verifier's rule for plain loads of struct members through typed pointers."""

from __future__ import annotations

from pytrace.core.types.basic_types import Array, Struct, Type


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
