"""Numbers in files, such as those in ``/proc``, read when they are printed."""

from __future__ import annotations

from decimal import Decimal, DecimalException
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.core import types
    from pytrace.render.decoders import Memory

MOST = 65536
"""Bytes of a file that are looked at."""


def decoder(kind: types.Fixed) -> Callable[[Memory, int], int]:
    """A decoder that ignores what was sent: the number in units of the last decimal, 0 when there is none."""
    return lambda _memory, _offset: read(kind.path, kind.word, kind.one)


def read(path: str, word: int, one: int) -> int:
    """The word number *word* (from 1) of a file, times *one*."""
    try:
        with open(path, "rb") as file:
            words = file.read(MOST).split()
        number = Decimal(words[word - 1].decode("ascii"))
        return int((number * one).to_integral_value())
    except (OSError, IndexError, UnicodeDecodeError, DecimalException, ValueError, OverflowError):
        return 0
