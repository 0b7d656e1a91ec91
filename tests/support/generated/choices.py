"""Random decisions that can be recorded, replayed and made simpler."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """A source of decisions: those of *given* first, then random ones of *seed* (or zeros without one).

    Zero is always the simplest choice, so a failing program shrinks as its decisions are taken out or lowered.
    """

    def __init__(self, seed: int | None = None, given: Sequence[int] = ()) -> None:
        self.random = None if seed is None else random.Random(seed)
        self.given = given
        self.made: list[int] = []

    def below(self, count: int) -> int:
        """A number from 0 to *count* - 1."""
        at = len(self.made)
        if at < len(self.given):
            found = min(self.given[at], count - 1)
        else:
            found = 0 if self.random is None else self.random.randrange(count)
        self.made.append(found)
        return found

    def pick(self, items: Sequence[T]) -> T:
        """One of *items*."""
        return items[self.below(len(items))]

    def chance(self, percent: int) -> bool:
        """True in *percent* of all cases."""
        return self.below(100) >= 100 - percent


def shrink(made: list[int], fails: Callable[[list[int]], bool], rounds: int = 400) -> list[int]:
    """Fewer and smaller decisions that still fail, after at most *rounds* tries."""
    left = rounds
    size = max(1, len(made) // 2)
    while size and left > 0:
        at = 0
        while at < len(made) and left > 0:
            left -= 1
            for shorter in (made[:at] + made[at + size :], [*made[:at], *([0] * size), *made[at + size :]]):
                if shorter != made and fails(shorter):
                    made = shorter
                    break
            else:
                at += size
        size //= 2
    return made
