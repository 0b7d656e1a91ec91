"""Runs the passes of the front end on a text, with recorded facts."""

from __future__ import annotations

from dataclasses import dataclass

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options import CompileOptions, Config
from pytrace.core.source import Source, Span
from pytrace.frontend.check import analysis
from pytrace.frontend.check.checker import Checker
from pytrace.frontend.expand import c_definitions, call_probes, imports, macros, parameters, settings
from pytrace.frontend.probes import attach_points
from pytrace.frontend.syntax import parser
from pytrace.frontend.syntax.typed_program import CheckedProgram
from tests.support.recorded import Facts


@dataclass
class Result:
    """What the front end said; *program* is None when it stopped before the analysis."""

    diagnostics: Diagnostics
    program: CheckedProgram | None

    @property
    def errors(self) -> list[tuple[str, str]]:
        """(place, message) of each error."""
        return [(place(item.span), item.message) for item in self.diagnostics.errors]

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """(place, message) of each warning."""
        return [(place(item.span), item.message) for item in self.diagnostics.warnings]

    def checked(self) -> CheckedProgram:
        """The program of a script without errors."""
        assert not self.errors, self.errors
        assert self.program is not None
        return self.program


def place(span: Span) -> str:
    """A span as the recorded outputs write it: ``line:column-column``."""
    return f"{span.first.line}:{span.first.column}-{span.last.column}"


def analyse(text: str, options: CompileOptions | None = None, kernel: KernelInfo | None = None) -> Result:
    """All passes of the front end; stops at the first one that finds errors."""
    options, kernel = options or CompileOptions(), kernel or Facts()
    found = Diagnostics()
    program = parser.parse(Source("stdin", text), found)
    if _failed(found):
        return Result(found, None)
    program = imports.resolve(program, options, found)
    config = settings.read(program, options, found)
    c_part = c_definitions.read(program, options, kernel, found)
    if not _failed(found):
        program = parameters.substitute(program, options, found)
    if not _failed(found):
        program = analysis.choose(program, options, kernel, c_part, config, found)
    if not _failed(found):
        program = call_probes.expand(macros.expand(program, c_part, found), options, kernel, found)
    if _failed(found):
        return Result(found, None)
    units = attach_points.expand(program, options, kernel, config, found)
    if _failed(found):
        return Result(found, None)
    return Result(found, analysis.analyse(units, program, options, kernel, c_part, config, found))


def checker(text: str) -> Checker:
    """The checker of a script's semantic analysis, before its passes."""
    options, kernel, found = CompileOptions(), Facts(), Diagnostics()
    definitions = c_definitions.read(parser.parse(Source("stdin", text), found), options, kernel, found)
    return Checker(options, kernel, definitions, Config(), found)


def _failed(found: Diagnostics) -> bool:
    """A function, so that the type checker does not take the answer for one that cannot change."""
    return found.failed
