"""The compilation pipeline: from a script's text to a compiled script, one pass after the other.

A pass is a function of the results of earlier passes; :data:`PASSES` lists them in order. :meth:`Compilation.do` runs a
pass, notifies the watcher, and ends the compilation when the pass reported errors. Nothing here prints: messages are
collected in :class:`~pytrace.core.diagnostics.Diagnostics`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import Diagnostics, PlacedError, ScriptError, render
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.manifest import AheadOfTime, CompiledScript
from pytrace.core.options import CompileOptions, Config
from pytrace.core.probe_kinds import kind_of
from pytrace.core.source import Source
from pytrace.frontend.check import analysis as analysis_pass
from pytrace.frontend.expand import c_definitions as definitions_pass
from pytrace.frontend.expand import call_probes as calls_pass
from pytrace.frontend.expand import imports as imports_pass
from pytrace.frontend.expand import macros as macros_pass
from pytrace.frontend.expand import parameters as parameters_pass
from pytrace.frontend.expand import settings as settings_pass
from pytrace.frontend.expand.c_definitions import Definitions
from pytrace.frontend.probes import attach_points as attach_points_pass
from pytrace.frontend.syntax import nodes, parser
from pytrace.frontend.syntax.typed_program import CheckedProgram, ProbeUnit

RECURSION = 60_000
"""Recursion limit of a pass, in Python frames."""

P = ParamSpec("P")
R = TypeVar("R")

Watch = Callable[[str, object], None]
"""Called with the name and the result of each pass that reported no errors."""


class Compilation(msgspec.Struct, frozen=True):
    """Inputs of one compilation, and its diagnostics."""

    source: Source
    options: CompileOptions
    kernel: KernelInfo
    diagnostics: Diagnostics
    watch: Watch | None = None
    keep: Watch | None = None
    """As *watch*, and called for a pass that reported errors, too: with what it found."""

    def do(self, step: Callable[Concatenate[Compilation, P], R], *results: P.args, **named: P.kwargs) -> R:
        """Run a pass on the results of earlier passes.

        Raises:
            ScriptError: the pass reported errors (they are in ``diagnostics``).
        """
        result = step(self, *results, **named)
        if self.keep is not None:
            self.keep(step.__name__, result)
        self.diagnostics.check()
        if self.watch is not None:
            self.watch(step.__name__, result)
        return result


class Programs(msgspec.Struct, frozen=True):
    """A script's probes after expansion, with intermediate results."""

    merged: nodes.Program
    """The AST with all imports merged, before parameters and macros are expanded."""
    expanded: nodes.Program
    config: Config
    definitions: Definitions
    units: list[ProbeUnit]


class FrontEnd(msgspec.Struct, frozen=True):
    """The result of the front end."""

    merged: nodes.Program
    checked: CheckedProgram


# ---------------------------------------------------------------------------------------------- passes


def parse(c: Compilation) -> nodes.Program:
    """The AST of the script's text."""
    return parser.parse(c.source, c.diagnostics)


def imports(c: Compilation, parsed: nodes.Program) -> nodes.Program:
    """The AST with all imports merged."""
    return imports_pass.resolve(parsed, c.options, c.diagnostics)


def settings(c: Compilation, merged: nodes.Program) -> Config:
    """The configuration."""
    return settings_pass.read(merged, c.options, c.diagnostics)


def definitions(c: Compilation, merged: nodes.Program) -> Definitions:
    """Types, enumerations and macros of the C part."""
    return definitions_pass.read(merged, c.options, c.kernel, c.diagnostics)


def parameters(c: Compilation, merged: nodes.Program) -> nodes.Program:
    """The AST with parameters replaced by their values."""
    return parameters_pass.substitute(merged, c.options, c.diagnostics)


def conditions(c: Compilation, substituted: nodes.Program, defined: Definitions, config: Config) -> nodes.Program:
    """The AST with the items selected by conditions at the root."""
    return analysis_pass.choose(substituted, c.options, c.kernel, defined, config, c.diagnostics)


def macros(c: Compilation, chosen: nodes.Program, defined: Definitions) -> nodes.Program:
    """The AST with macros expanded."""
    return macros_pass.expand(chosen, defined, c.diagnostics)


def calls(c: Compilation, expanded: nodes.Program) -> nodes.Program:
    """The AST with two probes in place of each ``call:``."""
    return calls_pass.expand(expanded, c.options, c.kernel, c.diagnostics)


def attach_points(c: Compilation, expanded: nodes.Program, config: Config) -> list[ProbeUnit]:
    """One unit for each program, with all its targets."""
    return attach_points_pass.expand(expanded, c.options, c.kernel, config, c.diagnostics)


def analysis(c: Compilation, programs: Programs) -> CheckedProgram:
    """The typed program."""
    p = programs
    return analysis_pass.analyse(p.units, p.expanded, c.options, c.kernel, p.definitions, p.config, c.diagnostics)


def generate(c: Compilation, checked: CheckedProgram) -> CompiledScript:
    """BPF code and manifest."""
    from pytrace.codegen.lower import generator  # LLVM: not with -l

    try:
        return generator.compile_program(checked, c.kernel, c.options)
    except PlacedError as problem:
        c.diagnostics.error(problem.message, problem.span, hints=problem.hints)
        raise ScriptError from problem


PASSES = (
    parse, imports, settings, definitions, parameters, conditions, macros, calls, attach_points, analysis, generate,
)  # fmt: skip
"""All passes, in the order in which they run."""

# ---------------------------------------------------------------------------------------------- pipeline


def find_programs(c: Compilation) -> Programs:
    """Run the passes up to attach points, which is enough to list a script's probes (``-l``).

    Raises:
        ScriptError: a pass reported errors (they are in ``c.diagnostics``); the same holds for the functions below.
    """
    with room():
        merged = c.do(imports, c.do(parse))
        config = c.do(settings, merged)
        defined = c.do(definitions, merged)
        chosen = c.do(conditions, c.do(parameters, merged), defined, config)
        expanded = c.do(calls, c.do(macros, chosen, defined))
        units = c.do(attach_points, expanded, config)
    return Programs(merged, expanded, config, defined, units)


def front_end(c: Compilation) -> FrontEnd:
    """Run the passes from text to typed program."""
    programs = find_programs(c)
    with room():
        return FrontEnd(programs.merged, c.do(analysis, programs))


def back_end(c: Compilation, front: FrontEnd) -> CompiledScript:
    """Run the passes from typed program to compiled script; warnings and facts go into the manifest."""
    with room():
        script = c.do(generate, front.checked)
    warnings = tuple(render(item) for item in (*c.diagnostics.warnings, *c.diagnostics.notes))
    facts = c.kernel.dependencies()
    if _looks_at_processes(front.checked.units, front.merged):
        facts = (*facts, c.options.processes_fact)
    ahead = script.manifest.ahead
    if ahead is not None:
        ahead = _completed(ahead, front.merged, c)
    return replace(script, manifest=replace(script.manifest, warnings=warnings, facts=facts, ahead=ahead))


def compile_script(
    source: Source, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics
) -> CompiledScript:
    """Compile *source*.

    Args:
        source: the script.
        options: options that the code depends on; part of the compile cache's key.
        kernel: facts about the machine; those that are used are recorded in the manifest.
        diagnostics: receives errors, warnings and notes.

    Returns:
        ELF bytes and manifest; the manifest has the rendered warnings and the facts' fingerprints.

    Raises:
        ScriptError: the script has errors; they are in *diagnostics*.
        TraceError: the machine lacks a feature that the script needs.
    """
    compilation = Compilation(source, options, kernel, diagnostics)
    return back_end(compilation, front_end(compilation))


@contextmanager
def room() -> Iterator[None]:
    """Raise the recursion limit for ASTs as deep as the parser accepts; Python's frames are on the heap."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _looks_at_processes(units: list[ProbeUnit], merged: nodes.Program) -> bool:
    """Whether targets depend on the processes of ``-p``: those of user probes do, even if none was resolved."""
    if any(unit.kind.user for unit in units):
        return True
    kinds = (kind_of(point.text) for probe in merged.probes for point in probe.attach_points)
    return any(kind is None or kind.user for kind in kinds)


def _completed(ahead: AheadOfTime, merged: nodes.Program, c: Compilation) -> AheadOfTime:
    """The ahead-of-time section of the manifest, completed with the parameters and the required kernel features."""
    return replace(
        ahead,
        parameters=parameters_pass.describe(merged, c.options),
        follow=c.options.follow,
        filters=c.options.shape.text(),
        features=tuple(sorted(c.kernel.features_used)),
        script_hash=hashlib.sha256(c.source.text.encode("utf-8", "surrogateescape")).hexdigest(),
    )
