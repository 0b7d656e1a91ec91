"""Digests of large keys: 16 bytes that represent a key in the BPF map, while a second map stores the full key.

The digest consists of two sums modulo 2^64.  A used word *x* of the key adds ``(x + k)(x >> 32 + l)``, where *k* and
*l* are random words that depend on the position of *x*; the second sum uses those of the next position.  (NH of UMAC,
Black et al., CRYPTO '99, is similar.)  Any two different keys have the same first sum with a probability of at most
2^-33 over the choice of the random words: the difference of the terms of two words is, for fixed *l*, *k* times the
difference of their upper halves, which is divisible by 2^31 at most, or, if these are equal, *l* times that of the
lower halves.  In the second sum, the last word in which the keys differ, or that only one of them uses, has random
words that no earlier word has in the first sum, so both sums are equal with probability 2^-66: a map of 100,000 keys
has a collision in one of ten billion runs.  The random words are drawn when a script is loaded
(:mod:`pytrace.runtime.load.key_digests`), so a traced program cannot choose keys that collide.

Words are processed in blocks, so words after the used part may be included, and must be zero.  Blocks that lie
entirely after it are not included, which is why the length of the used part must follow from the key itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from pytrace.codegen.emit import memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.map_uses import LEAST, WORD, Words, words_of
from pytrace.codegen.emit.program import Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Builder
from pytrace.codegen.ir.module import SHARED
from pytrace.codegen.ir.values import (
    I64,
    Made,
    Number,
    Operand,
    Parts,
    Ptr,
    global_pointer,
    number_parameter,
    pointer_parameter,
)
from pytrace.core.types import Type

BLOCK = 16
"""Words per iteration of the loop."""

FEW = 4
"""Words between two checks for the end of the used part, before the blocks."""

LOWEST, HIGHEST = 0x0101010101010101, -0x7F7F7F7F7F7F7F80
"""Masks of the lowest and of the highest bit of each byte of a word."""


def write(e: Emitter, key: Type, source: Ptr, target: Ptr) -> None:
    """Write the digest of the key at *source* to *target*."""
    # A function without a used result would return an arbitrary register, and the verifier rejects a stack address.
    second = e.b.call(_function(e.script, key), [source, target])
    e.b.store(second, e.b.offset(target, WORD))


def write_words(e: Emitter, source: Ptr, count: int, target: Ptr) -> None:
    """Write the digest of *count* words, all of which are used, to *target*."""
    words = (Words(0, count),)
    name = e.script.digests.get(words)
    if name is None:
        name = e.script.digests[words] = f"digest_{len(e.script.digests)}"
        digest = _Digest(e.script, name)
        digest.add_all(count)
        digest.finish()
    e.b.store(e.b.call(name, [source, target]), e.b.offset(target, WORD))


def _function(script: Script, key: Type) -> str:
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
        return b.op("and", marks, HIGHEST)


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


def write_key(e: Emitter, operand: Operand, pointer: Ptr, type_: Type) -> tuple[Text, ...]:
    """Write a key and :data:`SLACK` bytes after it. Returns the strings whose rest is not zeroed.

    Digests do not include it: it is zeroed only in the copy of a key that is stored, once for each new key.
    """
    read = _partial_reader(operand, type_, 0)
    if read is not None:
        read(pointer, SLACK)
        return ((0, type_.size),)
    if not isinstance(operand, Parts) or memory.has_gaps(type_):
        e.memory.write(operand, pointer, type_)
        return ()
    texts: list[Text] = []
    members, offsets, _ = memory.members_of(type_)
    for index, (member, offset) in enumerate(zip(members, offsets, strict=True)):
        part = e.memory.member_of(operand, memory.source_index(operand.type, type_, index))
        read = _partial_reader(part, member, offset)
        if read is not None:
            # The members after the string are written later.
            read(e.b.offset(pointer, offset), SLACK)
            texts.append((offset, member.size))
        else:
            e.memory.write(part, e.b.offset(pointer, offset), member, memory.natural(8, offset))
    return tuple(texts)


def _partial_reader(operand: Operand, type_: Type, offset: int) -> Callable[[Ptr, int], None] | None:
    """The function that reads a string of a key without zeroing all of its rest; None if it is read in full."""
    if not isinstance(operand, Made) or operand.type != type_ or type_.size <= LEAST:
        return None
    return None if offset % WORD or type_.size % WORD or sys.byteorder != "little" else operand.only


def cleared(e: Emitter, key: Ptr, size: int, texts: tuple[Text, ...]) -> Ptr:
    """A copy of a key of *size* bytes in which the rest of strings is zeroed."""
    copy, end = e.temporary(size), 0
    for offset, room in (*texts, (size, 0)):
        e.memory.copy(e.b.offset(copy, end), e.b.offset(key, end), offset - end)
        end = offset + room
    for offset, room in texts:
        source, target = e.b.offset(key, offset), e.b.offset(copy, offset)
        e.memory.zero(target, room)
        length = e.b.helper(helpers.PROBE_READ_KERNEL_STR, target, room, e.b.address(source))
        with e.b.when(e.b.icmp("eq", length, room), likely=False):
            # The helper writes a NUL to the last byte.
            e.b.store(e.b.load(e.b.offset(source, room - 1), 8), e.b.offset(target, room - 1), 8)
    return copy
