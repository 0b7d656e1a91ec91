"""A replacement of ``typing`` for what every start imports: type checkers see ``typing``, at run time these are stubs.

Importing the standard library's module takes 5 ms, with those that it imports. The stubs support use in annotations
and aliases only.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import (
        Any,
        AnyStr,
        ClassVar,
        Concatenate,
        Generic,
        Literal,
        Never,
        NewType,
        NoReturn,
        ParamSpec,
        Protocol,
        TextIO,
        TypeAlias,
        TypeGuard,
        TypeVar,
        cast,
        overload,
    )  # fmt: skip
else:

    class _Form:
        """A special form: subscripting it and unions of it give itself."""

        def __getitem__(self, _parameters: object) -> _Form:
            return self

        def __or__(self, _other: object) -> _Form:
            return self

        __ror__ = __or__

    Any = AnyStr = ClassVar = Concatenate = Literal = Never = NoReturn = TextIO = TypeAlias = TypeGuard = _Form()

    class Generic:
        """A base class that can be subscripted."""

        def __class_getitem__(cls, _parameters: object) -> type:
            return cls

    class Protocol(Generic):
        """A base class of structural types."""

    def TypeVar(_name: str, *_constraints: object, **_options: object) -> _Form:  # noqa: N802  (as in typing)
        """A type variable."""
        return Any

    class ParamSpec(_Form):
        """The parameters of a callable."""

        args = kwargs = Any

        def __init__(self, name: str) -> None:
            self.__name__ = name

    class NewType(_Form):
        """A name for values of another type: calling it gives the value itself."""

        def __init__(self, name: str, _base: type) -> None:
            self.__name__ = name

        def __call__(self, value: object) -> object:
            return value

    def overload(function: object) -> object:
        """One of several signatures of the function that follows."""
        return function

    def cast(_type: object, value: object) -> object:
        """The *value* itself; a type checker takes it for the other type."""
        return value


__all__ = [
    "TYPE_CHECKING", "Any", "AnyStr", "ClassVar", "Concatenate", "Generic", "Literal", "Never", "NewType", "NoReturn",
    "ParamSpec", "Protocol", "TextIO", "TypeAlias", "TypeGuard", "TypeVar", "cast", "overload",
]  # fmt: skip
