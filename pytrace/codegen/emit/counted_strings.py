"""Strings of a length that is told: of ``str(ADDRESS, LENGTH)``, and those of Go, which have no NUL."""

from __future__ import annotations

from pytrace.codegen.emit import memory, user_memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.values import I64, Made, Number, Ptr
from pytrace.core.types import AddressSpace, String
from pytrace.frontend.syntax import nodes


def read(
    e: Emitter, node: nodes.Node, type_: String, address: Number, length: Number, space: AddressSpace
) -> Made:
    """At most *length* characters; a requested limit does not count as truncation. Failed reads are those of *node*.

    Truncation is counted if *length* exceeds the capacity of a string.
    """
    length = e.b.at_most(length, type_.capacity)
    helper = memory.read_helper(memory.resolve_space(e, space), string=True)

    def write(pointer: Ptr, align: int) -> None:
        full, part, done = e.b.block(), e.b.block(), e.b.block()
        e.b.branch(e.b.icmp("eq", length, type_.capacity), full, part, likely=False)
        e.b.start(full)
        with e.at_node(node):
            memory.read_string(e, pointer, type_.capacity, address, space, align)
        e.b.jump(done)
        e.b.start(part)
        memory.zero(e, pointer, type_.capacity, align)
        room = e.b.at_most(e.b.add(length, 1), type_.capacity)
        with e.at_node(node):
            user_memory.read(e, helper, pointer, room, address, type_.capacity)
        e.b.jump(done)
        e.b.start(done)

    def tail(pointer: Ptr, limit: int) -> I64:
        most = min(limit, type_.capacity) + 1
        room = e.b.at_most(e.b.add(length, 1), most)
        with e.at_node(node):
            return memory.text_length(e, user_memory.read(e, helper, pointer, room, address, most))

    return Made(type_, write, tail, reads=True)
