"""fentry and fexit: kernel functions and BPF programs with typed arguments."""

from __future__ import annotations

from pytrace.core.kernel_info import FunctionPrototype
from pytrace.core.probes.kinds import KPROBE, KRETPROBE
from pytrace.core.probes.targets import TypedFunctionTarget
from pytrace.core.types import Struct
from pytrace.frontend.attach.points import contexts
from pytrace.frontend.attach.points.body_uses import Uses
from pytrace.frontend.attach.points.parts import Part, Point
from pytrace.frontend.attach.providers.base import Match, Provider, Scope, by_pattern, nearest, number_of
from pytrace.frontend.attach.providers.functions import (
    UNTRACEABLE,
    absent_function,
    function_hints,
    in_unloaded_module,
    known_module,
)
from pytrace.frontend.syntax.typed_program import ProbeContext

RECURSIVE = frozenset(
    {"_raw_spin_lock", "_raw_spin_lock_irqsave", "_raw_spin_unlock_irqrestore", "queued_spin_lock_slowpath"}
)
"""Functions that BPF helpers and maps call, so that a trampoline on them may recurse."""

LARGEST_STRUCT = 16
"""Maximum size in bytes of a struct argument of a trampoline (arch/x86/net/bpf_jit_comp.c)."""


class Trampoline(Provider):
    """``fentry:[MODULE:]FUNCTION`` and ``fentry:bpf:[ID:]PROGRAM``."""

    single = True
    shape = "{0}:FUNCTION, {0}:MODULE:FUNCTION, {0}:bpf:PROGRAM or {0}:bpf:ID:PROGRAM"

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        parts = point.parts
        bpf = len(parts) > 1 and parts[0].text == "bpf"
        if not 1 <= len(parts) <= (3 if bpf else 2) or not all(part.text for part in parts):
            return self.bad_shape(point, scope)
        if scope.attaching and not self._possible(point, scope):
            return []
        if bpf:
            return self._programs(point, scope)
        module = parts[0] if len(parts) == 2 else None
        if module is not None and not known_module(module, parts[-1], scope):
            return []
        if parts[-1].wild or (module is not None and module.wild):
            return self._pattern(point, module, parts[-1], scope)
        return self._exact(point, module, parts[-1], scope)

    def _possible(self, point: Point, scope: Scope) -> bool:
        if not scope.kernel.has_btf:
            missing = "this kernel has no type information (CONFIG_DEBUG_INFO_BTF)"
        elif not scope.kernel.feature("fentry"):
            missing = "this kernel cannot attach BPF trampolines to functions (CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS)"
        else:
            return True
        provider = KRETPROBE if point.kind.returns else KPROBE
        if scope.kernel.feature("kprobe"):
            hints = [f"{provider}:{point.parts[-1].text} traces the same function"]
        else:
            hints = ["there are no kprobes either; tracepoint and rawtracepoint probes work here"]
        scope.missing(f"{point.kind.name} is not possible: {missing}", point.span, hints)
        return False

    def _pattern(self, point: Point, module: Part | None, part: Part, scope: Scope) -> list[Match]:
        owner = module.text if module is not None else ""
        known = {(item.module or "vmlinux", item.name) for item in scope.kernel.kernel_functions(part.text, owner)}
        prototypes = [
            item
            for item in scope.kernel.function_prototypes(part.text, owner)
            if (item.module, item.name) in known and _refused(item) is None
        ]
        if not prototypes:
            hints = in_unloaded_module(part.text, scope) if module is None else []
            message = f"no function that can be traced and has type information matches {part.text}"
            scope.unmatched(message, point.span, hints)
        return [self._match(point, item, wild=True) for item in prototypes]

    def _exact(self, point: Point, module: Part | None, part: Part, scope: Scope) -> list[Match]:
        name = part.text
        owner = module.text if module is not None else ""
        prototypes = scope.kernel.function_prototypes(name, owner)
        if not prototypes:
            self._undescribed(point, name, module, scope)
            return []
        owners = sorted({item.module for item in prototypes})
        if len(owners) > 1:
            hints = [f"write {' or '.join(f'{point.kind.name}:{item}:{name}' for item in owners)}"]
            return scope.error(f"function {name!r} is in several modules: {', '.join(owners)}", part.span, hints)
        refused = _refused(prototypes[0])
        if refused is not None:
            return scope.missing(f"{point.kind.name} cannot attach to {name!r}: {refused}", point.span)
        if not scope.options.unsafe and not scope.kernel.kernel_functions(name, owner):
            reason = UNTRACEABLE.get(scope.kernel.untraceable_reason(name), "it is not among the functions to trace")
            message = f"kernel function {name!r} cannot be traced: {reason}"
            return scope.missing(message, point.span, ["--unsafe tries it anyway"])
        if name in RECURSIVE:
            scope.diagnostics.warn(
                f"{name} is called by BPF itself; recursive hits on the same CPU are skipped", point.span
            )
        return [self._match(point, prototypes[0])]

    def _undescribed(self, point: Point, name: str, module: Part | None, scope: Scope) -> None:
        """Report a function without BTF."""
        form = f"{point.kind.name}:{{}}"
        reason = scope.kernel.untraceable_reason(name)
        if scope.kernel.kernel_functions(name, module.text if module is not None else ""):
            message = f"BTF does not describe function {name!r}"
            hints = function_hints(name, scope, form)
            if scope.kernel.feature("kprobe"):
                hints = [f"kprobe:{name} needs no type information"]
        elif reason in UNTRACEABLE:
            message, hints = f"kernel function {name!r} cannot be traced: {UNTRACEABLE[reason]}", []
        else:
            message, hints = absent_function(name, module, scope, form)
        scope.missing(message, point.span, hints)

    def _match(self, point: Point, item: FunctionPrototype, *, wild: bool = False) -> Match:
        place = TypedFunctionTarget(item.name, item.module)
        name = f"{point.kind.name}:{item.module}:{item.name}"
        return Match(point.kind, name, place, point.span, item, wild)

    def _programs(self, point: Point, scope: Scope) -> list[Match]:
        name = point.parts[-1]
        wanted: int | None = None
        if len(point.parts) == 3 and not point.parts[1].wild:
            wanted = number_of(point.parts[1], scope, "the program id")
            if wanted is None:
                return []
        loaded = scope.kernel.bpf_programs(name.text)
        programs = [(number, function) for number, function in loaded if wanted in (None, number)]
        if not programs:
            names = [function for _, function in scope.kernel.bpf_programs("*")]
            which = f" with id {wanted}" if wanted is not None else ""
            hints = [] if name.wild else nearest(name.text, names, f"{point.kind.name}:bpf:{{}}")
            report = scope.unmatched if name.wild or point.parts[1].wild else scope.missing
            report(f"no BPF program {name.text!r}{which} is loaded", point.span, hints)
        matches = [
            Match(
                point.kind,
                f"{point.kind.name}:bpf:{number}:{function}",
                TypedFunctionTarget(function, program_id=number),
                point.span,
                None,
                name.wild,
            )
            for number, function in programs
        ]
        many = len(programs) > 1 or any(part.wild for part in point.parts[1:])
        return by_pattern(matches) if many else matches

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        del uses, scope
        if not isinstance(match.subject, FunctionPrototype):
            return ProbeContext()
        return contexts.slots(match.probe, match.subject, returns=match.kind.returns)


def _refused(prototype: FunctionPrototype) -> str | None:
    """The reason why the kernel rejects a trampoline on a function; None if it accepts one."""
    if prototype.variadic:
        return "it takes a variable number of arguments"
    if any(isinstance(kind, Struct) and kind.size > LARGEST_STRUCT for _, kind in prototype.parameters):
        return "it takes a large struct by value"
    return None
