"""Large keys of which mostly a part is used: their maps are found by a digest of the used words.

A stack has room for 127 frames and a string for 1,024 bytes, and the kernel would hash and compare all of a hash map's
key.  What is used can be told from the key itself: a stack begins with its number of frames, a string ends at its NUL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytrace.core.types import Record, Stack, String, Tuple, Type
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.visitor import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytrace.frontend.ast.typed_program import CheckedProgram

WORD = 8
"""Bytes of what is digested at once."""

LEAST = 64
"""Bytes up to which the kernel compares a key as quickly as it would be digested."""


class Words(msgspec.Struct, frozen=True):
    """Words *start* to *stop* of a key; those behind its used part are zero."""

    start: int
    stop: int
    text: bool = False
    """The used part ends with the word that has a NUL byte, as in a string."""
    frame: int = 0
    """In a stack the words of a frame, otherwise 0; the word before *start* begins with the number of frames."""

    @property
    def variable(self) -> bool:
        """Whether it is told by the key how many of the words are used."""
        return self.text or self.frame > 0


def digested_maps(checked: CheckedProgram) -> frozenset[str]:
    """Names of the maps that are found by a digest of their keys.

    Not those from which programs delete, or through which they iterate: for these the kernel's map has the keys.
    """
    found = {
        name
        for name, info in checked.maps.items()
        if info.key is not None
        and info.kind in ("hash", "percpuhash")
        and info.key.size > LEAST
        and any(_variable(info.key, 0))
    }
    return frozenset(found - set(_by_key(checked))) if found else frozenset()


def _by_key(checked: CheckedProgram) -> Iterator[str]:
    """Maps that programs delete from or iterate through."""
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
    found: list[Words] = []
    at, end = 0, (key.size + WORD - 1) // WORD
    for part in _variable(key, 0):
        if part.start > at:
            found.append(Words(at, part.start))
        found.append(part)
        at = part.stop
    if end > at:
        found.append(Words(at, end))
    return tuple(found)


def _variable(type_: Type, offset: int) -> Iterator[Words]:
    """The words of parts of variable length, without words that other parts share."""
    if isinstance(type_, Stack):
        yield Words((offset + type_.header) // WORD, (offset + type_.size) // WORD, frame=type_.frame_size // WORD)
    elif isinstance(type_, String):
        start, stop = (offset + WORD - 1) // WORD, (offset + type_.size) // WORD
        if type_.size > LEAST:
            yield Words(start, stop, text=True)
    elif isinstance(type_, Tuple | Record):
        for member, inner in zip(type_.members, type_.offsets, strict=True):
            yield from _variable(member, offset + inner)
