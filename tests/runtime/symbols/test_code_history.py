"""pytrace.runtime.symbols.code_history: random code, compared with a table of each address and moment."""

from __future__ import annotations

import random

import pytest

from pytrace.runtime.symbols import code_history
from pytrace.runtime.symbols.code_history import Code, CodeHistory

SPACE, MOMENTS = 40, 30


class Model:
    """What is at each address after each moment; None where nothing is, absent where nothing has ever been."""

    def __init__(self, keeps_heads: bool) -> None:
        self.keeps_heads = keeps_heads
        self.now: dict[int, Code | None] = {}
        self.after: list[dict[int, Code | None]] = [{}]

    def replace(self, start: int, end: int, code: Code | None) -> None:
        gone = {id(old) for at in range(start, end) if (old := self.now.get(at)) is not None}
        for at, old in list(self.now.items()):
            if old is not None and id(old) in gone and not (self.keeps_heads and at < start):
                self.now[at] = None
        for at in range(start, end):
            if code is not None or at in self.now:
                self.now[at] = code
        self.after.append(dict(self.now))

    def find(self, at: int, first: int, last: int) -> list[Code]:
        """By the functions after each moment; the first one ever, if it came later."""
        found: list[Code | None] = []
        for moment in range(first, last + 1):
            if at in self.after[moment] and (not found or found[-1] is not self.after[moment][at]):
                found.append(self.after[moment][at])
        if not found:
            found = [held[at] for held in self.after if at in held][:1]
        return [code for code in found if code is not None]


@pytest.mark.parametrize("keeps_heads", [False, True])
def test_functions_at_each_moment(keeps_heads: bool) -> None:
    draw = random.Random(7)
    for _ in range(60):
        model, history = Model(keeps_heads), CodeHistory(0, keeps_heads=keeps_heads)
        for moment in range(1, MOMENTS):
            start = draw.randrange(SPACE)
            size = draw.randrange(1, 12)
            if draw.random() < 0.8:
                code = Code(start, size, moment)
                model.replace(start, start + size, code)
                history.put(code, (moment, moment))
            else:
                model.replace(start, start + size, None)
                history.remove(start, start + size, (moment, moment))
        for at in range(SPACE + 12):
            first = draw.randrange(1, MOMENTS)
            last = draw.randrange(first, MOMENTS)
            assert history.find(at, (first, last)) == model.find(at, first, last), (at, first, last)
            assert history.covers(at) or not history.find(at)


def test_code_that_replaces_too_much_has_no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_history, "_MOST_REPLACED", 3)
    history = CodeHistory(0)
    for number in range(4):
        history.put(Code(10 * number, 10, number), (1, 1))
    wide = Code(0, 1 << 64, 9)
    history.put(wide, (2, 2))
    assert history.find(5, (1, 1)) == [wide]
    assert history.find(1 << 63) == [wide]
