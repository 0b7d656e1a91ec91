"""Type inference from removed code: `if comptime`, unreachable statements, skipped probes.

The types of maps and variables are inferred from the whole script, so that they do not depend on which part of it
runs: ``/has_cpid/`` is false without ``-c``, and ``clear(@m)`` elsewhere still needs the type of ``@m``.  Removed code
is checked like any other, but its errors are not reported, it is not passed to the generator, and on a conflict with
code that runs, the latter decides.

Code that is removed before type inference (by ``if comptime``, or with a probe that is left out) is used only when
nothing else determines the type of a map.
"""

from __future__ import annotations

from collections.abc import Callable

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Span
from pytrace.core.types import Type
from pytrace.frontend.check.inference.checker import Checker
from pytrace.frontend.check.inference.conversions import UNKNOWN
from pytrace.frontend.check.inference.slots import MapState, Removed
from pytrace.frontend.syntax.typed_program import CheckedProgram

NEVER_REACHED = Removed("unreachable code", None, spare=False)
TAKEN_OUT = Removed("removed by if comptime", None, spare=True)


def left_out(probe: Span) -> Removed:
    """The reason for removing a probe without targets."""
    return Removed("this probe was skipped", probe, spare=True)


def look(checker: Checker, why: Removed, run: Callable[[], object]) -> None:
    """Check removed code by calling *run*."""
    around = checker.removed
    if why.spare and not checker.searching:
        return
    kept = checker.diagnostics, checker.program, checker.callees
    checker.diagnostics, checker.program, checker.callees = Diagnostics(), CheckedProgram(units=kept[1].units), []
    checker.removed = why if around is None or why.spare else around
    try:
        run()
    finally:
        checker.diagnostics, checker.program, checker.callees = kept
        checker.removed = around


def undefined_map(checker: Checker, state: MapState, span: Span) -> Type:
    """Report a map whose types are not known."""
    if state.value.untyped and checker.diagnostics.failed:
        return UNKNOWN  # what is stored in it has an error, which has been reported
    if state.removed is None:
        return checker.error(f"undefined map {state.name}: nothing is ever stored in it", span)
    kind = "percpuhash" if state.value.type.aggregate else "hash"
    entries = 1 if state.keyed is False else 1024
    return checker.error(
        f"undefined map {state.name}: only removed code stores something in it",
        span,
        notes=[state.removed],
        hints=[f"declare the map to make it exist: let {state.name} = {kind}({entries});"],
    )
