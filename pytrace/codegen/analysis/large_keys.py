"""Large keys that are seldom full: their maps are indexed by a digest of the used words.

A stack has room for 127 frames and a string for 1,024 bytes, and the kernel would hash and compare the whole key of a
hash map.  The length of the used part follows from the key itself: a stack begins with its number of frames, a string
ends at its NUL.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytrace.core.types import Record, Stack, String, Tuple, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import CheckedProgram

WORD = 8
"""Bytes that are digested at a time."""

LEAST = 64
"""Keys of at most this size are compared by the kernel as quickly as they would be digested."""


class Words(msgspec.Struct, frozen=True):
    """Words *start* to *stop* of a key; those after its used part are zero."""

    start: int
    stop: int
    text: bool = False
    """The used part ends with the word that contains a NUL byte, as in a string."""
    frame: int = 0
    """For a stack, the words per frame, otherwise 0; the word before *start* begins with the number of frames."""

    @property
    def variable(self) -> bool:
        """Whether the number of used words depends on the key."""
        return self.text or self.frame > 0


def digested_maps(checked: CheckedProgram) -> frozenset[str]:
    """Names of the maps that are indexed by a digest of their keys.

    Maps that programs delete from or iterate over are excluded: their BPF map needs the keys themselves.
    """
    names = {
        name
        for name, info in checked.maps.items()
        if info.key is not None
        and info.kind in ("hash", "percpuhash")
        and info.key.size > LEAST
        and any(_variable(info.key, 0))
    }
    return frozenset(names - set(_by_key(checked))) if names else frozenset()


def _by_key(checked: CheckedProgram) -> Iterator[str]:
    """Maps that programs delete from or iterate over."""
    bodies = [unit.body for unit in checked.units] + [function.body for function in checked.functions]
    for node in (node for body in bodies for node in walk(body)):
        if isinstance(node, nodes.For):
            yield from _maps(node.source)
        elif isinstance(node, nodes.Call) and node.name == "delete":
            yield from _maps(node)


def _maps(node: nodes.Node) -> Iterator[str]:
    return (item.name for item in walk(node) if isinstance(item, nodes.MapRef))


def words_of(key: Type) -> tuple[Words, ...]:
    """All words of a key, in order."""
    words: list[Words] = []
    start, end = 0, (key.size + WORD - 1) // WORD
    for part in _variable(key, 0):
        if part.start > start:
            words.append(Words(start, part.start))
        words.append(part)
        start = part.stop
    if end > start:
        words.append(Words(start, end))
    return tuple(words)


def _variable(type_: Type, offset: int) -> Iterator[Words]:
    """The words of parts of variable length, without words that other parts share."""
    if isinstance(type_, Stack):
        if type_.chunked:
            return
        yield Words((offset + type_.header) // WORD, (offset + type_.size) // WORD, frame=type_.frame_size // WORD)
    elif isinstance(type_, String):
        start, stop = (offset + WORD - 1) // WORD, (offset + type_.size) // WORD
        if type_.size > LEAST:
            yield Words(start, stop, text=True)
    elif isinstance(type_, Tuple | Record):
        for member, inner in zip(type_.members, type_.offsets, strict=True):
            yield from _variable(member, offset + inner)
