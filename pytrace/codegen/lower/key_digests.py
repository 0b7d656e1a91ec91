"""Digests of large keys: 16 bytes that stand for a key in the kernel's map, while a second map has the whole key.

The digest has two sums modulo 2^64.  A used word *x* of the key adds ``(x + k)(x >> 32 + l)``, where *k* and *l* are
random words, chosen by where in the key *x* is; the second sum takes those of the word after it.  (NH of UMAC, Black et
al., CRYPTO '99, is much the same.)  Two keys that differ, however they do, have the same first sum with a probability
of at most 2^-33 over the choice of the random words: the difference of the terms of two words is, for given *l*, *k*
times the difference of their upper halves, which is divisible by 2^31 at most, or, if these are the same, *l* times
that of the lower halves.  The last word in which the keys differ, or that only one of them uses, has random words in
the second sum that the first sum has nowhere before it, so both sums are the same with 2^-66: a map of 100,000 keys has
two with the same digest in one run of ten billion.  The words are drawn when a script is loaded
(:mod:`pytrace.runtime.load.key_digests`): a traced program cannot choose keys that collide.

Words are taken in blocks, so words behind the used part may count, too: they are zero then.  Blocks that are wholly
behind it do not count, which is why a key must tell its used part itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.codegen.analysis.large_keys import WORD, Words, words_of
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Builder
from pytrace.codegen.ir.module import SHARED
from pytrace.codegen.ir.values import I1, I64, Number, Ptr, global_pointer, number_parameter, pointer_parameter

if TYPE_CHECKING:
    from pytrace.codegen.emit.emitter import Emitter
    from pytrace.codegen.emit.program import Script
    from pytrace.codegen.ir.function_text import Block
    from pytrace.core.types import Type

BLOCK = 16
"""Words that one round of a loop takes."""

FEW = 4
"""Words between two looks for the end of what is used, before the blocks."""

LOWEST, HIGHEST = 0x0101010101010101, -0x7F7F7F7F7F7F7F80
"""The lowest and the highest bits of the bytes of a word."""


def write(e: Emitter, key: Type, whole: Ptr, target: Ptr) -> None:
    """Write the digest of the key at *whole* to *target*."""
    # A function whose result nobody uses would return any register, and the verifier rejects an address of the stack.
    second = e.b.call(_function(e.script, key), [whole, target])
    e.b.store(second, e.b.offset(target, WORD))


def _function(script: Script, key: Type) -> str:
    """The function that digests keys of a type, one for all programs."""
    words = words_of(key)
    name = script.digests.get(words)
    if name is None:
        name = script.digests[words] = f"digest_{len(script.digests)}"
        made = _Digest(script, name)
        for part in words:
            made.add(part)
        made.finish()
    return name


class _Sums:
    """The two sums, in the function that *b* writes: *key* is where the key is, *places* where the sums are."""

    def __init__(self, script: Script, b: Builder, key: Ptr, places: tuple[Ptr, Ptr]) -> None:
        self.b, self.key, self.places = b, key, places
        self.random = global_pointer(SHARED, script.layout.key_words)

    def add(self, start: int, at: Number = 0) -> I64:
        """Add the word *start* words and *at* bytes from the start of the key."""
        b = self.b
        word = b.load(b.offset(b.offset(self.key, at), start * WORD), again=True)
        high = b.op("lshr", word, 32)
        random = b.offset(self.random, at if at == 0 else b.mul(at, 2))
        for number, place in enumerate(self.places, start):
            # LLVM would otherwise load many words at first, and keep each random word for the next one, on the stack.
            first = b.add(word, b.load(b.offset(random, 2 * number * WORD), again=True))
            second = b.add(high, b.load(b.offset(random, (2 * number + 1) * WORD), again=True))
            b.store(b.add(b.load(place), b.mul(first, second)), place)
        return word

    def add_all(self, start: int, count: int, at: Number = 0) -> I64:
        """Add so many words; gives a number other than 0 if one of them has a NUL byte."""
        b, found = self.b, I64("0")
        for number in range(start, start + count):
            word = self.add(number, at)
            zero = b.op("and", b.sub(word, LOWEST), b.op("xor", word, -1))
            found = b.op("or", found, zero)
        return b.op("and", found, HIGHEST)


class _Digest:
    """Emits one such function."""

    def __init__(self, script: Script, name: str) -> None:
        self.script, self.name = script, name
        text, _ = script.module.function(name, ("*key", "*digest"), None)
        self.b = b = Builder(text)
        self.sums = _Sums(script, b, pointer_parameter("key"), (b.register(), b.register()))
        for place in self.sums.places:
            b.store(0, place)
        self._loops = 0

    def add(self, part: Words) -> None:
        """The used ones of some words."""
        b, count = self.b, part.stop - part.start
        done = b.block()
        used: Number = count
        if part.frame:
            # A stack that could not be walked has a negative number of frames.
            used = b.mul(b.load(b.offset(self.sums.key, (part.start - 1) * WORD), 32, signed=True), part.frame)
        first = min(count, count % BLOCK + BLOCK)
        for taken in range(0, first, FEW):
            if part.frame:
                self._unless(b.icmp("sle", used, taken), done)
            ended = self.sums.add_all(part.start + taken, min(FEW, first - taken))
            if part.text:
                self._unless(b.truth(ended), done)
        blocks = (count - first) // BLOCK
        if blocks:
            rounds: Number = blocks
            if part.frame:
                self._unless(b.icmp("sle", used, first), done)
                rounds = b.op("lshr", b.add(used, BLOCK - 1 - first), BLOCK.bit_length() - 1)
            each = self._call if self.script.kernel.feature("bpf_loop") else self._follow
            each(part.start + first, blocks, rounds, ends=part.text)
        b.jump(done)
        b.start(done)

    def _unless(self, condition: I1, done: Block) -> None:
        on = self.b.block()
        self.b.branch(condition, done, on)
        self.b.start(on)

    def finish(self) -> None:
        """Store the first sum, and return the second one."""
        first, second = self.sums.places
        self.b.store(self.b.load(first), pointer_parameter("digest"))
        self.b.ret(self.b.load(second))

    def _call(self, start: int, blocks: int, rounds: Number, *, ends: bool) -> None:
        """Blocks by ``bpf_loop``: the verifier goes through one, and not through each."""
        b, places = self.b, self.sums.places
        self._loops += 1
        callback = f"{self.name}_blocks{self._loops}"
        frame = b.alloca(3 * WORD)
        b.store_pointer(self.sums.key, frame)
        for at, place in enumerate(places, 1):
            b.store(b.load(place), b.offset(frame, at * WORD))
        b.helper(helpers.LOOP, rounds, global_pointer(callback), frame, 0)
        for at, place in enumerate(places, 1):
            b.store(b.load(b.offset(frame, at * WORD)), place)
        self._callback(callback, start, blocks, ends=ends)

    def _callback(self, name: str, start: int, blocks: int, *, ends: bool) -> None:
        text, _ = self.script.module.function(name, ("index", "*frame"), None)
        b, frame = Builder(text), pointer_parameter("frame")
        index = b.opaque(number_parameter("index"))
        inside, outside = b.block(), b.block()
        b.branch(b.icmp("ult", index, blocks), inside, outside, likely=True)
        b.start(inside)
        sums = _Sums(self.script, b, b.load_pointer(frame), (b.register(), b.register()))
        for at, place in enumerate(sums.places, 1):
            b.store(b.load(b.offset(frame, at * WORD)), place)
        ended = sums.add_all(start, BLOCK, b.mul(index, BLOCK * WORD))
        for at, place in enumerate(sums.places, 1):
            b.store(b.load(place), b.offset(frame, at * WORD))
        b.ret(b.number(b.truth(ended)) if ends else 0)
        b.start(outside)
        b.ret(1)

    def _follow(self, start: int, blocks: int, rounds: Number, *, ends: bool) -> None:
        """Blocks in a loop that the verifier follows to its end."""
        b, index = self.b, self.b.register()
        b.store(0, index)
        head, within, body, done = b.block(), b.block(), b.block(), b.block()
        b.jump(head)
        b.start(head)
        # Opaque, so that LLVM neither unrolls the loop nor compares addresses in place of numbers.
        at = b.opaque(b.load(index))
        b.branch(b.icmp("ult", at, rounds), within, done)
        b.start(within)
        b.branch(b.icmp("ult", b.opaque(at), blocks), body, done)
        b.start(body)
        ended = self.sums.add_all(start, BLOCK, b.mul(at, BLOCK * WORD))
        b.store(b.add(at, 1), index)
        if ends:
            b.branch(b.truth(ended), done, head)
        else:
            b.jump(head)
        b.start(done)
