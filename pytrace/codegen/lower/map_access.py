"""Access to maps: their BPF maps and slots, keys and their digests, look-ups, insertion, weights of values.

A hit of a sampled program stands for several (:mod:`pytrace.codegen.emit.map_uses`): its weight is the one that was in
effect when it was hit. A program that goes on with the value that a sampled one stored has the weight of that value,
which is in a second map with the same key.

Maps with large keys are keyed by digests: two sums of products of the key's words and random words.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable, Sequence

import msgspec

from pytrace.codegen.emit import memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.map_uses import LEAST, WORD, Words, weights_symbol, words_of
from pytrace.codegen.emit.program import Part, Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block, Builder
from pytrace.codegen.ir.module import SHARED
from pytrace.codegen.ir.values import (
    I1,
    I64,
    NULL,
    Made,
    Memory,
    Number,
    Operand,
    Parts,
    Ptr,
    Scalar,
    global_pointer,
    number_parameter,
    pointer_parameter,
)
from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import DIGEST, MAP_TYPES, SLOT_FLAG
from pytrace.core.types import Hist, LHist, TSeries, Tuple, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import MapInfo

BLOCK = 16
"""Words per iteration of the loop."""

FEW = 4
"""Words between two checks for the end of the used part, before the blocks."""

LOWEST, _HIGHEST = 0x0101010101010101, -0x7F7F7F7F7F7F7F80
"""Masks of the lowest and of the highest bit of each byte of a word."""


def _digest_function(script: Script, key: Type) -> str:
    """The function that digests keys of a type, shared by all programs."""
    words = words_of(key)
    name = script.digests.get(words)
    if name is None:
        name = script.digests[words] = f"digest_{len(script.digests)}"
        digest = _Digest(script, name)
        for part in words:
            digest.add(part)
        digest.finish()
    return name


class _Sums:
    """The two sums in the function under construction: *key* is the address of the key, *places* those of the sums."""

    def __init__(self, script: Script, b: Builder, key: Ptr, places: tuple[Ptr, Ptr]) -> None:
        self.b, self.key, self.places = b, key, places
        self.random = global_pointer(SHARED, script.layout.key_words)

    def add(self, start: int, distance: Number = 0) -> I64:
        """Add the word *start* words and *distance* bytes from the start of the key."""
        b = self.b
        word = b.load(b.offset(b.offset(self.key, distance), start * WORD), again=True)
        high = b.op("lshr", word, 32)
        random = b.offset(self.random, distance if distance == 0 else b.mul(distance, 2))
        for number, place in enumerate(self.places, start):
            # Loaded again: LLVM would otherwise load many words in advance and keep the random words on the stack.
            first = b.add(word, b.load(b.offset(random, 2 * number * WORD), again=True))
            second = b.add(high, b.load(b.offset(random, (2 * number + 1) * WORD), again=True))
            b.store(b.add(b.load(place), b.mul(first, second)), place)
        return word

    def add_all(self, start: int, count: int, distance: Number = 0) -> I64:
        """Add *count* words. Returns a number other than 0 if one of them contains a NUL byte."""
        b, marks = self.b, I64("0")
        for number in range(start, start + count):
            word = self.add(number, distance)
            zero = b.op("and", b.sub(word, LOWEST), b.op("xor", word, -1))
            marks = b.op("or", marks, zero)
        return b.op("and", marks, _HIGHEST)


class _Digest:
    """Emits one digest function."""

    def __init__(self, script: Script, name: str) -> None:
        self.script, self.name = script, name
        self.b = b = script.module.function(name, ("*key", "*digest"), None)
        self.sums = _Sums(script, b, pointer_parameter("key"), (b.register(), b.register()))
        for place in self.sums.places:
            b.store(0, place)
        self._loops = 0

    def add(self, part: Words) -> None:
        """Add the used words of *part*."""
        b, count = self.b, part.stop - part.start
        done = b.block()
        used: Number = count
        if part.frame:
            # A stack that could not be walked has a negative number of frames.
            used = b.mul(b.load(b.offset(self.sums.key, (part.start - 1) * WORD), 32, signed=True), part.frame)
        first = min(count, count % BLOCK + BLOCK)
        for number in range(0, first, FEW):
            if part.frame:
                b.jump_if(b.icmp("sle", used, number), done)
            ended = self.sums.add_all(part.start + number, min(FEW, first - number))
            if part.text:
                b.jump_if(b.truth(ended), done)
        blocks = (count - first) // BLOCK
        if blocks:
            rounds: Number = blocks
            if part.frame:
                b.jump_if(b.icmp("sle", used, first), done)
                rounds = b.op("lshr", b.add(used, BLOCK - 1 - first), BLOCK.bit_length() - 1)
            each = self._call if self.script.kernel.feature("bpf_loop") else self._follow
            each(part.start + first, blocks, rounds, ends=part.text)
        b.jump(done)
        b.start(done)

    def add_all(self, count: int) -> None:
        """Add words without a loop."""
        b = self.b
        for number in range(count):
            self.sums.add(number)
            for place in self.sums.places:
                # Or else LLVM keeps many products on the stack before it adds them.
                b.store(b.opaque(b.load(place)), place)

    def finish(self) -> None:
        """Store the first sum, and return the second one from the function."""
        first, second = self.sums.places
        self.b.store(self.b.load(first), pointer_parameter("digest"))
        self.b.ret(self.b.load(second))

    def _call(self, start: int, blocks: int, rounds: Number, *, ends: bool) -> None:
        """Add blocks with ``bpf_loop``, so that the verifier follows only one of them."""
        b, places = self.b, self.sums.places
        self._loops += 1
        callback = f"{self.name}_blocks{self._loops}"
        frame = b.alloca(3 * WORD)
        b.store_pointer(self.sums.key, frame)
        for index, place in enumerate(places, 1):
            b.store(b.load(place), b.offset(frame, index * WORD))
        b.helper(helpers.LOOP, rounds, global_pointer(callback), frame, 0)
        for index, place in enumerate(places, 1):
            b.store(b.load(b.offset(frame, index * WORD)), place)
        self._callback(callback, start, blocks, ends=ends)

    def _callback(self, name: str, start: int, blocks: int, *, ends: bool) -> None:
        b, frame = self.script.module.function(name, ("index", "*frame"), None), pointer_parameter("frame")
        index = b.opaque(number_parameter("index"))
        with b.when(b.icmp("ult", index, blocks), likely=True):
            sums = _Sums(self.script, b, b.load_pointer(frame), (b.register(), b.register()))
            for number, place in enumerate(sums.places, 1):
                b.store(b.load(b.offset(frame, number * WORD)), place)
            ended = sums.add_all(start, BLOCK, b.mul(index, BLOCK * WORD))
            for number, place in enumerate(sums.places, 1):
                b.store(b.load(place), b.offset(frame, number * WORD))
            b.ret(b.number(b.truth(ended)) if ends else 0)
        b.ret(1)

    def _follow(self, start: int, blocks: int, rounds: Number, *, ends: bool) -> None:
        """Add blocks in an inline loop, each iteration of which the verifier follows."""
        b, index = self.b, self.b.register()
        b.store(0, index)
        head, done = b.block(), b.block()
        b.jump(head)
        b.start(head)
        # Opaque, so that LLVM neither unrolls the loop nor compares addresses in place of numbers.
        current = b.opaque(b.load(index))
        b.jump_unless(b.icmp("ult", current, rounds), done)
        b.jump_unless(b.icmp("ult", b.opaque(current), blocks), done)
        ended = self.sums.add_all(start, BLOCK, b.mul(current, BLOCK * WORD))
        b.store(b.add(current, 1), index)
        if ends:
            b.branch(b.truth(ended), done, head)
        else:
            b.jump(head)
        b.start(done)


# ---------------------------------------------------------------------------------------------- keys in memory

SLACK = BLOCK * WORD
"""Bytes that are zeroed after the end of a string, as a digest may include them. A key needs room for them."""

Text = tuple[int, int]
"""Offset and size of a string whose rest is not zeroed."""


def _partial_reader(operand: Operand, type_: Type, offset: int) -> Callable[[Ptr, int], None] | None:
    """The function that reads a string of a key without zeroing all of its rest; None if it is read in full."""
    if not isinstance(operand, Made) or operand.type != type_ or type_.size <= LEAST:
        return None
    return None if offset % WORD or type_.size % WORD or sys.byteorder != "little" else operand.only


_NOEXIST = 1
"""``BPF_NOEXIST``: the update fails if the key exists."""

_BUCKET_SIZE: dict[type[Type], int] = {Hist: 8, LHist: 8, TSeries: 24}
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
    return "map_" + re.sub(r"\W", lambda match: f"_{ord(match.group()):x}_", name.removeprefix("@"))


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
        key_size, value_size = padded_key(info) + BUCKET, _BUCKET_SIZE[type(info.value)]
    if digested:
        key_size = DIGEST + (BUCKET if bucketed(info.value) else 0)
    return MAP_TYPES[info.kind], max(key_size, 1), max(value_size, 1)


# ---------------------------------------------------------------------------------------------- names and keys


class Weights(Part):
    """The weight of a hit, and the weights of a map's values."""

    def scaled(self, sample: Number) -> Number:
        """A sample times the weight of the hit."""
        if not self.program.weighted:
            return sample
        weight = self.b.load(self.e.weight)
        return weight if sample == 1 else self.b.mul(sample, weight)

    def keep(self, name: str, key: Ptr) -> None:
        """A value of the map is stored: store its weight as well."""
        if name in self.program.storing:
            with self.b.when(self._sampling(), likely=False):
                self.b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(weights_symbol(name)), key, self.e.weight, 0)

    def take(self, name: str, key: Ptr, *, delete: bool = False) -> None:
        """A value of the map is read or deleted: go on with its weight."""
        if name not in self.program.reading:
            return
        weights = global_pointer(weights_symbol(name))
        with self.b.when(self._sampling(), likely=False):
            place = self.b.helper(helpers.MAP_LOOKUP_ELEM, weights, key)
            with self.b.unless(self.b.is_null(place)):
                self.b.store(self.b.load(place), self.e.weight)
                if delete:
                    self.b.helper(helpers.MAP_DELETE_ELEM, weights, key)

    def _sampling(self) -> I1:
        """Whether a program of the run has been sampled."""
        return self.b.truth(self.b.load(self.b.offset(global_pointer(SHARED), self.script.layout.weights or 0)))


class KeyDigests(Part):
    """Writes large keys and their digests."""

    def write(self, key: Type, source: Ptr, target: Ptr) -> None:
        """Write the digest of the key at *source* to *target*."""
        # A function without a used result would return an arbitrary register, and the verifier rejects a stack address.
        second = self.b.call(_digest_function(self.script, key), [source, target])
        self.b.store(second, self.b.offset(target, WORD))

    def write_words(self, source: Ptr, count: int, target: Ptr) -> None:
        """Write the digest of *count* words, all of which are used, to *target*."""
        words = (Words(0, count),)
        name = self.script.digests.get(words)
        if name is None:
            name = self.script.digests[words] = f"digest_{len(self.script.digests)}"
            digest = _Digest(self.script, name)
            digest.add_all(count)
            digest.finish()
        self.b.store(self.b.call(name, [source, target]), self.b.offset(target, WORD))

    def write_key(self, operand: Operand, pointer: Ptr, type_: Type) -> tuple[Text, ...]:
        """Write a key and :data:`SLACK` bytes after it. Returns the strings whose rest is not zeroed.

        Digests do not include it: it is zeroed only in the copy of a key that is stored, once for each new key.
        """
        read = _partial_reader(operand, type_, 0)
        if read is not None:
            read(pointer, SLACK)
            return ((0, type_.size),)
        if not isinstance(operand, Parts) or memory.has_gaps(type_):
            self.e.memory.write(operand, pointer, type_)
            return ()
        texts: list[Text] = []
        members, offsets, _ = memory.members_of(type_)
        for index, (member, offset) in enumerate(zip(members, offsets, strict=True)):
            part = self.e.memory.member_of(operand, memory.source_index(operand.type, type_, index))
            read = _partial_reader(part, member, offset)
            if read is not None:
                # The members after the string are written later.
                read(self.b.offset(pointer, offset), SLACK)
                texts.append((offset, member.size))
            else:
                self.e.memory.write(part, self.b.offset(pointer, offset), member, memory.natural(8, offset))
        return tuple(texts)

    def cleared(self, key: Ptr, size: int, texts: tuple[Text, ...]) -> Ptr:
        """A copy of a key of *size* bytes in which the rest of strings is zeroed."""
        copy, end = self.e.temporary(size), 0
        for offset, room in (*texts, (size, 0)):
            self.e.memory.copy(self.b.offset(copy, end), self.b.offset(key, end), offset - end)
            end = offset + room
        for offset, room in texts:
            source, target = self.b.offset(key, offset), self.b.offset(copy, offset)
            self.e.memory.zero(target, room)
            length = self.b.helper(helpers.PROBE_READ_KERNEL_STR, target, room, self.b.address(source))
            with self.b.when(self.b.icmp("eq", length, room), likely=False):
                # The helper writes a NUL to the last byte.
                self.b.store(self.b.load(self.b.offset(source, room - 1), 8), self.b.offset(target, room - 1), 8)
        return copy


class MapStorage(Part):
    """Keys, look-ups and insertion."""

    def __init__(self, e: Emitter) -> None:
        super().__init__(e)
        self.digests = KeyDigests(e)
        self.weights = Weights(e)

    def info_of(self, node: nodes.Expr) -> tuple[MapInfo, tuple[nodes.Expr, ...]]:
        """The map and the key expressions of a map node."""
        if isinstance(node, nodes.MapRef):
            return self.checked.maps[node.name], ()
        if isinstance(node, nodes.MapIndex):
            return self.checked.maps[node.map.name], node.keys
        raise InternalError(f"{type(node).__name__} is no map")

    def key_pointer(self, info: MapInfo, keys: Sequence[nodes.Expr]) -> Key:
        """The padded key in memory, valid until the end of the statement."""
        if info.key is None:
            raise InternalError(f"{info.name} has no key")
        operand = self.key_operand(keys)
        if info.name not in self.script.layout.digested:
            return Key(self.key_of(info.key, operand, info.key.size))
        # The digest must match the key: a variable can be used in place, but not memory that other programs may modify.
        if len(keys) == 1 and isinstance(keys[0], nodes.Variable) and info.key.size % WORD == 0:
            full_key, digest = self.key_of(info.key, operand, info.key.size), self.e.temporary(DIGEST)
            self.digests.write(info.key, full_key, digest)
            return Key(digest, full_key)
        return self.digested(info, operand, DIGEST)

    def digested(self, info: MapInfo, operand: Operand, size: int) -> Key:
        """A key and its digest, in memory of *size* bytes."""
        if info.key is None:
            raise InternalError("no key")
        room = padded_key(info)
        full_key, digest = self.e.temporary(room + SLACK), self.e.temporary(size)
        texts = self.digests.write_key(operand, full_key, info.key)
        for offset in range(info.key.size, room):
            # Only now, as the slack of a string may overlap the padding.
            self.b.store(0, self.b.offset(full_key, offset), 8)
        self.digests.write(info.key, full_key, digest)
        return Key(digest, full_key, texts)

    def padded(self, info: MapInfo, operand: Operand, more: int) -> Ptr:
        """A copy of a key, padded to 8 bytes, with room for *more* bytes."""
        if info.key is None:
            raise InternalError("no key")
        room = padded_key(info)
        pointer = self.e.temporary(room + more)
        if room != info.key.size:
            self.b.store(0, self.b.offset(pointer, room - 8))
        self.e.memory.write(operand, pointer, info.key)
        return pointer

    def key_operand(self, keys: Sequence[nodes.Expr]) -> Operand:
        """Key expressions as one value; several become a tuple."""
        members = tuple(self.e.in_order(keys))
        if len(members) == 1:
            return members[0]
        return Parts(Tuple(tuple(item.type for item in members)), members)

    def key_of(self, type_: Type, operand: Operand, room: int) -> Ptr:
        """The key in memory; a value that is already in memory and padded is used in place."""
        if isinstance(operand, Memory) and operand.type == type_ and room == type_.size:
            return operand.pointer
        pointer = self.e.temporary(max(room, 1))
        if type_.size == 0:
            self.b.store(0, pointer, 8)
            return pointer
        self.e.memory.write(operand, pointer, type_)
        return pointer

    def map_symbol(self, info: MapInfo) -> Ptr:
        """The map as a helper argument: for a double-buffered map, the current buffer."""
        outer = global_pointer(symbol(info.name))
        if info.name not in self.script.layout.generations:
            return outer
        buffer = self.e.current_maps.get(info.name)
        if buffer is None:
            with self.b.at_prologue():
                buffer = self.b.helper(helpers.MAP_LOOKUP_ELEM, outer, self.module.constant(bytes(4)))
                # Entry 0 always exists, but the verifier does not know that.
                with self.b.unlikely(self.b.is_null(buffer), symbol(info.name), when=True):
                    pass
            self.e.current_maps[info.name] = buffer
        return buffer

    def generation(self, info: MapInfo) -> Number:
        """Offset of the current buffer of an unkeyed map."""
        size = self.script.layout.generation(info)
        if not size:
            return 0
        bit = self.b.op(
            "and", self.b.load(self.b.offset(global_pointer(SHARED), self.script.layout.selectors[info.name])), 1
        )
        return self.b.opaque(self.b.mul(self.b.opaque(bit), size))

    def lookup(self, info: MapInfo, key: Key) -> Ptr:
        """Pointer to the value of a key, or null.

        The verifier inlines each look-up by patching, which moves all following instructions each time, so a
        long program calls the helper in one function per map.
        """
        if self.program.plan.long and info.name not in self.script.layout.generations:
            return self.b.pointer(self.b.call(self._lookup_function(info), [key.pointer]))
        return self.b.helper(helpers.MAP_LOOKUP_ELEM, self.map_symbol(info), key.pointer)

    def _lookup_function(self, info: MapInfo) -> str:
        program = self.program
        name = program.lookup_functions.get(info.name)
        if name is None:
            name = program.lookup_functions[info.name] = program.name("lookup")
            b = self.module.function(name, ("*key",), program.unit.span)
            b.ret(
                b.address(
                    b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(symbol(info.name)), pointer_parameter("key"))
                )
            )
        return name

    def when_found(self, pointer: Ptr, found: Callable[[], None], missing: Callable[[], None]) -> None:
        """Branch on a look-up's result; the likely path is laid out first."""
        present, absent, done = self.b.block(), self.b.block(), self.b.block()
        self.b.branch(self.b.is_null(pointer), absent, present, likely=False)
        for block, action in ((present, found), (absent, missing)):
            self.b.start(block)
            action()
            self.b.jump(done)
        self.b.start(done)

    # ---------------------------------------------------------------------------------------------- slots

    def slot(self, info: MapInfo) -> Ptr:
        """The slot of an unkeyed map (this CPU's copy of an aggregate): written flag, then the value."""
        offset = self.script.layout.slots[info.name]
        start = self.b.offset(self.e.base if info.value.aggregate else global_pointer(SHARED), offset)
        now = self.generation(info)
        return start if now == 0 else self.b.offset(start, now)

    def slot_value(self, info: MapInfo) -> Ptr:
        """Address of the value of an unkeyed map."""
        return self.b.offset(self.slot(info), SLOT_FLAG)

    def mark_written(self, info: MapInfo) -> None:
        """Set the written flag."""
        self.b.store(1, self.slot(info))

    # ---------------------------------------------------------------------------------------------- elements

    def read_key(self, node: nodes.Node, info: MapInfo, key: Key) -> Operand:
        """The value of a key; zero if it is missing, which is reported only with ``-k``."""
        self.weights.take(info.name, key.pointer)
        pointer = self.lookup(info, key)
        present, missing, done = self.b.block(), self.b.block(), self.b.block()
        self.b.branch(self.b.is_null(pointer), missing, present, likely=False)
        self.b.start(present)
        value: Number = self.e.memory.load(pointer, info.value).value if info.value.scalar else 0
        self.b.jump(done)
        self.b.start(missing)
        if self.script.options.checks > 1:
            self.e.events.failed_call(node, "bpf_map_lookup_elem", 0, info.name)
        missing_end = self.b.current
        self.b.jump(done)
        self.b.start(done)
        if info.value.scalar:
            return Scalar(self.b.phi([(value, present), (0, missing_end)]), info.value)
        zeros = self.module.zeros(info.value.size)
        operand = Memory(self.b.phi_pointer([(pointer, present), (zeros, missing_end)]), info.value)
        # While a program sleeps, the element may be deleted and its memory used for another one.
        return self.e.memory.copied(operand) if self.e.foreign.may_sleep() else operand

    def store_key(self, node: nodes.Node, info: MapInfo, key: Key, operand: Operand) -> None:
        """Store the value of a key; scalars of an existing key are stored in place, unless keys are mostly missing."""
        self.weights.keep(info.name, key.pointer)
        if not info.value.scalar:
            stored = operand if isinstance(operand, Memory) and operand.type == info.value else None
            pointer = stored.pointer if stored is not None else self.e.temporary(info.value.size)
            if stored is None:
                self.e.memory.write(operand, pointer, info.value)
            if key.whole is None:
                self.update(node, info, key, pointer)
            else:
                self._update_either(node, info, key, pointer)
            return
        value = self.e.memory.number(operand)
        if info.name in self.program.inserted and key.whole is None:
            self._insert(node, info, key, value)
            return
        place = self.lookup(info, key)
        self.when_found(
            place,
            lambda: self.e.memory.store(place, value, info.value),
            lambda: self._insert(node, info, key, value),
        )

    def _update_either(self, node: nodes.Node, info: MapInfo, key: Key, value: Ptr) -> None:
        """Replace the value of a key, or insert it (in a map keyed by digests, with its full key)."""
        self.when_found(
            self.lookup(info, key),
            lambda: self.update(node, info, Key(key.pointer), value),
            lambda: self.update(node, info, key, value),
        )

    def _insert(self, node: nodes.Node, info: MapInfo, key: Key, value: Number) -> None:
        with self.e.temporaries():
            pointer = self.e.temporary(8)
            self.e.memory.store(pointer, value, info.value)
            self.update(node, info, key, pointer)

    def insert(self, node: nodes.Node, info: MapInfo, key: Key, first: Ptr, present: Callable[[Ptr], None]) -> None:
        """Insert the value at *first*; if another program was faster, ``present(place)`` updates the value it
        stored.
        """
        full, done = self.b.block(), self.b.block()
        self._keep_whole(node, info, key, done)
        error = self._put(self.map_symbol(info), key.pointer, first, _NOEXIST)
        self.b.jump_unless(self.b.icmp("slt", error, 0), done, likely=False)
        self.b.jump_unless(self.b.icmp("eq", error, -errno.EEXIST), full)
        place = self.lookup(info, key)
        self.b.jump_if(self.b.is_null(place), full, likely=False)
        present(place)
        self.b.jump(done)
        self.b.start(full)
        self._dropped(node, info, error)
        self.b.jump(done)
        self.b.start(done)

    def _put(self, which: Ptr, key: Ptr, value: Ptr, flags: int) -> Number:
        """Call the update helper. Returns its result.

        Before Linux 6.4 the verifier replaces the helper by a function whose error code is only 32 bits wide.
        """
        return self.b.fit(self.b.helper(helpers.MAP_UPDATE_ELEM, which, key, value, flags), 32, signed=True)

    def _keep_whole(self, node: nodes.Node, info: MapInfo, key: Key, dropped: Block) -> None:
        """Insert the full key of a digest before the digest itself; on failure continue at *dropped*.

        So every digest in the map has its key. An existing full key is that of an earlier entry, or of another
        program that is inserting the same digest.
        """
        if key.whole is None:
            return
        with self.e.temporaries():
            full_key = key.whole
            if key.texts:
                full_key = self.digests.cleared(full_key, padded_key(info), key.texts)
            keys = global_pointer(keys_symbol(info.name))
            error = self._put(keys, key.pointer, full_key, _NOEXIST)
        on = self.b.block()
        self.b.jump_unless(self.b.icmp("slt", error, 0), on, likely=False)
        self.b.jump_if(self.b.icmp("eq", error, -errno.EEXIST), on, likely=True)
        self._dropped(node, info, error)
        self.b.jump(dropped)
        self.b.start(on)

    def update(self, node: nodes.Node, info: MapInfo, key: Key, value: Ptr) -> None:
        """Insert or replace; a failure is counted for the map and reported."""
        done = self.b.block()
        self._keep_whole(node, info, key, done)
        error = self._put(self.map_symbol(info), key.pointer, value, 0)
        self.b.jump_unless(self.b.icmp("slt", error, 0), done, likely=False)
        self._dropped(node, info, error)
        self.b.jump(done)
        self.b.start(done)

    def _dropped(self, node: nodes.Node, info: MapInfo, error: Number) -> None:
        """Count an update that the kernel rejected with the code *error*; each CPU reports the first one for the
        map.
        """
        counter = ("map_full", self.script.map_indexes[info.name])
        if self.script.options.checks:
            self.e.events.counted_failure(node, "bpf_map_update_elem", error, info.name, counter, most=1)
        else:
            self.e.counter(*counter)

    def length(self, info: MapInfo) -> I64:
        """Number of entries."""
        if info.key is None:
            return self.b.load(self.slot(info))
        callback = self.script.counting_callback()
        return self.b.helper(helpers.FOR_EACH_MAP_ELEM, self.map_symbol(info), callback, NULL, 0)
