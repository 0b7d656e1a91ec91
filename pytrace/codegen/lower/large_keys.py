"""Large keys in memory: strings are read without zeroing their rest, which digests do not include.

The rest is zeroed only in the copy of a key that is stored, once for each new key.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from pytrace.codegen.analysis.large_keys import LEAST, WORD
from pytrace.codegen.emit import memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.ir_values import Ptr
from pytrace.codegen.ir.operands import Made, Operand, Parts
from pytrace.codegen.lower.key_digests import BLOCK
from pytrace.core.types import Type

SLACK = BLOCK * WORD
"""Bytes that are zeroed after the end of a string, as a digest may include them. A key needs room for them."""

Text = tuple[int, int]
"""Offset and size of a string whose rest is not zeroed."""


def write(e: Emitter, operand: Operand, pointer: Ptr, type_: Type) -> tuple[Text, ...]:
    """Write a key and :data:`SLACK` bytes after it. Returns the strings whose rest is not zeroed."""
    read = _reader(operand, type_, 0)
    if read is not None:
        read(pointer, SLACK)
        return ((0, type_.size),)
    if not isinstance(operand, Parts) or memory.has_gaps(type_):
        memory.write(e, operand, pointer, type_)
        return ()
    texts: list[Text] = []
    members, offsets, _ = memory.members_of(type_)
    for index, (member, offset) in enumerate(zip(members, offsets, strict=True)):
        part = memory.member_of(e, operand, memory.source_index(operand.type, type_, index))
        read = _reader(part, member, offset)
        if read is not None:
            # The members after the string are written later.
            read(e.b.offset(pointer, offset), SLACK)
            texts.append((offset, member.size))
        else:
            memory.write(e, part, e.b.offset(pointer, offset), member, memory.natural(8, offset))
    return tuple(texts)


def _reader(operand: Operand, type_: Type, offset: int) -> Callable[[Ptr, int], None] | None:
    """The function that reads a string of a key without zeroing all of its rest; None if it is read in full."""
    if not isinstance(operand, Made) or operand.type != type_ or type_.size <= LEAST:
        return None
    return None if offset % WORD or type_.size % WORD or sys.byteorder != "little" else operand.only


def clear(e: Emitter, key: Ptr, size: int, texts: tuple[Text, ...]) -> Ptr:
    """A copy of a key of *size* bytes in which the rest of strings is zeroed."""
    copy, end = e.temporary(size), 0
    for offset, room in (*texts, (size, 0)):
        memory.copy(e, e.b.offset(copy, end), e.b.offset(key, end), offset - end)
        end = offset + room
    for offset, room in texts:
        source, target = e.b.offset(key, offset), e.b.offset(copy, offset)
        memory.zero(e, target, room)
        length = e.b.helper(helpers.PROBE_READ_KERNEL_STR, target, room, e.b.address(source))
        with e.b.when(e.b.icmp("eq", length, room), likely=False):
            # The helper writes a NUL to the last byte.
            e.b.store(e.b.load(e.b.offset(source, room - 1), 8), e.b.offset(target, room - 1), 8)
    return copy
