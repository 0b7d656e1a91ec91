"""C definitions of a script: types, enumerators and object-like macros, completed by the kernel's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.types import Enum, Struct, Type
from pytrace.frontend.expand import c_macros, imports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytrace.core.diagnostics import Diagnostics
    from pytrace.core.kernel_info import KernelInfo
    from pytrace.core.options.compile_options import CompileOptions
    from pytrace.frontend.ast import nodes
    from pytrace.frontend.c.header_names import DeclaredNames
    from pytrace.frontend.expand.c_macros import CMacro, NoValue


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
        from pytrace.frontend.c import constants

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
        from pytrace.frontend.c import constants

        declared = self.headers.enumerators() if self.headers is not None else ()
        return [*self.names("macro"), *self.enumerators, *declared, *constants.names(self.kernel)]


def read(program: nodes.Program, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics) -> Definitions:
    """Read the definitions of the program's C part, of its headers and of those of ``--include``."""
    definitions = Definitions(kernel, written=c_macros.defined(program))
    if program.c_parts or options.includes:
        from pytrace.frontend.c import declarations

        declarations.read(program, options, kernel, diagnostics, definitions)
    for path in (*imports.files(program)[1:], *definitions.files):
        if os.path.isabs(path):
            kernel.depend_on_file(path)
    if definitions.kernel_files:
        kernel.depend_on_headers(definitions.kernel_files)
    return definitions
