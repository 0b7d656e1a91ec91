"""Stacks on one line: modes ``folded`` and ``annotated`` (root first, as flame graphs read them) and ``inverted``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from pytrace.base.fast_typing import Protocol
from pytrace.core.types import Stack, StackMode


class Named(Protocol):
    """What a line shows of a function of an address."""

    @property
    def name(self) -> str:
        """The function; empty when unknown."""

    @property
    def module(self) -> str:
        """Kernel module or path of the binary."""

    @property
    def inlined(self) -> bool:
        """True for a function that was inlined into the next one."""


Functions = Callable[[int, int, "int | None"], Sequence[Named]]
"""``functions(process, address, inner)`` gives the functions of a place; *inner* is the frame before."""

_ESCAPES = {";": ":", **{chr(code): f"\\x{code:02x}" for code in (*range(32), 127)}}
_TABLE = str.maketrans(_ESCAPES)
"""A semicolon ends a frame; a line is a line."""


class _Unknown:
    name = module = ""
    inlined = False


_UNKNOWN = _Unknown()


def line_text(kind: Stack, functions: Functions, process: int, addresses: Sequence[int]) -> bytes:
    """The frames of a stack of type *kind*, given innermost first, with semicolons between them; empty for none."""
    words: list[str] = []
    for address, inner in zip(addresses, (None, *addresses), strict=False):
        frames = functions(process, address, inner)
        words.extend([frame_word(frame, address, kind) for frame in frames] or [frame_word(_UNKNOWN, address, kind)])
    return joined_words(words, kind)


def frame_word(frame: Named, address: int, kind: Stack) -> str:
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
