"""Names that system headers declare: collected in one traversal of the translation unit, converted on demand.

The kernel's headers declare tens of thousands of macros and thousands of types, of which a script uses a few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.types import Enum, Struct, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytrace.frontend.ast import nodes
    from pytrace.frontend.c.declarations import Reader
    from pytrace.frontend.c.libclang import Cursor


class DeclaredNames:
    """Macros of all files, and types and enumerators of system headers, by name."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._macros: dict[str, Cursor] = {}
        self._types: dict[tuple[str, str], Cursor] = {}
        self._enums: list[Cursor] = []
        self._parsed: dict[str, Callable[[], nodes.Expr | None] | None] = {}
        self._enumerators: dict[str, Cursor] | None = None
        self._nested = False

    # ---- filled by the reader

    def add_macro(self, name: str, cursor: Cursor) -> None:
        """Add a macro; the last definition of a name takes effect."""
        self._macros[name] = cursor

    def add_type(self, kind: str, name: str, cursor: Cursor) -> None:
        """Add a definition of a system header; *name* is empty for an anonymous enumeration."""
        if name:
            self._types.setdefault((kind, name), cursor)
        if kind == "enum":
            self._enums.append(cursor)

    # ---- queried by the definitions

    def macro(self, name: str) -> nodes.Expr | None:
        """The expression that an object-like macro stands for."""
        if name not in self._parsed:
            cursor = self._macros.get(name)
            self._parsed[name] = self._reader.define(cursor) if cursor is not None else None
        parsed = self._parsed[name]
        return parsed() if parsed is not None else None

    def macro_names(self) -> list[str]:
        """Names of all macros that files define."""
        return [name for name, cursor in self._macros.items() if cursor.location.file is not None]

    def library_type(self, kind: str, name: str) -> Type | None:
        """The ``struct``, ``union``, ``enum`` or ``typedef`` of that name in headers other than the kernel's."""
        cursor = self._types.get((kind, name))
        return None if cursor is None or self._of_kernel(cursor) else self._read(kind, cursor)

    def any_type(self, kind: str, name: str) -> Type | None:
        """Like :meth:`library_type` for all headers, nested types included: C has no scopes there."""
        if (kind, name) not in self._types:
            self._find_nested()
        cursor = self._types.get((kind, name))
        return self._read(kind, cursor) if cursor is not None else None

    def _read(self, kind: str, cursor: Cursor) -> Type | None:
        if kind == "typedef":
            return self._reader.type(cursor.underlying_typedef_type)
        type_ = self._reader.enum(cursor) if kind == "enum" else self._reader.record(cursor)
        return type_ if isinstance(type_, Enum | Struct) else None

    def enumerator(self, name: str) -> tuple[Enum, int] | None:
        """The enumeration that has a member of that name, and the member's value."""
        if self._enumerators is None:
            self._enumerators = {item.spelling: cursor for cursor in self._enums for item in cursor.get_children()}
        cursor = self._enumerators.get(name)
        enum = self._reader.enum(cursor) if cursor is not None else None
        if not isinstance(enum, Enum):
            return None
        value = dict(enum.members).get(name)
        return None if value is None else (enum, value)

    def enumerators(self) -> list[str]:
        """Names of all members of enumerations."""
        self.enumerator("")
        return list(self._enumerators or ())

    def names(self, kind: str) -> Iterator[str]:
        """Names of all types of one kind."""
        return (name for own_kind, name in self._types if own_kind == kind)

    def _of_kernel(self, cursor: Cursor) -> bool:
        return self._reader.translation.headers.holds(str(cursor.location.file))

    def _find_nested(self) -> None:
        """Add types declared inside structs; done once."""
        if self._nested:
            return
        self._nested = True
        records = [cursor for (kind, _), cursor in self._types.items() if kind in ("struct", "union")]
        while records:
            for kind, cursor in self._reader.inner(records.pop()):
                self.add_type(kind, self._reader.name(cursor), cursor)
                if kind != "enum":
                    records.append(cursor)
        self._enumerators = None
