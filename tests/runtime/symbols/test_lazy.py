"""pytrace.runtime.symbols.lazy: the symboliser is made by the first question, and not by its end."""

from __future__ import annotations

from typing import Any

import pytest

from pytrace.runtime.symbols.lazy import LazySymbols
from pytrace.runtime.symbols.symbolizer import Symbolizer
from tests.support.rows import each_row


def _name(item: object) -> str:
    return item if isinstance(item, str) else ""


class Noted:
    """Answers each question with its name and arguments."""

    descriptors = ("descriptors",)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: (name, arguments, options)


ASKING: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("kernel", (1,), {"caller": True}),
    ("user", (7, 1), {"caller": True}),
    ("trampoline", (7, 1), {}),
    ("kernel_place", (1,), {}),
    ("user_place", (7, 1), {}),
    ("linked", (7, 1), {}),
    ("owner", (7,), {}),
    ("origin", (7, 1), {}),
    ("start", ([7],), {"prompt": True, "images": (3, 4)}),
    ("prepare", ([(7, 1)],), {}),
    ("wait_for", (iter(()), "lines"), {}),
    ("keyed", ({}, 1), {}),
    ("follow_code", (7,), {}),
]
IDLE: list[tuple[str, tuple[Any, ...], Any]] = [
    ("changes", (), []), ("poll", (), None), ("hurry", (None,), None), ("give_up_lines", (), False),
    ("met_binaries", (), None), ("notices", (), []), ("close", (), None), ("renew", (1,), []), ("drained", (1,), None),
    ("attached", (), None),
]  # fmt: skip


@each_row(("name", "arguments", "options"), ASKING, ids=_name)
def test_questions_make_it_once(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(Noted())
        return made[-1]

    symbols = LazySymbols(make)
    for _ in range(2):
        answer = getattr(symbols, name)(*arguments, **options)
        assert answer == (name, arguments, options) or (answer is None and name in {"start", "wait_for", "keyed"})
    assert len(made) == 1


@pytest.mark.parametrize(("name", "arguments", "answer"), IDLE, ids=_name)
def test_nothing_is_made_for_what_only_goes_on(name: str, arguments: tuple[Any, ...], answer: Any) -> None:
    def make() -> Symbolizer:
        raise AssertionError("nobody asked")

    symbols = LazySymbols(make)
    assert getattr(symbols, name)(*arguments) == answer
    assert symbols.descriptors == []


@pytest.mark.parametrize(("name", "arguments", "answer"), IDLE, ids=_name)
def test_what_goes_on_reaches_the_one_that_was_made(name: str, arguments: tuple[Any, ...], answer: Any) -> None:
    called: list[str] = []

    class Counting(Noted):
        def __getattribute__(self, name: str) -> Any:
            called.append(name)
            return super().__getattribute__(name)

    made: Any = Counting()
    symbols = LazySymbols(lambda: made)
    symbols.kernel(1)
    getattr(symbols, name)(*arguments)
    assert called.count(name) == 1
    assert symbols.descriptors == ("descriptors",)


def test_every_question_of_the_symboliser_that_a_session_asks_is_there() -> None:
    names = {name for name in vars(LazySymbols) if not name.startswith("_")}
    assert names == {*(row[0] for row in ASKING), *(row[0] for row in IDLE), "descriptors"}
    assert all(hasattr(Symbolizer, name) for name in names)
