"""What modules of every start take from ``typing``, for type checkers; at run time it is hardly anything.

Importing the standard library's module takes 5 ms, with those that it imports. Here stands for each of its names what a
running program can do with it: nothing but write it in an annotation or an alias.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, AnyStr, ClassVar, Generic, Never, NoReturn, Protocol, TextIO, TypeAlias, TypeVar, cast
else:

    class _Form:
        """A special form: parameters and unions of it are it again."""

        def __getitem__(self, _parameters: object) -> _Form:
            return self

        def __or__(self, _other: object) -> _Form:
            return self

        __ror__ = __or__

    Any = AnyStr = ClassVar = Never = NoReturn = TextIO = TypeAlias = _Form()

    class Generic:
        """A base class that may have parameters."""

        def __class_getitem__(cls, _parameters: object) -> type:
            return cls

    class Protocol(Generic):
        """A base class whose methods others have, too."""

    def TypeVar(_name: str, *_constraints: object, **_options: object) -> _Form:  # noqa: N802  (as in typing)
        """A type that is found by its use."""
        return Any

    def cast(_type: object, value: object) -> object:
        """The *value*, which a type checker takes for another type."""
        return value


__all__ = [
    "TYPE_CHECKING", "Any", "AnyStr", "ClassVar", "Generic", "Never", "NoReturn", "Protocol", "TextIO", "TypeAlias",
    "TypeVar", "cast",
]  # fmt: skip
