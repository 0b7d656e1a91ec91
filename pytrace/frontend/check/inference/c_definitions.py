"""The interface through which the checker and macro expansion look up C definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytrace.core.source import Span
    from pytrace.core.types import Enum, Struct, Type
    from pytrace.frontend.ast import nodes


class NoValue(Protocol):
    """The reason why a macro has no value."""

    @property
    def message(self) -> str:
        """The error message."""

    @property
    def hints(self) -> tuple[str, ...]:
        """Hints of the error."""

    @property
    def span(self) -> Span:
        """Where the macro is defined."""


class Definitions(Protocol):
    """C definitions of the script, completed by the kernel's (``frontend.c.definitions``)."""

    @property
    def skipped(self) -> Callable[[str], list[str]]:
        """Hints about headers that were not read, for a relation of a name to one (``a macro of``, ``defined in``)."""

    binaries: tuple[str, ...]
    """Binaries of user probes, whose DWARF has types."""

    def struct(self, kind: str, name: str) -> Struct | None:
        """The ``struct`` or ``union`` of that name."""

    def enum(self, name: str) -> Enum | None:
        """The enumeration of that name."""

    def enumerator(self, name: str) -> tuple[Enum, int] | None:
        """The enumeration with a member of that name, and its value."""

    def typedef(self, name: str) -> Type | None:
        """The type of a typedef or C base type."""

    def macro(self, name: str) -> nodes.Expr | None:
        """The expression that an object-like macro stands for."""

    def no_value(self, name: str) -> NoValue | None:
        """The reason why a macro of the script, used as a value, has none; None for other names."""

    def constant(self, name: str) -> int | None:
        """The built-in value of a kernel header constant."""

    def names(self, kind: str) -> Iterable[str]:
        """Names of all ``struct``, ``union``, ``enum``, ``typedef``, ``macro`` or ``constant`` definitions, for
        suggestions.
        """
