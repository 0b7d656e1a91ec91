"""Digests of large keys: 16 bytes that stand for a key in the kernel's map, while a second map has the whole key.

The digest is NH of Black et al. (UMAC, CRYPTO '99), twice: each used word of the key, as two halves of 32 bits, is
added to a random word, half by half, and the products of the two sums are added up.  The random word is chosen by where
in the key the word is, and the second sum takes the one after it.  Two keys that differ, however they do, have the same
first sum with a probability of at most 2^-31 over the choice of the random words.  In the second sum the last word that
only one of them uses, or in which they differ, has a random word that the first sum does not use: both sums are the
same with 2^-62, so a map of 100,000 keys has two with the same digest in one run of 900 million.  The words are drawn
when a script is loaded (:mod:`pytrace.runtime.load.key_digests`): a traced program cannot choose keys that collide.

A word behind the used part does not count at all, which is why a key's used part must be told by the key itself.
"""

from __future__ import annotations

from pytrace.base.fast_typing import TYPE_CHECKING
from pytrace.codegen.analysis.large_keys import WORD, Words, words_of
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.builder import Builder
from pytrace.codegen.ir.module import SHARED
from pytrace.codegen.ir.values import I64, Number, Ptr, global_pointer, pointer_parameter
from pytrace.core.types import Type

if TYPE_CHECKING:
    from pytrace.codegen.emit.program import Script

INLINE_WORDS = 4
"""So many words are digested without a loop."""

LOWEST, HIGHEST = 0x0101010101010101, -0x7F7F7F7F7F7F7F80
"""The lowest and the highest bits of the bytes of a word."""


def write(e: Emitter, key: Type, whole: Ptr, target: Ptr) -> None:
    """Write the digest of the key at *whole* to *target*."""
    e.b.call(_function(e.script, key), [whole, target])


def _function(script: Script, key: Type) -> str:
    """The function that digests keys of a type, one for all programs."""
    words = words_of(key)
    name = script.digests.get(words)
    if name is None:
        name = script.digests[words] = f"digest_{len(script.digests)}"
        text, _ = script.module.function(name, ("*key", "*digest"), None)
        made = _Digest(Builder(text), script.layout.key_words)
        for part in words:
            made.add(part)
        made.finish()
    return name


class _Digest:
    """Emits one such function. *table* is the place of the random words in the shared section."""

    def __init__(self, b: Builder, table: int) -> None:
        self.b = b
        self.key, self.random = pointer_parameter("key"), global_pointer(SHARED, table)
        self.sums = b.register(), b.register()
        for place in self.sums:
            b.store(0, place)

    def add(self, part: Words) -> None:
        """The used ones of some words."""
        start, size = part.start * WORD, (part.stop - part.start) * WORD
        if part.text:
            self._loop(start, size, ends=True)
        elif part.frame:
            self._loop(start, self._frames(part))
        elif size <= INLINE_WORDS * WORD:
            for at in range(start, start + size, WORD):
                self._word(at)
        else:
            self._loop(start, size)

    def finish(self) -> None:
        """Store the digest."""
        for at, place in enumerate(self.sums):
            self.b.store(self.b.load(place), self.b.offset(pointer_parameter("digest"), at * WORD))
        self.b.ret(0)

    def _frames(self, part: Words) -> I64:
        """Bytes of the frames of a stack; a stack that could not be walked has a negative number of them."""
        b = self.b
        count = b.load(b.offset(self.key, (part.start - 1) * WORD), 32, signed=True)
        some = b.select(b.icmp("slt", count, 0), 0, count)
        bounded = b.at_most(some, (part.stop - part.start) // part.frame)
        return b.mul(bounded, part.frame * WORD)

    def _loop(self, start: int, size: Number, *, ends: bool = False) -> None:
        """The words from *start* on, *size* bytes; with *ends* up to the one that has a NUL byte."""
        b = self.b
        index = b.register()
        b.store(0, index)
        head, body, done = b.block(), b.block(), b.block()
        b.jump(head)
        b.start(head)
        # Opaque, so that LLVM neither unrolls the loop nor compares addresses in place of offsets.
        at = b.opaque(b.load(index))
        b.branch(b.icmp("ult", at, size), body, done)
        b.start(body)
        word = self._word(start, at)
        b.store(b.add(at, WORD), index)
        if ends:
            low = b.sub(word, LOWEST)
            zero = b.op("and", b.op("and", low, b.op("xor", word, -1)), HIGHEST)
            b.branch(b.truth(zero), done, head)
        else:
            b.jump(head)
        b.start(done)

    def _word(self, start: int, at: Number = 0) -> I64:
        """Add the word at an offset to both sums."""
        b = self.b
        word = b.load(b.offset(b.offset(self.key, at), start))
        high = b.op("lshr", word, 32)
        places = b.offset(b.offset(self.random, at), start)
        for number, place in enumerate(self.sums):
            random = b.load(b.offset(places, number * WORD))
            first = b.fit(b.add(word, random), 32, signed=False)
            second = b.fit(b.add(high, b.op("lshr", random, 32)), 32, signed=False)
            b.store(b.add(b.load(place), b.mul(first, second)), place)
        return word
