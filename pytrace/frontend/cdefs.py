"""C definitions of a script: types, enumerators and object-like macros, with the kernel's behind them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from pytrace.dataclass import dataclass, field
from pytrace.diagnostics import Diagnostics
from pytrace.frontend import ast, imports
from pytrace.kernel import KernelInfo
from pytrace.options import CompileOptions
from pytrace.types import Enum, Struct, Type


@dataclass(slots=True)
class Definitions:
    """Names of C that a script may use: its own definitions, those of the kernel, those of the binaries it traces."""

    kernel: KernelInfo
    structs: dict[tuple[str, str], Struct] = field(default_factory=dict)
    enums: dict[str, Enum] = field(default_factory=dict)
    enumerators: dict[str, tuple[Enum, int]] = field(default_factory=dict)
    typedefs: dict[str, Type] = field(default_factory=dict)
    macros: dict[str, Callable[[], ast.Expr | None]] = field(default_factory=dict)
    """Macros by name: parsed, or evaluated by the C front end, when asked for; each time a new tree."""
    files: list[str] = field(default_factory=list)
    """Headers that were read."""
    absent: list[str] = field(default_factory=list)
    """Kernel headers that the machine does not have, in whose place the types of BTF stand."""
    binaries: tuple[str, ...] = ()
    """Files of user probes, whose DWARF has types."""

    def struct(self, kind: str, name: str) -> Struct | None:
        """The ``struct`` or ``union`` of that name."""
        found = self.structs.get((kind, name)) or self.kernel.struct(kind, name) or self._of_binaries(kind, name)
        return found if isinstance(found, Struct) else None

    def enum(self, name: str) -> Enum | None:
        """The enumeration of that name."""
        found = self.enums.get(name) or self.kernel.enum(name) or self._of_binaries("enum", name)
        return found if isinstance(found, Enum) else None

    def _of_binaries(self, kind: str, name: str) -> Type | None:
        found = (self.kernel.user_type(path, kind, name) for path in self.binaries)
        return next((item for item in found if item is not None), None)

    def enumerator(self, name: str) -> tuple[Enum, int] | None:
        """The enumeration that has a member of that name, and the member's value."""
        return self.enumerators.get(name) or self.kernel.enumerator(name)

    def typedef(self, name: str) -> Type | None:
        """What a typedef or a C base type stands for."""
        return self.typedefs.get(name) or self.kernel.typedef(name)

    def macro(self, name: str) -> ast.Expr | None:
        """The expression that an object-like macro stands for; names in it are not resolved."""
        found = self.macros.get(name)
        return found() if found is not None else None

    def names(self, kind: str) -> Iterable[str]:
        """Names of all ``struct``, ``union``, ``enum``, ``typedef`` or ``macro`` definitions, for suggestions."""
        if kind == "macro":
            return list(self.macros)
        own = [name for found, name in self.structs if found == kind]
        own.extend(self.enums if kind == "enum" else self.typedefs if kind == "typedef" else ())
        return [*own, *self.kernel.type_names(kind)]


def read(program: ast.Program, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics) -> Definitions:
    """The definitions of the program's C part and of the headers that it and ``--include`` name."""
    found = Definitions(kernel)
    if program.c_parts or options.includes:
        from pytrace.frontend import cfrontend

        cfrontend.read(program, options, kernel, diagnostics, found)
    for path in (*imports.files(program)[1:], *found.files):
        if os.path.isabs(path):
            kernel.depend_on_file(path)
    return found
