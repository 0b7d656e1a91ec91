"""Programs that serve those of a script, and are not part of it."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Program, Script
from pytrace.codegen.ir.module import program_section
from pytrace.core.manifest import ProgramSpec, Target
from pytrace.core.probes.kinds import ProbeKind, known_kind
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import ProbeContext, ProbeUnit, location


def service_program(
    script: Script, symbol: str, target: Target, result: int, write: Callable[[Emitter], None], multi: str = ""
) -> ProgramSpec:
    """A service program, which is not part of the script: *write* emits its body."""
    kind = known_kind(target.probe.partition(":")[0])
    return service_of(script, symbol, kind, (target,), result, write, multi)


def service_of(
    script: Script,
    symbol: str,
    kind: ProbeKind,
    targets: tuple[Target, ...],
    result: int,
    write: Callable[[Emitter], None],
    multi: str = "",
) -> ProgramSpec:
    """The same with several targets."""
    span = script.checked.units[0].span
    unit = ProbeUnit(symbol, -1, kind, targets, ProbeContext(), nodes.Block(span, ()), span, multi)
    program = Program(script, unit, -1, frozenset())
    b = script.module.function(symbol, ("*ctx",), span, section=program_section(symbol))
    e = Emitter(program, b, span, 0, None)
    e.b.store(result, e.result)
    write(e)
    e.b.jump(e.exit)
    e.finish()
    script.layout.area(program.area, program.scratch.size)
    return ProgramSpec(symbol, kind.name, -1, unit.targets, location(span), multi, service=True)
