"""Tests of dispatch tables by class."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from pytrace.base.dispatch import by_class, on


class Shape:
    pass


class Square(Shape):
    side = 3


class Circle(Shape):
    radius = 2


def square(scale: int, shape: Square, unit: str) -> str:
    return f"{scale * shape.side}{unit}"


def circle(scale: int, shape: Circle, unit: str) -> str:
    return f"{scale * shape.radius}{unit}"


def test_the_function_of_a_class_is_found() -> None:
    table: Mapping[type[Shape], Callable[[int, Shape, str], str]] = by_class(on(Square, square), on(Circle, circle))
    assert [table[type(shape)](10, shape, "m") for shape in (Square(), Circle())] == ["30m", "20m"]
    assert table.get(Shape) is None


def test_a_class_has_one_row() -> None:
    with pytest.raises(ValueError, match="two functions for one class"):
        by_class(on(Square, square), on(Square, square))
