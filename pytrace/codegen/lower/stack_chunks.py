"""Stacks in chunks (:mod:`pytrace.core.stacks.chunk_format`): keys and events have digests, frames are stored once.

The digests are those of large keys (:mod:`pytrace.codegen.lower.key_digests`), with the same random words.
"""

from __future__ import annotations

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import Memory, Operand, global_pointer
from pytrace.codegen.lower import key_digests
from pytrace.core.manifest import MapType
from pytrace.core.stacks.chunk_format import CHUNK_SIZE, FRAMES, LINK, MAP, entries
from pytrace.core.types import Stack
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import location

LOST = "chunks_full"
"""Counter of stacks of which a chunk was not stored, as the map was full."""
_LEFT, _KEY, _FULL, _CHUNK = 0, 8, 24, 32
"""Offsets of the state: number of frames that are not stored yet, digest of the last chunk, whether a chunk had no
room, and the chunk."""


def write(e: Emitter, node: nodes.Call | nodes.Identifier, flat: Operand, type_: Stack) -> Memory:
    """Store the frames of a stack that lies *flat* in memory, and write the chunked one of *type_* to memory."""
    b = e.b
    if not e.script.chunks_stacks:
        e.script.chunks_stacks = True
        size = entries(e.checked.config.max_map_keys, e.checked.config.max_stack_depth)
        layout = {"type": MapType.HASH, "key_size": LINK, "value_size": CHUNK_SIZE, "max_entries": size}
        e.module.map(MAP, layout)
    # Room for a whole chunk after the frames of a small stack.
    source, out = e.reserve(type_.header + 8 * max(type_.limit, FRAMES)), e.reserve(type_.size)
    state = e.reserve(_CHUNK + CHUNK_SIZE)
    if type_.limit < FRAMES:
        e.memory.zero(e.area(source), type_.header + 8 * FRAMES)
    e.memory.write(flat, e.area(source), flat.type)
    count = b.load(e.area(source), 32, signed=True)
    b.store(b.select(b.icmp("slt", count, 0), 0, b.select(b.icmp("sgt", count, type_.limit), type_.limit, count)),
            e.area(state + _LEFT))  # fmt: skip
    for offset in (_KEY, _KEY + 8, _FULL):
        b.store(0, e.area(state + offset))
    chunks = (type_.limit + FRAMES - 1) // FRAMES
    frames, most = source + type_.header, max(type_.limit - FRAMES, 0)
    e.loops.run(node.span, chunks, lambda inner, _index: _store_chunk(inner, frames, most, state))
    with b.when(b.truth(b.load(e.area(state + _FULL))), likely=False):
        e.counter(LOST, e.script.layout.site(node.name, location(node.span)))
    b.store(b.load(e.area(source)), e.area(out))
    for offset in (0, 8):
        b.store(b.load(e.area(state + _KEY + offset)), e.area(out + type_.header + offset))
    return Memory(e.area(out), type_)


def _store_chunk(e: Emitter, frames: int, most: int, state: int) -> None:
    """One iteration, from the outermost chunk on: digest the next one, and store it unless it is there."""
    b, chunk, key = e.b, e.area(state + _CHUNK), e.area(state + _KEY)
    left = b.load(e.area(state + _LEFT))
    with b.when(b.icmp("eq", left, 0)):
        e.loops.leave()
    start = b.sub(left, FRAMES)
    start = b.select(b.icmp("slt", start, 0), 0, start)
    b.store(start, e.area(state + _LEFT))
    for offset in (0, 8):
        b.store(b.load(b.offset(key, offset)), b.offset(chunk, offset))
    first = b.offset(e.area(frames), b.op("shl", b.at_most(start, most), 3))
    e.memory.copy(b.offset(chunk, LINK), first, 8 * FRAMES)
    key_digests.write_words(e, chunk, CHUNK_SIZE // 8, key)
    known = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(MAP), key)
    with b.when(b.is_null(known)):
        failed = b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(MAP), key, chunk, 0)
        with b.when(b.truth(failed), likely=False):
            b.store(1, e.area(state + _FULL))
