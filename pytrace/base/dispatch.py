"""Type-checked dispatch tables: functions by the class of the object that they handle.

>>> RULES: Mapping[type[Node], Callable[[Checker, Node], Type]] = by_class(on(Call, call), on(Name, name))

``on`` checks that ``call`` takes a ``Call``. The table's type says that its functions take any ``Node``, which holds
for the function that is looked up by the node's own class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Concatenate, Never, ParamSpec, TypeVar, cast

S = TypeVar("S")
N = TypeVar("N")
B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")


def on(
    kind: type[N], function: Callable[Concatenate[S, N, P], R]
) -> tuple[type[object], Callable[Concatenate[S, Never, P], R]]:
    """A row: *function* handles instances of *kind*, its second argument."""
    return kind, function


def by_class(
    *rows: tuple[type[object], Callable[Concatenate[S, Never, P], R]],
) -> Mapping[type[B], Callable[Concatenate[S, B, P], R]]:
    """The table of *rows*.

    Raises:
        ValueError: a class has two rows.
    """
    table = dict(rows)
    if len(table) != len(rows):
        raise ValueError("two functions for one class")
    return cast("Mapping[type[B], Callable[Concatenate[S, B, P], R]]", table)
