"""C definitions of a script: types, enumerators and object-like macros, completed by the kernel's.

The kernel's headers declare tens of thousands of macros and thousands of types, of which a script uses a few: their
names are collected in one traversal of the translation unit and converted on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.kernel_info import KernelInfo
from pytrace.core.types import Enum, Struct, Type
from pytrace.frontend.c import constants
from pytrace.frontend.c.libclang import Cursor
from pytrace.frontend.expand import c_macros
from pytrace.frontend.expand.c_macros import CMacro, NoValue
from pytrace.frontend.syntax import nodes

if TYPE_CHECKING:
    from pytrace.frontend.c.declarations import Reader


class Definitions(msgspec.Struct):
    """C names that a script may use: its own definitions, the kernel's, and those of the binaries it traces."""

    kernel: KernelInfo
    structs: dict[tuple[str, str], Struct] = msgspec.field(default_factory=dict)
    enums: dict[str, Enum] = msgspec.field(default_factory=dict)
    enumerators: dict[str, tuple[Enum, int]] = msgspec.field(default_factory=dict)
    typedefs: dict[str, Type] = msgspec.field(default_factory=dict)
    macros: dict[str, Callable[[], nodes.Expr | None]] = msgspec.field(default_factory=dict)
    """Macros by name: parsed, or evaluated by the C front end, on demand; each call returns a new tree."""
    written: dict[str, CMacro] = msgspec.field(default_factory=dict)
    """Macros that the script itself defines, as written, for messages."""
    headers: DeclaredNames | None = None
    """Declarations in system headers. Those of the C library take precedence over the kernel's BTF, and BTF over the
    kernel's own headers.
    """
    files: list[str] = msgspec.field(default_factory=list)
    """Headers that were read, other than the kernel's."""
    kernel_files: list[str] = msgspec.field(default_factory=list)
    """Headers of the kernel that were read."""
    skipped: Callable[[str], list[str]] = lambda _: []
    """Hints about headers that were not read, for a relation of a name to one (``a macro of``, ``defined in``)."""
    binaries: tuple[str, ...] = ()
    """Binaries of user probes, whose DWARF has types."""

    def struct(self, kind: str, name: str) -> Struct | None:
        """The ``struct`` or ``union`` of that name."""
        type_ = self.structs.get((kind, name)) or self._type(kind, name, self.kernel.struct(kind, name))
        return type_ if isinstance(type_, Struct) else None

    def enum(self, name: str) -> Enum | None:
        """The enumeration of that name."""
        type_ = self.enums.get(name) or self._type("enum", name, self.kernel.enum(name))
        return type_ if isinstance(type_, Enum) else None

    def _type(self, kind: str, name: str, of_btf: Type | None) -> Type | None:
        """A type that the script does not define: of the C library, the kernel, or the traced binaries."""
        return (
            (self.headers and self.headers.library_type(kind, name))
            or of_btf
            or (self.headers and self.headers.any_type(kind, name))
            or (self._of_binaries(kind, name) if kind != "typedef" else None)
        )

    def _of_binaries(self, kind: str, name: str) -> Type | None:
        types = (self.kernel.user_type(path, kind, name) for path in self.binaries)
        return next((item for item in types if item is not None), None)

    def enumerator(self, name: str) -> tuple[Enum, int] | None:
        """The enumeration that has a member of that name, and the member's value."""
        own = self.enumerators.get(name)
        if own is not None:
            return own
        declared = self.headers.enumerator(name) if self.headers is not None else None
        of_btf = self.kernel.enumerator(name)
        # BTF may have several definitions of a name; the one that the script included takes precedence.
        return of_btf if declared is None or (of_btf is not None and of_btf[1] == declared[1]) else declared

    def typedef(self, name: str) -> Type | None:
        """The type of a typedef or a C base type."""
        return self.typedefs.get(name) or self._type("typedef", name, self.kernel.typedef(name))

    def macro(self, name: str) -> nodes.Expr | None:
        """The expression that an object-like macro stands for; names in it are not resolved."""
        expression = self.macros.get(name)
        if expression is not None:
            return expression()
        return self.headers.macro(name) if self.headers is not None else None

    def no_value(self, name: str) -> NoValue | None:
        """The reason why a macro of the script, used as a value, has none; None for other names."""
        definition = self.written.get(name)
        return c_macros.no_value(definition) if definition is not None else None

    def constant(self, name: str) -> int | None:
        """The built-in value of a kernel header macro, for names without another definition."""
        return constants.value(name, self.kernel)

    def names(self, kind: str) -> Iterable[str]:
        """Names of all ``struct``, ``union``, ``enum``, ``typedef``, ``macro`` or ``constant`` definitions, for
        suggestions.
        """
        if kind == "macro":
            return [*self.macros, *(self.headers.macro_names() if self.headers is not None else ())]
        if kind == "constant":
            return self._constants()
        own = [name for own_kind, name in self.structs if own_kind == kind]
        own.extend(self.enums if kind == "enum" else self.typedefs if kind == "typedef" else ())
        if self.headers is not None:
            own.extend(self.headers.names(kind))
        return [*own, *self.kernel.type_names(kind)]

    def _constants(self) -> list[str]:
        declared = self.headers.enumerators() if self.headers is not None else ()
        return [*self.names("macro"), *self.enumerators, *declared, *constants.names(self.kernel)]


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
