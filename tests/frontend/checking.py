"""What the tests of typing rules and of builtins' checks ask of a short script."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options import CompileOptions
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import CheckedProgram
from tests.support.front import analyse
from tests.support.rows import each_row

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


# ---------------------------------------------------------------------------------------------- tests of rows


def refusals(table: Sequence[tuple[str, str, str]]) -> Callable[[str, str, str], None]:
    """A test that the first error of a script is *message* at *place*, for each row of *table*."""

    @each_row(("script", "place", "message"), table)
    def test(script: str, place: str, message: str) -> None:
        assert refused(script) == (place, message)

    return test


def warnings(table: Sequence[tuple[str, str, str]]) -> Callable[[str, str, str], None]:
    """A test that the only warning of a script is *message* at *place*, for each row of *table*."""

    @each_row(("script", "place", "message"), table)
    def test(script: str, place: str, message: str) -> None:
        assert warned(script) == (place, message)

    return test


def values(table: Sequence[tuple[str, str, object]]) -> Callable[[str, str, object], None]:
    """A test of the type and the constant that a script's last event sends, for each row of *table*."""

    @each_row(("script", "type_", "constant"), table)
    def test(script: str, type_: str, constant: object) -> None:
        assert value(script) == (type_, constant)

    return test
