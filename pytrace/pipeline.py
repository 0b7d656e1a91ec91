"""From a script's text to a compiled script: the list of passes.

Each pass names what it reads and what it makes; the pipeline runs them in order and stops after the first one
that found errors.  Nothing here prints: messages are collected in :class:`~pytrace.core.diagnostics.Diagnostics`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytrace.base.fast_dataclass import dataclass, field, replace
from pytrace.core.compile_options import CompileOptions
from pytrace.core.diagnostics import Diagnostics, InternalError, PlacedError, render
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.manifest import CompiledScript
from pytrace.core.manifest_sections import AheadOfTime
from pytrace.core.source import Source

RECURSION = 60_000
"""Python frames that a pass may take."""


@dataclass(slots=True)
class Compilation:
    """One script on its way: the inputs, and what the passes made so far (by name)."""

    source: Source
    options: CompileOptions
    kernel: KernelInfo
    diagnostics: Diagnostics
    made: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.made[name]


@dataclass(frozen=True, slots=True)
class Pass:
    """One step: reads *needs* (and the inputs), stores its result as *makes*."""

    name: str
    needs: tuple[str, ...]
    makes: str
    run: Callable[[Compilation], Any]


def _parse(c: Compilation) -> Any:
    from pytrace.frontend.syntax import parser

    return parser.parse(c.source, c.diagnostics)


def _imports(c: Compilation) -> Any:
    from pytrace.frontend.expand import imports

    return imports.resolve(c["parsed"], c.options, c.diagnostics)


def _settings(c: Compilation) -> Any:
    from pytrace.frontend.expand import settings

    return settings.read(c["merged"], c.options, c.diagnostics)


def _definitions(c: Compilation) -> Any:
    from pytrace.frontend.c import definitions

    return definitions.read(c["merged"], c.options, c.kernel, c.diagnostics)


def _parameters(c: Compilation) -> Any:
    from pytrace.frontend.expand import parameters

    return parameters.substitute(c["merged"], c.options, c.diagnostics)


def _macros(c: Compilation) -> Any:
    from pytrace.frontend.expand import macros

    return macros.expand(c["substituted"], c["definitions"], c.diagnostics)


def _attach_points(c: Compilation) -> Any:
    from pytrace.frontend.attach import attach_points

    return attach_points.expand(c["expanded"], c.options, c.kernel, c["definitions"], c["config"], c.diagnostics)


def _analysis(c: Compilation) -> Any:
    from pytrace.frontend.check import analysis

    return analysis.analyse(
        c["units"], c["expanded"], c.options, c.kernel, c["definitions"], c["config"], c.diagnostics
    )


def _generate(c: Compilation) -> Any:
    from pytrace.codegen import generator

    try:
        return generator.compile_program(c["checked"], c.kernel, c.options)
    except PlacedError as problem:
        c.diagnostics.error(problem.message, problem.span, hints=problem.hints)
        return None


FRONT_END: tuple[Pass, ...] = (
    Pass("parse", (), "parsed", _parse),
    Pass("imports", ("parsed",), "merged", _imports),
    Pass("settings", ("merged",), "config", _settings),
    Pass("definitions", ("merged",), "definitions", _definitions),
    Pass("parameters", ("merged",), "substituted", _parameters),
    Pass("macros", ("substituted", "definitions"), "expanded", _macros),
    Pass("attach-points", ("expanded", "definitions", "config"), "units", _attach_points),
    Pass("analysis", ("units", "expanded", "definitions", "config"), "checked", _analysis),
)

BACK_END: tuple[Pass, ...] = (Pass("generate", ("checked",), "script", _generate),)

PASSES = FRONT_END + BACK_END

UNITS = tuple(step for step in FRONT_END if step.name != "analysis")
"""As far as a listing of a script's probes needs."""


def run(compilation: Compilation, passes: tuple[Pass, ...] = PASSES) -> Compilation:
    """Run *passes* in order.

    Raises:
        ScriptError: a pass found errors (they are in ``compilation.diagnostics``).
    """
    with _room():
        for step in passes:
            missing = [name for name in step.needs if name not in compilation.made]
            if missing:
                raise InternalError(f"pass {step.name} lacks {', '.join(missing)}")
            compilation.made[step.makes] = step.run(compilation)
            compilation.diagnostics.check()
    return compilation


@contextmanager
def _room() -> Iterator[None]:
    """Room for the recursion over trees as deep as the parser takes them; Python's frames live on the heap."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def compile_script(
    source: Source, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics
) -> CompiledScript:
    """Compile *source*.

    Raises:
        ScriptError: the script has errors; *diagnostics* tells which.
    """
    return finish(run(Compilation(source, options, kernel, diagnostics), FRONT_END))


def finish(compilation: Compilation) -> CompiledScript:
    """The back end, for a compilation whose front end is done; warnings and facts go into the manifest."""
    run(compilation, BACK_END)
    script: CompiledScript = compilation["script"]
    found = compilation.diagnostics
    warnings = tuple(render(item) for item in (*found.warnings, *found.notes))
    facts = compilation.kernel.dependencies()
    ahead = script.manifest.ahead
    if ahead is not None:
        ahead = _completed(ahead, compilation)
    return replace(script, manifest=replace(script.manifest, warnings=warnings, facts=facts, ahead=ahead))


def _completed(ahead: AheadOfTime, compilation: Compilation) -> AheadOfTime:
    """What an ahead-of-time file keeps, with parameters, and what the kernel must be able to do."""
    import hashlib

    from pytrace.frontend.expand import parameters

    return replace(
        ahead,
        parameters=parameters.describe(compilation["merged"], compilation.options),
        follow=compilation.options.follow,
        features=tuple(sorted(getattr(compilation.kernel, "features_used", ()))),
        script_hash=hashlib.sha256(compilation.source.text.encode("utf-8", "surrogateescape")).hexdigest(),
    )
