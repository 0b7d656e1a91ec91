"""Tests of dispatch by class and by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from pytrace.base.dispatch import handlers, handles, handles_names


class Shape:
    pass


class Square(Shape):
    side = 3


class Circle(Shape):
    radius = 2


class Dot(Circle):
    pass


class Measure:
    def __init__(self, scale: int) -> None:
        self.scale = scale
        self.rules: Mapping[type[Shape], Callable[[Shape, str], str]] = handlers(self)

    @handles(Square)
    def _square(self, shape: Square, unit: str) -> str:
        return f"{self.scale * shape.side}{unit}"

    @handles(Circle, Dot)
    def _round(self, shape: Circle, unit: str) -> str:
        return f"{self.scale * shape.radius}{unit}"


class Doubled(Measure):
    def _square(self, shape: Square, unit: str) -> str:
        return f"{2 * self.scale * shape.side}{unit}"


def test_a_class_handles_what_its_methods_say() -> None:
    rules = Measure(10).rules
    assert [rules[type(shape)](shape, "m") for shape in (Square(), Circle(), Dot())] == ["30m", "20m", "20m"]
    assert rules.get(Shape) is None
    assert Doubled(10).rules[Square](Square(), "m") == "60m"


def test_two_methods_for_one_class_are_refused() -> None:
    class Twice(Measure):
        @handles(Square)
        def again(self, shape: Square, unit: str) -> str:
            return unit

    with pytest.raises(ValueError, match="_square and again of Twice handle"):
        Twice(1)


def test_names_are_handled_like_classes() -> None:
    class Operators:
        @handles_names("+", "-")
        def add(self) -> str:
            return "sum"

    assert {name: rule() for name, rule in handlers(Operators()).items()} == {"+": "sum", "-": "sum"}
