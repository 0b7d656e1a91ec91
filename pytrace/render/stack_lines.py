"""Stacks on one line: modes ``folded`` and ``annotated`` (root first, as flame graphs read them) and ``inverted``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from pytrace.core.types import Stack, StackMode

if TYPE_CHECKING:
    from pytrace.render.names import Frame

Functions = Callable[[int, int, "int | None"], "Sequence[Frame]"]
"""``functions(process, address, inner)`` gives the functions of a place; *inner* is the frame before."""

_ESCAPES = {";": ":", **{chr(code): f"\\x{code:02x}" for code in (*range(32), 127)}}
_TABLE = str.maketrans(_ESCAPES)
"""A semicolon ends a frame; a line is a line."""


def line_text(
    kind: Stack, functions: Functions, unread: Callable[[int], str]
) -> Callable[[tuple[int, tuple[int, ...], int]], bytes]:
    """How decoded stacks of type *kind* print: their frames with semicolons between them; empty for no frames.

    Args:
        kind: the type, whose mode decides.
        functions: gives the functions of an address.
        unread: says why a stack with an error was not read.
    """

    def text(value: tuple[int, tuple[int, ...], int]) -> bytes:
        process, addresses, error = value
        why = unread(error)
        if why:
            return os.fsencode(f"[no stack: {why}]")
        words: list[str] = []
        for address, inner in zip(addresses, (None, *addresses), strict=False):
            frames = functions(process, address, inner)
            words.extend([frame_word(frame, address, kind) for frame in frames] or [f"0x{address:x}"])
        return joined_words(words, kind)

    return text


def frame_word(frame: Frame, address: int, kind: Stack) -> str:
    """What a frame is called: without a function the binary in brackets, without that the address."""
    name = frame.name.translate(_TABLE)
    if not name and frame.module:
        base = os.path.basename(frame.module)
        name = base if base.startswith("[") else f"[{base}]"
    if kind.mode is StackMode.ANNOTATED:
        mark = "_[i]" if frame.inlined else "" if kind.user else "_[k]"
        return f"{name or f'0x{address:x}'}{mark}"
    return name or f"0x{address:x}"


def joined_words(words: Iterable[str], kind: Stack) -> bytes:
    """The line of frames that are given innermost first."""
    listed = list(words)
    if kind.mode is not StackMode.INVERTED:
        listed.reverse()
    return os.fsencode(";".join(listed))
