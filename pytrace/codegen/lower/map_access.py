"""Access to maps: their BPF maps and slots, keys, look-ups, insertion."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import msgspec

from pytrace.codegen.emit import weights
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.map_uses import WORD
from pytrace.codegen.emit.storage import Layout
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.module import SHARED, Module
from pytrace.codegen.ir.values import (
    I64,
    NULL,
    Memory,
    Number,
    Operand,
    Parts,
    Ptr,
    Scalar,
    global_pointer,
    pointer_parameter,
)
from pytrace.codegen.lower import key_digests
from pytrace.codegen.lower.key_digests import Text
from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import DIGEST, MAP_TYPES, SLOT_FLAG, MapType
from pytrace.core.types import Hist, LHist, TSeries, Tuple, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import MapInfo

NOEXIST = 1
"""``BPF_NOEXIST``: the update fails if the key exists."""

BUCKET_SIZE: dict[type[Type], int] = {Hist: 8, LHist: 8, TSeries: 24}
"""Bytes of one bucket of the types that are stored as separate buckets."""

BUCKET = 8
"""Bytes of the bucket number after the key of a keyed histogram or time series."""



class Key(msgspec.Struct, frozen=True):
    """A key of a BPF map in memory. *whole* is the script's key if the BPF map is keyed by digests, otherwise null.

    *texts* are the strings in it whose rest is not zeroed.
    """

    pointer: Ptr
    whole: Ptr | None = None
    texts: tuple[Text, ...] = ()


def symbol(name: str) -> str:
    """Name of a map in the ELF file."""
    return f"map_{name.removeprefix('@')}"


def keys_symbol(name: str) -> str:
    """Name of the map from digests to full keys, for a map keyed by digests."""
    return f"keys_{name.removeprefix('@')}"


def bucketed(value: Type) -> bool:
    """Whether a keyed map of this value type has a bucket number after its key."""
    return isinstance(value, Hist | LHist | TSeries)


def padded_key(info: MapInfo) -> int:
    """Bytes of a key, up to the bucket number."""
    size = info.key.size if info.key is not None else 0
    return (size + 7) & ~7


def sizes(info: MapInfo, digested: bool = False) -> tuple[int, int, int]:
    """Type, key size and value size of the BPF map of a keyed map."""
    key_size, value_size = info.key.size if info.key is not None else 0, info.value.size
    if bucketed(info.value):
        key_size, value_size = padded_key(info) + BUCKET, BUCKET_SIZE[type(info.value)]
    if digested:
        key_size = DIGEST + (BUCKET if bucketed(info.value) else 0)
    return MAP_TYPES[info.kind], max(key_size, 1), max(value_size, 1)


def declare(module: Module, layout: Layout, info: MapInfo) -> None:
    """Define a keyed map in the ELF file; unkeyed maps are slots of a data section.

    A double-buffered map is an array of one inner map, which the runtime swaps with the other one.
    """
    if info.key is None:
        return
    twice, digested = info.name in layout.generations, info.name in layout.digested
    map_type, key_size, value_size = (MapType.ARRAY_OF_MAPS, 4, 4) if twice else sizes(info, digested)
    module.map(
        symbol(info.name),
        {
            "type": map_type,
            "key_size": key_size,
            "value_size": value_size,
            "max_entries": 1 if twice else info.max_entries,
        },
    )
    if digested:
        full_size = padded_key(info) if bucketed(info.value) else info.key.size
        # Full keys are kept when the map is cleared, until half of these entries may be in use.
        entries = info.max_entries * (2 if info.name in layout.emptied else 1)
        attributes = {"type": MapType.HASH, "key_size": DIGEST, "value_size": full_size, "max_entries": entries}
        module.map(keys_symbol(info.name), attributes)


# ---------------------------------------------------------------------------------------------- names and keys


def reference(node: nodes.Expr) -> tuple[str, tuple[nodes.Expr, ...]]:
    """Map name and key expressions of a map node."""
    if isinstance(node, nodes.MapRef):
        return node.name, ()
    if isinstance(node, nodes.MapIndex):
        return node.map.name, node.keys
    raise InternalError(f"{type(node).__name__} is no map")


def info_of(e: Emitter, node: nodes.Expr) -> tuple[MapInfo, tuple[nodes.Expr, ...]]:
    """The map and the key expressions of a map node."""
    name, keys = reference(node)
    return e.checked.maps[name], keys


def key_pointer(e: Emitter, info: MapInfo, keys: Sequence[nodes.Expr]) -> Key:
    """The padded key in memory, valid until the end of the statement."""
    if info.key is None:
        raise InternalError(f"{info.name} has no key")
    operand = key_operand(e, info.key, keys)
    if info.name not in e.script.layout.digested:
        return Key(key_of(e, info.key, operand, info.key.size))
    # The digest must match the key: a variable can be used in place, but not memory that other programs may modify.
    if len(keys) == 1 and isinstance(keys[0], nodes.Variable) and info.key.size % WORD == 0:
        full_key, digest = key_of(e, info.key, operand, info.key.size), e.temporary(DIGEST)
        key_digests.write(e, info.key, full_key, digest)
        return Key(digest, full_key)
    return digested(e, info, operand, DIGEST)


def digested(e: Emitter, info: MapInfo, operand: Operand, size: int) -> Key:
    """A key and its digest, in memory of *size* bytes."""
    if info.key is None:
        raise InternalError("no key")
    room = padded_key(info)
    full_key, digest = e.temporary(room + key_digests.SLACK), e.temporary(size)
    texts = key_digests.write_key(e, operand, full_key, info.key)
    for offset in range(info.key.size, room):
        # Only now, as the slack of a string may overlap the padding.
        e.b.store(0, e.b.offset(full_key, offset), 8)
    key_digests.write(e, info.key, full_key, digest)
    return Key(digest, full_key, texts)


def padded(e: Emitter, info: MapInfo, operand: Operand, more: int) -> Ptr:
    """A copy of a key, padded to 8 bytes, with room for *more* bytes."""
    if info.key is None:
        raise InternalError("no key")
    room = padded_key(info)
    pointer = e.temporary(room + more)
    if room != info.key.size:
        e.b.store(0, e.b.offset(pointer, room - 8))
    e.memory.write(operand, pointer, info.key)
    return pointer


def key_operand(e: Emitter, _key: Type, keys: Sequence[nodes.Expr]) -> Operand:
    """Key expressions as one value; several become a tuple."""
    members = tuple(e.in_order(keys))
    if len(members) == 1:
        return members[0]
    return Parts(Tuple(tuple(item.type for item in members)), members)


def key_of(e: Emitter, type_: Type, operand: Operand, room: int) -> Ptr:
    """The key in memory; a value that is already in memory and padded is used in place."""
    if isinstance(operand, Memory) and operand.type == type_ and room == type_.size:
        return operand.pointer
    pointer = e.temporary(max(room, 1))
    if type_.size == 0:
        e.b.store(0, pointer, 8)
        return pointer
    e.memory.write(operand, pointer, type_)
    return pointer


def map_symbol(e: Emitter, info: MapInfo) -> Ptr:
    """The map as a helper argument: for a double-buffered map, the current buffer."""
    outer = global_pointer(symbol(info.name))
    if info.name not in e.script.layout.generations:
        return outer
    buffer = e.current_maps.get(info.name)
    if buffer is None:
        with e.b.at_prologue():
            buffer = e.b.helper(helpers.MAP_LOOKUP_ELEM, outer, e.module.constant(bytes(4)))
            # Entry 0 always exists, but the verifier does not know that.
            with e.b.unlikely(e.b.is_null(buffer), symbol(info.name), when=True):
                pass
        e.current_maps[info.name] = buffer
    return buffer


def generation(e: Emitter, info: MapInfo) -> Number:
    """Offset of the current buffer of an unkeyed map."""
    size = e.script.layout.generation(info)
    if not size:
        return 0
    bit = e.b.op("and", e.b.load(e.b.offset(global_pointer(SHARED), e.script.layout.selectors[info.name])), 1)
    return e.b.opaque(e.b.mul(e.b.opaque(bit), size))


def lookup(e: Emitter, info: MapInfo, key: Key) -> Ptr:
    """Pointer to the value of a key, or null.

    The verifier inlines each look-up by patching, which moves all following instructions each time, so a long program
    calls the helper in one function per map.
    """
    if e.program.plan.long and info.name not in e.script.layout.generations:
        return e.b.pointer(e.b.call(_lookup_function(e, info), [key.pointer]))
    return e.b.helper(helpers.MAP_LOOKUP_ELEM, map_symbol(e, info), key.pointer)


def _lookup_function(e: Emitter, info: MapInfo) -> str:
    program = e.program
    name = program.lookup_functions.get(info.name)
    if name is None:
        name = program.lookup_functions[info.name] = program.name("lookup")
        b = e.module.function(name, ("*key",), program.unit.span)
        b.ret(b.address(b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(symbol(info.name)), pointer_parameter("key"))))
    return name


def when_found(e: Emitter, pointer: Ptr, found: Callable[[], None], missing: Callable[[], None]) -> None:
    """Branch on a look-up's result; the likely path is laid out first."""
    present, absent, done = e.b.block(), e.b.block(), e.b.block()
    e.b.branch(e.b.is_null(pointer), absent, present, likely=False)
    for block, action in ((present, found), (absent, missing)):
        e.b.start(block)
        action()
        e.b.jump(done)
    e.b.start(done)


# ---------------------------------------------------------------------------------------------- slots


def slot(e: Emitter, info: MapInfo) -> Ptr:
    """The slot of an unkeyed map (this CPU's copy of an aggregate): written flag, then the value."""
    offset = e.script.layout.slots[info.name]
    start = e.b.offset(e.base if info.value.aggregate else global_pointer(SHARED), offset)
    now = generation(e, info)
    return start if now == 0 else e.b.offset(start, now)


def slot_value(e: Emitter, info: MapInfo) -> Ptr:
    """Address of the value of an unkeyed map."""
    return e.b.offset(slot(e, info), SLOT_FLAG)


def mark_written(e: Emitter, info: MapInfo) -> None:
    """Set the written flag."""
    e.b.store(1, slot(e, info))


# ---------------------------------------------------------------------------------------------- elements


def read_key(e: Emitter, node: nodes.Node, info: MapInfo, key: Key) -> Operand:
    """The value of a key; zero if it is missing, which is reported only with ``-k``."""
    weights.take(e, info.name, key.pointer)
    pointer = lookup(e, info, key)
    present, missing, done = e.b.block(), e.b.block(), e.b.block()
    e.b.branch(e.b.is_null(pointer), missing, present, likely=False)
    e.b.start(present)
    value: Number = e.memory.load(pointer, info.value).value if info.value.scalar else 0
    e.b.jump(done)
    e.b.start(missing)
    if e.script.options.checks > 1:
        e.events.failed_call(node, "bpf_map_lookup_elem", 0, info.name)
    missing_end = e.b.current
    e.b.jump(done)
    e.b.start(done)
    if info.value.scalar:
        return Scalar(e.b.phi([(value, present), (0, missing_end)]), info.value)
    zeros = e.module.zeros(info.value.size)
    operand = Memory(e.b.phi_pointer([(pointer, present), (zeros, missing_end)]), info.value)
    # While a program sleeps, the element may be deleted and its memory used for another one.
    return e.memory.copied(operand) if e.foreign.may_sleep() else operand


def store_key(e: Emitter, node: nodes.Node, info: MapInfo, key: Key, operand: Operand) -> None:
    """Store the value of a key; scalars of an existing key are stored in place, unless keys are mostly missing."""
    weights.keep(e, info.name, key.pointer)
    if not info.value.scalar:
        stored = operand if isinstance(operand, Memory) and operand.type == info.value else None
        pointer = stored.pointer if stored is not None else e.temporary(info.value.size)
        if stored is None:
            e.memory.write(operand, pointer, info.value)
        if key.whole is None:
            update(e, node, info, key, pointer)
        else:
            _update_either(e, node, info, key, pointer)
        return
    value = e.memory.number(operand)
    if info.name in e.program.inserted and key.whole is None:
        _insert(e, node, info, key, value)
        return
    place = lookup(e, info, key)
    when_found(
        e,
        place,
        lambda: e.memory.store(place, value, info.value),
        lambda: _insert(e, node, info, key, value),
    )


def _update_either(e: Emitter, node: nodes.Node, info: MapInfo, key: Key, value: Ptr) -> None:
    """Replace the value of a key, or insert it (in a map keyed by digests, with its full key)."""
    when_found(
        e,
        lookup(e, info, key),
        lambda: update(e, node, info, Key(key.pointer), value),
        lambda: update(e, node, info, key, value),
    )


def _insert(e: Emitter, node: nodes.Node, info: MapInfo, key: Key, value: Number) -> None:
    with e.temporaries():
        pointer = e.temporary(8)
        e.memory.store(pointer, value, info.value)
        update(e, node, info, key, pointer)


def insert(
    e: Emitter, node: nodes.Node, info: MapInfo, key: Key, first: Ptr, present: Callable[[Ptr], None]
) -> None:
    """Insert the value at *first*; if another program was faster, ``present(place)`` updates the value it stored."""
    full, done = e.b.block(), e.b.block()
    _keep_whole(e, node, info, key, done)
    error = _put(e, map_symbol(e, info), key.pointer, first, NOEXIST)
    e.b.jump_unless(e.b.icmp("slt", error, 0), done, likely=False)
    e.b.jump_unless(e.b.icmp("eq", error, -errno.EEXIST), full)
    place = lookup(e, info, key)
    e.b.jump_if(e.b.is_null(place), full, likely=False)
    present(place)
    e.b.jump(done)
    e.b.start(full)
    _dropped(e, node, info, error)
    e.b.jump(done)
    e.b.start(done)


def _put(e: Emitter, which: Ptr, key: Ptr, value: Ptr, flags: int) -> Number:
    """Call the update helper. Returns its result.

    Before Linux 6.4 the verifier replaces the helper by a function whose error code is only 32 bits wide.
    """
    return e.b.fit(e.b.helper(helpers.MAP_UPDATE_ELEM, which, key, value, flags), 32, signed=True)


def _keep_whole(e: Emitter, node: nodes.Node, info: MapInfo, key: Key, dropped: Block) -> None:
    """Insert the full key of a digest before the digest itself; on failure continue at *dropped*.

    So every digest in the map has its key. An existing full key is that of an earlier entry, or of another program that
    is inserting the same digest.
    """
    if key.whole is None:
        return
    with e.temporaries():
        full_key = key.whole
        if key.texts:
            full_key = key_digests.cleared(e, full_key, padded_key(info), key.texts)
        keys = global_pointer(keys_symbol(info.name))
        error = _put(e, keys, key.pointer, full_key, NOEXIST)
    on = e.b.block()
    e.b.jump_unless(e.b.icmp("slt", error, 0), on, likely=False)
    e.b.jump_if(e.b.icmp("eq", error, -errno.EEXIST), on, likely=True)
    _dropped(e, node, info, error)
    e.b.jump(dropped)
    e.b.start(on)


def update(e: Emitter, node: nodes.Node, info: MapInfo, key: Key, value: Ptr) -> None:
    """Insert or replace; a failure is counted for the map and reported."""
    done = e.b.block()
    _keep_whole(e, node, info, key, done)
    error = _put(e, map_symbol(e, info), key.pointer, value, 0)
    e.b.jump_unless(e.b.icmp("slt", error, 0), done, likely=False)
    _dropped(e, node, info, error)
    e.b.jump(done)
    e.b.start(done)


def _dropped(e: Emitter, node: nodes.Node, info: MapInfo, error: Number) -> None:
    """Count an update that the kernel rejected with the code *error*; each CPU reports the first one for the map."""
    counter = ("map_full", e.script.map_indexes[info.name])
    if e.script.options.checks:
        e.events.counted_failure(node, "bpf_map_update_elem", error, info.name, counter, most=1)
    else:
        e.counter(*counter)


def length(e: Emitter, info: MapInfo) -> I64:
    """Number of entries."""
    if info.key is None:
        return e.b.load(slot(e, info))
    callback = e.script.counting_callback()
    return e.b.helper(helpers.FOR_EACH_MAP_ELEM, map_symbol(e, info), callback, NULL, 0)
