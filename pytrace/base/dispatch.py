"""Dispatch: a class states which of its methods handles which class of nodes, or which builtin.

>>> class Statements:
...     def __init__(self) -> None:
...         self._rules: Mapping[type[Node], Callable[[Node], Type]] = handlers(self)
...
...     def check(self, node: Node) -> Type:
...         return self._rules[type(node)](node)
...
...     @handles(Call)
...     def _call(self, node: Call) -> Type: ...

The type checker verifies that ``_call`` takes a ``Call``. A lookup is one in a dictionary, by the object's own class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, overload

S = TypeVar("S")
N = TypeVar("N")
M = TypeVar("M")
O = TypeVar("O")
P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])

Handlers: TypeAlias = Mapping[Any, Callable[..., Any]]
"""Methods by what they handle: each class has its own kind of keys and of methods."""

_KEYS = "handled_keys"
"""The attribute of a method that has the keys that it handles."""


@overload
def handles(kind: type[N], /) -> Callable[[Callable[Concatenate[S, N, P], R]], Callable[Concatenate[S, N, P], R]]: ...


@overload
def handles(
    kind: type[N], other: type[M], /
) -> Callable[[Callable[Concatenate[S, N | M, P], R]], Callable[Concatenate[S, N | M, P], R]]: ...


@overload
def handles(
    kind: type[N], other: type[M], third: type[O], /
) -> Callable[[Callable[Concatenate[S, N | M | O, P], R]], Callable[Concatenate[S, N | M | O, P], R]]: ...


def handles(*kinds: type[object]) -> Callable[[F], F]:
    """A decorator: the method handles instances of these classes, its first argument."""
    return handles_names(*kinds)


def handles_names(*keys: object) -> Callable[[F], F]:
    """A decorator: the method handles what has these *keys* (names of builtins, operators)."""

    def register(function: F) -> F:
        vars(function).setdefault(_KEYS, []).extend(keys)
        return function

    return register


def handlers(owner: object) -> Handlers:
    """The methods of an object by what they handle.

    Raises:
        ValueError: two methods handle the same.
    """
    return {key: MethodType(function, owner) for key, function in methods(type(owner)).items()}


def methods(kind: type[object]) -> Handlers:
    """The functions of a class by what they handle; the object is their first argument.

    Raises:
        ValueError: two of them handle the same.
    """
    if kind not in _methods:
        names: dict[object, str] = {}
        for base in reversed(kind.__mro__):
            for name, value in vars(base).items():
                for key in getattr(value, _KEYS, ()):
                    if names.setdefault(key, name) != name:
                        raise ValueError(f"{names[key]} and {name} of {kind.__name__} handle {key}")
        _methods[kind] = {key: getattr(kind, name) for key, name in names.items()}
    return _methods[kind]


_methods: dict[type[object], Handlers] = {}
"""What :func:`methods` has answered, by class."""
