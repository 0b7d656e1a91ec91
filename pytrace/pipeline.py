"""The compilation pipeline: from a script's text to a compiled script, one pass after the other.

A pass is a function of the results of earlier passes; :data:`PASSES` names them in order. :meth:`Compilation.do` runs a
pass, notifies the watcher, and ends the compilation when the pass reported errors. Nothing here prints: messages are
collected in :class:`~pytrace.core.diagnostics.Diagnostics`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import Diagnostics, PlacedError, ScriptError, render
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.manifest import AheadOfTime, CompiledScript, ProgramSpec
from pytrace.core.options import CompileOptions, Config
from pytrace.core.probe_kinds import kind_of, program_type
from pytrace.core.source import Source
from pytrace.frontend.check import analysis
from pytrace.frontend.expand import c_definitions, call_probes, imports, macros, parameters, settings
from pytrace.frontend.expand.c_definitions import Definitions
from pytrace.frontend.probes import attach_points
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

    def do(self, name: str, step: Callable[P, R], *results: P.args, **named: P.kwargs) -> R:
        """Run the pass *name* on the results of earlier passes.

        Raises:
            ScriptError: the pass reported errors (they are in ``diagnostics``).
        """
        result = step(*results, **named)
        if self.keep is not None:
            self.keep(name, result)
        if self.diagnostics.failed:
            raise ScriptError
        if self.watch is not None:
            self.watch(name, result)
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


PASSES = (
    "parse", "imports", "settings", "definitions", "parameters", "conditions", "macros", "calls", "attach_points",
    "analysis", "generate",
)  # fmt: skip
"""All passes, in the order in which they run."""


def find_programs(c: Compilation) -> Programs:
    """Run the passes up to attach points, which is enough to list a script's probes (``-l``).

    Raises:
        ScriptError: a pass reported errors (they are in ``c.diagnostics``); the same holds for the functions below.
    """
    with room():
        tree = c.do("parse", parser.parse, c.source, c.diagnostics)
        if imports.start_here(tree, c.options):
            c.kernel.depend_on_path(".")
        merged = tree = c.do("imports", imports.resolve, tree, c.options, c.diagnostics)
        config = c.do("settings", settings.read, tree, c.options, c.diagnostics)
        defined = c.do("definitions", c_definitions.read, tree, c.options, c.kernel, c.diagnostics)
        tree = c.do("parameters", parameters.substitute, tree, c.options, c.diagnostics)
        for path in parameters.named_paths(merged, c.options):
            c.kernel.depend_on_path(path)
        tree = c.do("conditions", analysis.choose, tree, c.options, c.kernel, defined, config, c.diagnostics)
        tree = c.do("macros", macros.expand, tree, defined, c.diagnostics)
        expanded = c.do("calls", call_probes.expand, tree, c.options, c.kernel, c.diagnostics)
        units = c.do("attach_points", attach_points.expand, expanded, c.options, c.kernel, config, c.diagnostics)
    return Programs(merged, expanded, config, defined, units)


def front_end(c: Compilation) -> FrontEnd:
    """Run the passes from text to typed program."""
    p = find_programs(c)
    facts = (c.options, c.kernel, p.definitions, p.config, c.diagnostics)
    with room():
        return FrontEnd(p.merged, c.do("analysis", analysis.analyse, p.units, p.expanded, *facts))


def back_end(c: Compilation, front: FrontEnd) -> CompiledScript:
    """Run the passes from typed program to compiled script; warnings and facts go into the manifest."""
    from pytrace.codegen.lower import generator  # LLVM: not with -l

    with room():
        try:
            script = c.do("generate", generator.compile_program, front.checked, c.kernel, c.options)
        except PlacedError as problem:
            c.diagnostics.error(problem.message, problem.span, hints=problem.hints)
            raise ScriptError from problem
    warnings = tuple(render(item) for item in (*c.diagnostics.warnings, *c.diagnostics.notes))
    facts = c.kernel.dependencies()
    if _looks_at_processes(front.checked.units, front.merged):
        facts = (*facts, c.options.processes_fact)
    ahead = script.manifest.ahead
    if ahead is not None:
        ahead = _completed(ahead, front.merged, c)
    programs = script.manifest.programs
    if ahead is None:  # other kernels have other numbers
        programs = tuple(_with_type(program, c.kernel) for program in programs)
    manifest = replace(script.manifest, warnings=warnings, facts=facts, ahead=ahead, programs=programs)
    return replace(script, manifest=manifest)


def _with_type(program: ProgramSpec, kernel: KernelInfo) -> ProgramSpec:
    """The program with what it attaches to, if that has a type: libbpf would read all types for it in each start."""
    if program.part_of or program_type(program.kind, program.multi) != "tracing":
        return program
    return replace(program, type_id=kernel.attach_type(program.targets[0].place))


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
        parameters=parameters.describe(merged, c.options),
        follow=c.options.follow,
        filters=c.options.shape.text(),
        features=tuple(sorted(c.kernel.features_used)),
        script_hash=hashlib.sha256(c.source.text.encode("utf-8", "surrogateescape")).hexdigest(),
    )
