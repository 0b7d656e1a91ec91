"""The standard library: macros written in the language itself, in ``pytrace/stdlib``.

A file is parsed only when a script uses one of its macros.
"""

from __future__ import annotations

import os
from functools import cache

from pytrace.core import script_files
from pytrace.core.diagnostics import Diagnostics, InternalError
from pytrace.frontend.syntax import nodes, parser
from pytrace.frontend.syntax.typed_program import LIBRARY_PREFIX

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "stdlib")

FILES: dict[str, str] = {
    "assert": "assert.bt",
    "container_of": "memory.bt",
}
"""Macros of each file; a test checks that it is complete."""


def macros(name: str) -> list[nodes.Macro]:
    """The library's macros of that name, all overloads."""
    file = FILES.get(name)
    return [macro for macro in load(file) if macro.name == name] if file is not None else []


@cache
def load(file: str) -> tuple[nodes.Macro, ...]:
    """All macros of one library file."""
    path = os.path.join(FOLDER, file)
    source = script_files.text(path, LIBRARY_PREFIX + file)
    diagnostics = Diagnostics()
    program = parser.parse(source, diagnostics)
    if diagnostics.failed:
        raise InternalError(f"{file}: {diagnostics.errors[0].message}")
    return tuple(item for item in program.items if isinstance(item, nodes.Macro))
