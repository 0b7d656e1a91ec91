"""What the tests of typing rules and of builtins' checks ask of a short script."""

from __future__ import annotations

from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options.compile_options import CompileOptions
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.typed_program import CheckedProgram
from tests.support.front import analyse

UNSAFE = CompileOptions(unsafe=True)


def refused(script: str, options: CompileOptions = UNSAFE, kernel: KernelInfo | None = None) -> tuple[str, str]:
    """(place, message) of the first error of a script."""
    return analyse(script, options, kernel).errors[0]


def warned(script: str, kernel: KernelInfo | None = None) -> tuple[str, str]:
    """(place, message) of the only warning of a script without errors."""
    result = analyse(script, UNSAFE, kernel)
    assert not result.errors, result.errors
    (found,) = result.warnings
    return found


def last_value(script: str, kernel: KernelInfo | None = None) -> tuple[CheckedProgram, nodes.Expr]:
    """A script without errors, and the argument of its last event."""
    program = analyse(script, UNSAFE, kernel).checked()
    return program, list(program.event_arguments.values())[-1][-1]


def value(script: str, kernel: KernelInfo | None = None) -> tuple[str, int | bool | bytes | None]:
    """Type and, where it is known, value of what the last event of a script sends."""
    program, node = last_value(script, kernel)
    return str(program.types[node]), program.constants.get(node)
