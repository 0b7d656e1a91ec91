"""From a script's text to a compiled script: the passes, in a straight line.

A pass is a function of what former passes made; :data:`PASSES` lists them in order. :meth:`Compilation.do` runs one,
tells who watches, and ends the compilation when the pass found errors. Nothing here prints: messages are collected
in :class:`~pytrace.core.diagnostics.Diagnostics`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from pytrace.base.fast_dataclass import dataclass, replace
from pytrace.core.diagnostics import PlacedError, ScriptError, render

if TYPE_CHECKING:
    from pytrace.core.compile_options import CompileOptions
    from pytrace.core.config import Config
    from pytrace.core.diagnostics import Diagnostics
    from pytrace.core.kernel_info import KernelInfo
    from pytrace.core.manifest import CompiledScript
    from pytrace.core.manifest_sections import AheadOfTime
    from pytrace.core.source import Source
    from pytrace.frontend.ast import nodes
    from pytrace.frontend.ast.typed_program import CheckedProgram, ProbeUnit
    from pytrace.frontend.c.definitions import Definitions

RECURSION = 60_000
"""Python frames that a pass may take."""

P = ParamSpec("P")
R = TypeVar("R")

Watch = Callable[[str, object], None]
"""Is told the name of a pass that found no errors, and what it made."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """The inputs of one compilation, and where its messages go."""

    source: Source
    options: CompileOptions
    kernel: KernelInfo
    diagnostics: Diagnostics
    watch: Watch | None = None

    def do(self, step: Callable[Concatenate[Compilation, P], R], *made: P.args, **named: P.kwargs) -> R:
        """Run a pass on what former passes made.

        Raises:
            ScriptError: the pass found errors (they are in ``diagnostics``).
        """
        result = step(self, *made, **named)
        self.diagnostics.check()
        if self.watch is not None:
            self.watch(step.__name__, result)
        return result


@dataclass(frozen=True, slots=True)
class Programs:
    """A script's probes after expansion, and what it took to find them."""

    merged: nodes.Program
    """With everything that the script imports; parameters and macros are still in it."""
    expanded: nodes.Program
    config: Config
    definitions: Definitions
    units: list[ProbeUnit]


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """What the front end made of a script."""

    merged: nodes.Program
    checked: CheckedProgram


# ---------------------------------------------------------------------------------------------- passes


def parse(c: Compilation) -> nodes.Program:
    """The tree of the script's text."""
    from pytrace.frontend.syntax import parser

    return parser.parse(c.source, c.diagnostics)


def imports(c: Compilation, parsed: nodes.Program) -> nodes.Program:
    """The tree with everything that the script imports."""
    from pytrace.frontend.expand import imports

    return imports.resolve(parsed, c.options, c.diagnostics)


def settings(c: Compilation, merged: nodes.Program) -> Config:
    """The configuration."""
    from pytrace.frontend.expand import settings

    return settings.read(merged, c.options, c.diagnostics)


def definitions(c: Compilation, merged: nodes.Program) -> Definitions:
    """Types, enumerations and macros of the C part."""
    from pytrace.frontend.c import definitions

    return definitions.read(merged, c.options, c.kernel, c.diagnostics)


def parameters(c: Compilation, merged: nodes.Program) -> nodes.Program:
    """The tree with values in place of parameters."""
    from pytrace.frontend.expand import parameters

    return parameters.substitute(merged, c.options, c.diagnostics)


def macros(c: Compilation, substituted: nodes.Program, defined: Definitions) -> nodes.Program:
    """The tree without macros and their uses."""
    from pytrace.frontend.expand import macros

    return macros.expand(substituted, defined, c.diagnostics)


def attach_points(c: Compilation, expanded: nodes.Program, defined: Definitions, config: Config) -> list[ProbeUnit]:
    """One unit for each program, with all its targets."""
    from pytrace.frontend.attach import attach_points

    return attach_points.expand(expanded, c.options, c.kernel, defined, config, c.diagnostics)


def analysis(c: Compilation, programs: Programs) -> CheckedProgram:
    """The typed program."""
    from pytrace.frontend.check import analysis

    p = programs
    return analysis.analyse(p.units, p.expanded, c.options, c.kernel, p.definitions, p.config, c.diagnostics)


def generate(c: Compilation, checked: CheckedProgram) -> CompiledScript:
    """BPF code and manifest."""
    from pytrace.codegen import generator

    try:
        return generator.compile_program(checked, c.kernel, c.options)
    except PlacedError as problem:
        c.diagnostics.error(problem.message, problem.span, hints=problem.hints)
        raise ScriptError from problem


PASSES = (parse, imports, settings, definitions, parameters, macros, attach_points, analysis, generate)
"""All passes, in the order in which they run."""

# ---------------------------------------------------------------------------------------------- the line


def find_programs(c: Compilation) -> Programs:
    """The passes up to attach points: as far as a listing of a script's probes needs.

    Raises:
        ScriptError: a pass found errors (they are in ``c.diagnostics``); the same for the functions below.
    """
    with _room():
        merged = c.do(imports, c.do(parse))
        config = c.do(settings, merged)
        defined = c.do(definitions, merged)
        expanded = c.do(macros, c.do(parameters, merged), defined)
        units = c.do(attach_points, expanded, defined, config)
    return Programs(merged, expanded, config, defined, units)


def front_end(c: Compilation) -> FrontEnd:
    """The passes from text to typed program."""
    programs = find_programs(c)
    with _room():
        return FrontEnd(programs.merged, c.do(analysis, programs))


def back_end(c: Compilation, front: FrontEnd) -> CompiledScript:
    """The rest; warnings and facts go into the manifest."""
    with _room():
        script = c.do(generate, front.checked)
    warnings = tuple(render(item) for item in (*c.diagnostics.warnings, *c.diagnostics.notes))
    facts = c.kernel.dependencies()
    ahead = script.manifest.ahead
    if ahead is not None:
        ahead = _completed(ahead, front.merged, c)
    return replace(script, manifest=replace(script.manifest, warnings=warnings, facts=facts, ahead=ahead))


def compile_script(
    source: Source, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics
) -> CompiledScript:
    """Compile *source*.

    Raises:
        ScriptError: the script has errors; *diagnostics* tells which.
    """
    compilation = Compilation(source, options, kernel, diagnostics)
    return back_end(compilation, front_end(compilation))


@contextmanager
def _room() -> Iterator[None]:
    """Room for the recursion over trees as deep as the parser takes them; Python's frames live on the heap."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _completed(ahead: AheadOfTime, merged: nodes.Program, c: Compilation) -> AheadOfTime:
    """What an ahead-of-time file keeps, with parameters, and what the kernel must be able to do."""
    import hashlib

    from pytrace.frontend.expand import parameters

    return replace(
        ahead,
        parameters=parameters.describe(merged, c.options),
        follow=c.options.follow,
        features=tuple(sorted(c.kernel.features_used)),
        script_hash=hashlib.sha256(c.source.text.encode("utf-8", "surrogateescape")).hexdigest(),
    )
