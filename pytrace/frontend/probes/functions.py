"""Functions of the kernel: kprobe and kretprobe; fentry and fexit, with typed arguments, also of BPF programs."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence

from pytrace.core.kernel_info import DefinedEvent, FunctionPrototype, KernelFunction, KernelInfo
from pytrace.core.probe_kinds import FENTRY, FEXIT, KPROBE, KRETPROBE, KernelFunctionTarget, TypedFunctionTarget
from pytrace.core.text import parse_integer
from pytrace.core.types import Struct
from pytrace.frontend.probes import contexts
from pytrace.frontend.probes.contexts import args_struct, in_space, registers
from pytrace.frontend.probes.providers import Match, Part, Point, Provider, Scope, Uses, by_pattern, nearest, number_of
from pytrace.frontend.syntax.typed_program import Argument, ProbeArgument, ProbeContext

_UNTRACEABLE = {
    "blacklisted": "the kernel has it on its blacklist",
    "inlined": "the compiler inlined it",
    "notrace": "it is marked notrace",
    "excluded": "tracing it is known to hang the machine or to have no effect",
}
"""Messages for the results of :meth:`KernelInfo.untraceable_reason`."""

LARGEST_OFFSET = 2**31

SUGGEST_FROM = 3
"""Length of the prefix that suggestions share with a misspelt name, to limit the comparisons."""


def split_offset(part: Part, scope: Scope, without: str) -> tuple[str, int] | None:
    """Function name and offset of ``fn+off`` (0 without one); None after an error.

    *without* is the name of a kind of probes that take no offset, else empty.
    """
    if part.plus < 0:
        return part.text, 0
    name, text = part.text[: part.plus], part.text[part.plus + 1 :]
    offset = parse_integer(text.strip())
    if offset is None or offset < 0:
        scope.error(f"the offset after '+' must be a number, not {text!r}", part.span)
        return None
    if offset >= LARGEST_OFFSET:
        scope.error(f"offset {text} is larger than any function", part.span)
        return None
    if offset and without:
        scope.error(f"{without} takes no offset: a return probe covers the whole function", part.span)
        return None
    return name.strip(), offset


def made_of(clones: Sequence[str], form: str) -> str:
    """A hint with what the compiler made of a function (``.isra.0``, ``.constprop.0``)."""
    return f"the compiler made {' and '.join(clones)} of it, with other arguments: {form.format(clones[0])}"


def _function_hints(name: str, scope: Scope, form: str) -> list[str]:
    """Suggestions for a misspelt function name."""
    clones = [item.name for item in scope.kernel.kernel_functions(f"{name}.*")]
    if clones:
        return [made_of(clones, form)]
    known = {item.name for item in scope.kernel.kernel_functions(f"{name[:SUGGEST_FROM]}*")}
    hints = nearest(name, known, form)
    if not hints and len(name) > SUGGEST_FROM:
        hints = nearest(name, {item.name for item in scope.kernel.kernel_functions(f"*{name[-6:]}")}, form)
    return hints


def _known_module(module: Part, target: Part, scope: Scope) -> bool:
    """Whether a module qualifier before *target* names a loaded module; reports an error otherwise."""
    name, modules = module.text, scope.kernel.modules()
    if module.wild or name == "vmlinux" or name in modules:
        return True
    message, hints = f"kernel module {name!r} is not loaded", nearest(name, modules)
    state = scope.kernel.module_state(name)
    if state == "installed":
        hints = [f"modprobe {name} loads it"]
    elif state == "built in":
        message = f"{name!r} is built into this kernel, it is not a module"
        hints = ["leave the module out, or write vmlinux"]
    elif state == "absent":
        message += ", and none of that name is installed"
    report = scope.unmatched if target.wild else scope.missing
    report(message, module.span, hints)
    return False


def _absent_function(name: str, module: Part | None, scope: Scope, form: str) -> tuple[str, list[str]]:
    """The error for a function that the kernel lacks; *form* formats a suggested name as an attach point."""
    if module is not None and module.text != "vmlinux" and not module.wild:
        return f"module {module.text} has no function {name!r}", _function_hints(name, scope, form)
    if scope.kernel.untraceable_reason(name) == "variable":
        return f"{name!r} is a kernel variable, not a function", []
    hints = _in_unloaded_module(name, scope) or _function_hints(name, scope, form)
    if not hints and scope.kernel.kernel_symbol("_stext") is None:
        hints = ["/proc/kallsyms shows no symbols: /proc may be mounted with subset=pid"]
    return f"there is no kernel function {name!r}: the kernel has no symbol of that name", hints


def _in_unloaded_module(pattern: str, scope: Scope) -> list[str]:
    """A hint with the unloaded modules that may define a function."""
    modules, sure = scope.kernel.unloaded_modules(pattern)
    if not modules:
        return []
    names = " or ".join(modules)
    first = f"it is in module {names}" if sure else f"it may be in module {names}"
    return [f"{first}, which is not loaded (modprobe {modules[0]})"]


def entry(name: str, prototype: FunctionPrototype | None, kernel: KernelInfo) -> ProbeContext:
    """The context of a kprobe at a function's first instruction; without *prototype* there is no ``args``.

    Struct arguments end the list: their location depends on the calling convention.
    """
    arguments: list[ProbeArgument] = []
    for index, (parameter, kind) in enumerate(prototype.parameters if prototype is not None else ()):
        if not kind.scalar:
            break
        arguments.append(ProbeArgument(parameter or f"arg{index}", in_space(kind), Argument(index)))
    members = args_struct(name, arguments) if arguments else None
    return ProbeContext(tuple(arguments), members, ctx_type=registers(kernel))


class KernelProbe(Provider):
    """``kprobe:[MODULE:]FUNCTION[+OFFSET]`` or an address; kretprobe without offset."""

    shape = "{0}:FUNCTION or {0}:MODULE:FUNCTION"

    def __init__(self, *, offsets: bool) -> None:
        self.offsets = offsets

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        if not self.fit(point) or not all(part.text for part in point.parts):
            return self.bad_shape(point, scope)
        if scope.attaching and not self._check_possible(point, scope):
            return []
        target = point.parts[-1]
        if target.number and not target.quoted:
            return self._address(point, target, scope)
        module = point.parts[0] if len(point.parts) == 2 else None
        if module is not None and not _known_module(module, target, scope):
            return []
        if target.wild:
            return self._pattern(point, module, target, scope)
        return self._exact_match(point, module, target, scope)

    def _check_possible(self, point: Point, scope: Scope) -> bool:
        if scope.kernel.feature("kprobe"):
            return True
        if not scope.ignores_missing:
            scope.missing(
                f"{point.kind.name} is not possible: this kernel was built without kprobes (CONFIG_KPROBE_EVENTS)",
                point.span,
                self._replacement_hints(point.parts[-1].text.partition("+")[0], scope),
            )
        return False

    def _replacement_hints(self, name: str, scope: Scope) -> list[str]:
        """Hints for a kernel without kprobes."""
        if scope.kernel.feature("fentry"):
            provider = FEXIT if not self.offsets else FENTRY
            return [f"{provider}:{name} traces the same function"]
        hints = ["tracepoint, rawtracepoint, uprobe, usdt and profile probes work here"]
        if "*" in name or not name:
            return hints
        reason = scope.kernel.untraceable_reason(name)
        if reason == "missing":
            hints.append(f"it has no function {name!r} either")
            hints.extend(_in_unloaded_module(name, scope) or _function_hints(name, scope, "{}"))
        events = _related_events(name, self.offsets, scope)
        hints.extend(f"{event} may answer the same question" for event in events)
        return hints

    def _address(self, point: Point, part: Part, scope: Scope) -> list[Match]:
        if len(point.parts) != 1:
            return scope.error("an address takes no module", part.span)
        address = number_of(part, scope, "the address")
        if address is None:
            return []
        if not scope.options.unsafe:
            return scope.error(
                f"a {point.kind.name} at an address cannot be checked", part.span, ["--unsafe allows it anyway"]
            )
        return [Match(point.kind, f"{point.kind.name}:{address}", KernelFunctionTarget(address=address), point.span)]

    def _pattern(self, point: Point, module: Part | None, part: Part, scope: Scope) -> list[Match]:
        if "+" in part.text:
            return scope.error("a pattern takes no offset", part.span)
        functions = [
            item
            for item in scope.kernel.kernel_functions(part.text, module.text if module is not None else "")
            # Parts that the compiler split off (``.part.N``) do not follow the function's calling convention.
            if ".part." not in item.name
        ]
        if not functions:
            hints = _in_unloaded_module(part.text, scope) if module is None else []
            scope.unmatched(f"no function that can be traced matches {part.text}", point.span, hints)
        return [self._match(point, item, 0, module, wild=True) for item in functions]

    def _exact_match(self, point: Point, module: Part | None, part: Part, scope: Scope) -> list[Match]:
        split = split_offset(part, scope, "" if self.offsets else point.kind.name)
        if split is None:
            return []
        name, offset = split
        owner = module.text if module is not None else ""
        functions = scope.kernel.kernel_functions(name, owner)
        if not functions:
            return self._report_untraceable(point, name, offset, module, scope)
        owners = sorted({item.module or "vmlinux" for item in functions})
        if len(owners) > 1:
            hints = [f"write {' or '.join(f'{point.kind.name}:{item}:{name}' for item in owners)}"]
            return scope.error(f"function {name!r} is in several modules: {', '.join(owners)}", part.span, hints)
        if not self._check_offset(part, name, offset, owner, scope):
            return []
        return [self._match(point, functions[0], offset, module)]

    def _check_offset(self, part: Part, name: str, offset: int, module: str, scope: Scope) -> bool:
        if not offset or scope.options.unsafe:
            return True
        size = scope.kernel.kernel_function_size(name, module)
        if size is not None and offset >= size:
            scope.error(f"offset {offset} is outside function {name!r}, which has {size} bytes", part.span)
            return False
        return True

    def _report_untraceable(
        self, point: Point, name: str, offset: int, module: Part | None, scope: Scope
    ) -> list[Match]:
        if scope.options.unsafe:
            if scope.kernel.untraceable_reason(name) == "missing":
                message, hints = _absent_function(name, module, scope, f"{point.kind.name}:{{}}")
                scope.diagnostics.warn(message, point.span, hints=hints)
            owner = module.text if module is not None else ""
            return [self._match(point, KernelFunction(name, owner), offset, module)]
        reason = _UNTRACEABLE.get(scope.kernel.untraceable_reason(name))
        if reason is not None:
            message = f"kernel function {name!r} cannot be traced: {reason}"
            return scope.missing(message, point.span, ["--unsafe tries it anyway"])
        if scope.ignores_missing:
            return []
        message, hints = _absent_function(name, module, scope, f"{point.kind.name}:{{}}")
        report = scope.unmatched if module is not None and module.wild else scope.missing
        report(message, point.span, hints)
        return []

    def _match(
        self, point: Point, item: KernelFunction, offset: int, module: Part | None, *, wild: bool = False
    ) -> Match:
        owner = (item.module or "vmlinux") if module is not None else ""
        where = f"{owner}:" if owner else ""
        suffix = f"+{offset}" if offset else ""
        module_name = "" if item.module == "vmlinux" else item.module
        place = KernelFunctionTarget(item.name, module_name, offset, shared=item.number > 1)
        name = f"{point.kind.name}:{where}{item.name}{suffix}"
        return Match(point.kind, name, place, point.span, item, wild or (module is not None and module.wild))

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        prototype = None
        if isinstance(match.subject, DefinedEvent):
            return contexts.defined_event(match.probe, match.subject, scope.kernel)
        if isinstance(match.subject, KernelFunction) and (uses.args or (match.kind.returns and "retval" in uses)):
            prototype = scope.kernel.function(match.subject.name, match.subject.module)
        if match.kind.returns:
            return contexts.returning(prototype.result if prototype is not None else None, scope.kernel)
        if match.of(KernelFunctionTarget).offset:
            # After the first instruction the locations of the arguments are unknown.
            prototype = None
        return entry(match.probe, prototype, scope.kernel)

    def apart(self, match: Match) -> Hashable:
        # Targets that a multi link does not support (offsets) or needs by address (functions of named modules) must not
        # prevent the others from sharing a link.
        place = match.of(KernelFunctionTarget)
        return (place.whole, place.module)

    def multi(self, matches: list[Match], scope: Scope) -> str:
        places = [item.of(KernelFunctionTarget) for item in matches]
        several = len(places) > 1 or places[0].shared
        if not several or not scope.feature("kprobe_multi"):
            return ""
        return "kprobe_multi" if all(place.whole for place in places) else ""


_SYSCALL = re.compile(r"(?:__(?:x64|arm64|se|do)_sys_|ksys_|do_sys_|sys_)(?P<name>\w+)")
_AROUND = re.compile(r"^(?:__|do_|vfs_|ksys_|sys_)+")


def _related_events(name: str, entry: bool, scope: Scope) -> list[str]:
    """Tracepoints whose names are similar to a function's."""
    call = _SYSCALL.fullmatch(name)
    events: list[tuple[str, str]] = []
    if call is not None:
        events = scope.kernel.tracepoints("syscalls", f"sys_{'enter' if entry else 'exit'}_{call['name']}*")
    stem = _AROUND.sub("", name)
    if not events and len(stem) > 5:
        events = scope.kernel.tracepoints("*", f"*{stem}")
    return [f"tracepoint:{category}:{event}" for category, event in events[:2]]


# ---------------------------------------------------------------------------------------------------------- trampolines

# fentry and fexit: kernel functions and BPF programs with typed arguments.


RECURSIVE = frozenset(
    {"_raw_spin_lock", "_raw_spin_lock_irqsave", "_raw_spin_unlock_irqrestore", "queued_spin_lock_slowpath"}
)
"""Functions that BPF helpers and maps call, so that a trampoline on them may recurse."""

_LARGEST_STRUCT = 16
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
        if scope.attaching and not self._check_possible(point, scope):
            return []
        if bpf:
            return self._programs(point, scope)
        module = parts[0] if len(parts) == 2 else None
        if module is not None and not _known_module(module, parts[-1], scope):
            return []
        if parts[-1].wild or (module is not None and module.wild):
            return self._pattern(point, module, parts[-1], scope)
        return self._exact_match(point, module, parts[-1], scope)

    def _check_possible(self, point: Point, scope: Scope) -> bool:
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
        functions = scope.kernel.kernel_functions(part.text, owner)
        known = {(item.module or "vmlinux", item.name): item for item in functions}
        prototypes = [
            item
            for item in scope.kernel.function_prototypes(part.text, owner)
            if (item.module, item.name) in known and _trampoline_problem(item) is None
        ]
        if not prototypes:
            hints = _in_unloaded_module(part.text, scope) if module is None else []
            message = f"no function that can be traced and has type information matches {part.text}"
            scope.unmatched(message, point.span, hints)
        self._warn_of_shared(point, [known[item.module, item.name] for item in prototypes], scope)
        return [self._match(point, item, wild=True) for item in prototypes]

    def _warn_of_shared(self, point: Point, functions: Iterable[KernelFunction], scope: Scope) -> None:
        """Type information names a function, and the kernel attaches to the first of that name."""
        shared = [item for item in functions if item.number > 1]
        if not shared:
            return
        number = sum(item.number for item in shared)
        message = f"{number} functions of the kernel are named {shared[0].name!r}"
        if len(shared) > 1:
            message = f"{number} functions of the kernel share {len(shared)} of these names, such as {shared[0].name!r}"
        hints = []
        if scope.kernel.feature("kprobe"):
            hints = [f"{KRETPROBE if point.kind.returns else KPROBE}:{point.parts[-1].text} is on all of them"]
        which = "them" if len(shared) == 1 else "each"
        scope.diagnostics.warn(f"{message}; {point.kind.name} is on one of {which} only", point.span, hints=hints)

    def _exact_match(self, point: Point, module: Part | None, part: Part, scope: Scope) -> list[Match]:
        name = part.text
        owner = module.text if module is not None else ""
        prototypes = scope.kernel.function_prototypes(name, owner)
        if not prototypes:
            self._report_undescribed(point, name, module, scope)
            return []
        owners = sorted({item.module for item in prototypes})
        if len(owners) > 1:
            hints = [f"write {' or '.join(f'{point.kind.name}:{item}:{name}' for item in owners)}"]
            return scope.error(f"function {name!r} is in several modules: {', '.join(owners)}", part.span, hints)
        refused = _trampoline_problem(prototypes[0])
        if refused is not None:
            return scope.missing(f"{point.kind.name} cannot attach to {name!r}: {refused}", point.span)
        functions = scope.kernel.kernel_functions(name, owner)
        if not scope.options.unsafe and not functions:
            reason = _UNTRACEABLE.get(scope.kernel.untraceable_reason(name), "it is not among the functions to trace")
            message = f"kernel function {name!r} cannot be traced: {reason}"
            return scope.missing(message, point.span, ["--unsafe tries it anyway"])
        if name in RECURSIVE:
            scope.diagnostics.warn(
                f"{name} is called by BPF itself; recursive hits on the same CPU are skipped", point.span
            )
        self._warn_of_shared(point, [item for item in functions if (item.module or "vmlinux") == owners[0]], scope)
        return [self._match(point, prototypes[0])]

    def _report_undescribed(self, point: Point, name: str, module: Part | None, scope: Scope) -> None:
        """Report a function without BTF."""
        if scope.ignores_missing:
            return
        form = f"{point.kind.name}:{{}}"
        reason = scope.kernel.untraceable_reason(name)
        if scope.kernel.kernel_functions(name, module.text if module is not None else ""):
            message = f"BTF does not describe function {name!r}"
            hints = _function_hints(name, scope, form)
            if scope.kernel.feature("kprobe"):
                hints = [f"kprobe:{name} needs no type information"]
        elif reason in _UNTRACEABLE:
            message, hints = f"kernel function {name!r} cannot be traced: {_UNTRACEABLE[reason]}", []
        else:
            message, hints = _absent_function(name, module, scope, form)
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


def _trampoline_problem(prototype: FunctionPrototype) -> str | None:
    """The reason why the kernel rejects a trampoline on a function; None if it accepts one."""
    if prototype.variadic:
        return "it takes a variable number of arguments"
    if any(isinstance(kind, Struct) and kind.size > _LARGEST_STRUCT for _, kind in prototype.parameters):
        return "it takes a large struct by value"
    return None
