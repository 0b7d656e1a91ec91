"""The pass that resolves attach points (``provider:part:part``) to the programs of a script.

Each attach point is split, then checked and expanded by the provider of its probe kind (:data:`PROVIDERS`); the targets
of one block are grouped into units.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from pytrace.core import probe_kinds
from pytrace.core.builtins import IN_SCOPE
from pytrace.core.diagnostics import Diagnostics, counted, did_you_mean
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.manifest import Target
from pytrace.core.options import CompileOptions, Config
from pytrace.core.probe_kinds import (
    BEGIN,
    BENCH,
    END,
    ENTER,
    EXIT,
    KPROBE,
    KRETPROBE,
    PROBE_KINDS,
    TEST,
    TOKEN,
    Context,
    KernelFunctionTarget,
    NoTarget,
    PidFilter,
    ProbeKind,
    ProbeTarget,
    RawTracepointTarget,
    TracepointTarget,
    TypedFunctionTarget,
    UserTarget,
    call_name,
    kind_of,
    probe_kind,
    sampling_period,
    unquoted,
)
from pytrace.core.source import Source, Span
from pytrace.frontend.probes import events, functions, raw_tracepoints, tracepoints, uprobes, usdt
from pytrace.frontend.probes.providers import Match, Part, Point, Provider, Scope, Uses, is_args, matches_pattern
from pytrace.frontend.probes.raw_tracepoints import Block
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import KPROBE_SESSION, SESSION_IS_RETURN, ProbeContext, ProbeUnit

# ------------------------------------------------------------------------------------------------------------ providers

# The table of providers, by probe kind.


PROVIDERS: dict[str, Provider] = {
    probe_kinds.BEGIN: events.Plain(),
    probe_kinds.END: events.Plain(),
    probe_kinds.SELF: events.Self(),
    probe_kinds.TEST: events.Named(),
    probe_kinds.BENCH: events.Named(),
    probe_kinds.KPROBE: functions.KernelProbe(offsets=True),
    probe_kinds.KRETPROBE: functions.KernelProbe(offsets=False),
    probe_kinds.UPROBE: uprobes.UserProbe(offsets=True),
    probe_kinds.URETPROBE: uprobes.UserProbe(offsets=False),
    probe_kinds.USDT: usdt.Usdt(),
    probe_kinds.PYTHON: uprobes.PythonFunction(),
    probe_kinds.PYTHONRET: uprobes.PythonFunction(),
    probe_kinds.TRACEPOINT: tracepoints.Tracepoint(),
    probe_kinds.RAWTRACEPOINT: tracepoints.RawTracepoint(),
    probe_kinds.FENTRY: functions.Trampoline(),
    probe_kinds.FEXIT: functions.Trampoline(),
    probe_kinds.PROFILE: events.Timer(),
    probe_kinds.INTERVAL: events.Timer(),
    probe_kinds.SOFTWARE: events.Counter(probe_kinds.SOFTWARE_EVENTS),
    probe_kinds.HARDWARE: events.Counter(probe_kinds.HARDWARE_EVENTS, "perf_hardware"),
    probe_kinds.WATCHPOINT: events.Watchpoint(),
    probe_kinds.ITER: tracepoints.Iterator(),
}
"""Providers by the name of their probe kind; a test checks that there is one for each."""


# ---------------------------------------------------------------------------------------------------------------- units

# Groups the targets of a probe block into programs, and pairs entry and return of a function.
#
# Targets with the same context share one program, which distinguishes them by attach cookie; each program has its own
# copy of the body, so that a node has one type.
#
# A kprobe and a kretprobe on the same functions each need a program, a link and a hook. With kprobe sessions (since
# 6.10,
# `BPF_TRACE_KPROBE_SESSION`) one hook serves both: its program checks whether it runs at entry or return.
#
# Kernels before 6.14 keep the state of running calls in a pool of two entries per CPU and function of the link, and
# skip entry and return of a call when the pool is full. A function that sleeps exhausts the pool of a link on that
# function alone; the pool of a link on many functions is large enough.


class _Group(msgspec.Struct):
    context: ProbeContext
    matches: list[Match] = msgspec.field(default_factory=list)


def _build_programs(
    probe: nodes.Probe, index: int, first: int, matches: list[Match], uses: Uses, scope: Scope
) -> list[ProbeUnit]:
    """The units of one block; *first* is the index of the first one in the script."""
    injected = any(item.kind.pid_filter is PidFilter.INJECTED for item in matches)
    filtered = any(item.kind.pid_filter is not PidFilter.NONE for item in matches)
    follow = any(_needs_follow_check(item.kind, scope) for item in matches)
    automatic = not scope.decides
    by_pid = bool(scope.options.filters.pids) or scope.options.ahead
    body = _body_of(probe)
    units: list[ProbeUnit] = []
    for group in _groups(matches, uses, scope):
        kind = group.matches[0].kind
        # Samples of CPUs are those of any process, also in scripts that decide themselves about other events.
        sampling = any(_samples_cpus(item) for item in group.matches)
        # The kernel binds user probes to a process by its first thread. Where that has ended, they are those of all.
        user = any(item.kind.user and item.kind.pid_filter is PidFilter.ATTACH for item in group.matches)
        targets = tuple(Target(item.probe, cookie, item.place) for cookie, item in enumerate(group.matches))
        units.append(
            ProbeUnit(
                symbol=_symbol(group.matches, first + len(units)),
                index=index,
                kind=kind,
                targets=targets,
                context=group.context,
                body=nodes.copy(body) if units else body,
                span=probe.head,
                multi=PROVIDERS[kind.name].multi(group.matches, scope),
                calls=tuple(item.call for item in group.matches if item.call is not None),
                # If one kind in the block needs filtering in the program, all its targets are filtered there.
                pid_filter=(sampling or user or (automatic and injected)) and by_pid,
                of_child=sampling and _by_child(scope.options),
                filtered=automatic and filtered and scope.options.filtered,
                # Entry and return of a call have the same filters, whatever their bodies read.
                foreign=automatic
                and scope.options.foreign
                and (bool(probe.role) or _records_current_task(group.matches, uses)),
                follow=scope.options.follow and (sampling or (automatic and follow)),
                role=probe.role,
            )
        )
    return units


def _groups(matches: list[Match], uses: Uses, scope: Scope) -> Iterator[_Group]:
    """The groups, in order of their first match."""
    groups: dict[Hashable, _Group] = {}
    # A program with several targets distinguishes them by cookie.
    shared = "probe" not in uses or len(matches) < 2 or scope.feature("get_attach_cookie")
    seen: set[tuple[str, ProbeTarget]] = set()
    for index, match in enumerate(matches):
        target = (match.probe, match.place)
        if target in seen and match.wild:
            # Only what is written twice without a pattern is attached twice.
            continue
        seen.add(target)
        provider = PROVIDERS[match.kind.name]
        context = provider.context(match, uses, scope)
        # uaddr() derives the binary's load address from the single target of its program.
        single = provider.single or match.raw or not shared or (match.kind.user and "uaddr" in uses)
        moved = match.exits or (isinstance(match.place, UserTarget) and match.place.checked > 0)
        single = single or (moved and not scope.feature("get_attach_cookie"))
        key = (match.kind.name, index if single else _layout(context, uses), provider.apart(match))
        groups.setdefault(key, _Group(context)).matches.append(match)
    yield from groups.values()


def _layout(context: ProbeContext, uses: Uses) -> Hashable:
    """The parts of *context* that a body with *uses* depends on."""
    arguments: Hashable = ()
    if uses.whole:
        arguments = context.arguments
    elif uses.fields:
        arguments = tuple(item for item in context.arguments if item.name in uses.fields)
    places = dict(enumerate(context.positional))
    positional = tuple(places.get(number) for number in uses.positional)
    return (arguments, positional, context.result if "retval" in uses else None)


_OF_TASKS = frozenset({"cgroup", "comm", "gid", "pid", "pystack", "tid", "uid", "username", "ustack"})
"""Builtins by which a script attributes an event to the current task."""
_SYSTEM_CALLS = frozenset({"raw_syscalls", "syscalls"})


def _records_current_task(matches: list[Match], uses: Uses) -> bool:
    """Whether what a program records is the current task's: not that of an interrupt, which meets any task."""
    first = matches[0]
    if first.kind.pid_filter is PidFilter.NONE:
        return False
    place = first.place
    call = first.call is not None or (isinstance(place, TracepointTarget) and place.category in _SYSTEM_CALLS) or (
        isinstance(place, RawTracepointTarget) and place.event in (ENTER, EXIT)
    )
    return call or bool(_OF_TASKS & uses.names) or (_samples_cpus(first) and "kstack" in uses)


def _samples_cpus(match: Match) -> bool:
    """Whether a timer of every CPU is attached, whichever processes are wanted."""
    return match.kind.pid_filter is PidFilter.ATTACH and sampling_period(match.place) > 0


def _by_child(options: CompileOptions) -> bool:
    """True when the process of ``-c`` may be what selects the processes: no other filter does."""
    return (options.child or options.ahead) and not options.follow and not options.filtered


def _needs_follow_check(kind: ProbeKind, scope: Scope) -> bool:
    """Whether programs have to check for followed processes.

    Perf events of the ``-c`` process are inherited by all processes that it forks.  For ``-p`` it is not known which of
    the existing descendants have inherited one, so perf events are opened for all processes.
    """
    if kind.pid_filter is PidFilter.INJECTED:
        return True
    options = scope.options
    runs_already = bool(options.filters.pids) or bool(options.filters.exec_wait) or options.ahead
    return kind.pid_filter is PidFilter.ATTACH and (kind.user or runs_already)


def _body_of(probe: nodes.Probe) -> nodes.Block:
    """The block's body, wrapped in an ``if`` for the predicate."""
    body = probe.body
    if probe.predicate is None:
        return body
    if body.value is not None:
        last = nodes.ExprStmt(body.value.span, body.value)
        body = nodes.Block(body.span, (*body.statements, last), None, body.angle)
    chosen = nodes.If(probe.predicate.span, probe.predicate, body, None)
    return nodes.Block(body.span, (nodes.ExprStmt(chosen.span, chosen),))


_NOT_C = re.compile(r"\W+", re.ASCII)
_SYMBOL_LENGTH = 60


def _symbol(matches: list[Match], number: int) -> str:
    """A C identifier that describes the program's target; the number makes it unique."""
    kind, first = matches[0].kind, matches[0].probe
    place = first.rpartition(":")[2] if kind.user else first.partition(":")[2]
    name = _NOT_C.sub("_", place)[-_SYMBOL_LENGTH:]
    middle = f"_{name}" if name and len(matches) == 1 else ""
    return f"{kind.name}{middle}_{number}"


# ---------------------------------------------------------------------------------------------- kprobe sessions

_ROOM = 16
"""Minimum number of functions of a link whose pool is large enough for concurrent calls."""


def _pair_returns(units: list[ProbeUnit], scope: Scope) -> list[ProbeUnit]:
    """The units; exactly one kprobe and one kretprobe on the same functions are marked as a session."""
    if not any(unit.kind.name == KRETPROBE for unit in units) or not scope.attaching:
        return units
    if not scope.feature(KPROBE_SESSION) or scope.kernel.function(SESSION_IS_RETURN) is None:
        return units
    least = _ROOM if _has_pool(scope) else 1
    entries, returns = _by_functions(units, KPROBE), _by_functions(units, KRETPROBE)
    replaced: dict[str, ProbeUnit] = {}
    for traced, entry_units in entries.items():
        left = returns.get(traced, [])
        if len(entry_units) == 1 and len(left) == 1 and len(entry_units[0].targets) >= least:
            entry, leaving = entry_units[0], left[0]
            replaced[entry.symbol] = replace(entry, multi=KPROBE_SESSION)
            replaced[leaving.symbol] = replace(leaving, multi=KPROBE_SESSION, part_of=entry.symbol)
    return [replaced.get(unit.symbol, unit) for unit in units]


def _has_pool(scope: Scope) -> bool:
    probe = scope.kernel.struct("struct", "fprobe")
    return probe is not None and any(member.name == "rethook" for member in probe.fields)


def _by_functions(units: list[ProbeUnit], kind: str) -> dict[Hashable, list[ProbeUnit]]:
    """Units of a kind by their functions, if all targets are whole functions with names."""
    by_functions: dict[Hashable, list[ProbeUnit]] = {}
    for unit in units:
        if unit.kind.name != kind:
            continue
        places = tuple(target.of(KernelFunctionTarget) for target in unit.targets)
        if all(place.whole for place in places):
            # Ordered, as a program identifies its targets by index.
            by_functions.setdefault(places, []).append(unit)
    return by_functions


# ------------------------------------------------------------------------------------------------------------- the pass


REMOVED = {
    "asyncwatchpoint": "asyncwatchpoint probes are gone; watchpoint:ADDRESS:LENGTH:MODE watches an address",
}
"""Providers of earlier versions, and hints about them."""

_ONLY_IN_MODE = {TEST: ("test", "--test"), BENCH: ("bench", "--bench")}
"""Kinds that run in one mode only: the mode, and the option that selects it."""


def uses_of(roots: Iterable[nodes.Node | None]) -> Uses:
    """The combined uses of *roots*."""
    names: set[str] = set()
    fields: set[str] = set()
    members: set[nodes.Node] = set()
    bare = False
    for root in roots:
        if root is None:
            continue
        for node in nodes.walk(root):
            if isinstance(node, nodes.FieldAccess) and is_args(node.base):
                fields.add(node.name)
                members.add(node.base)
            elif isinstance(node, nodes.Identifier | nodes.Call):
                names.add(node.name)
                bare = bare or (is_args(node) and node not in members)
    return Uses(frozenset(names), frozenset(fields), bare)


def expand(
    program: nodes.Program,
    options: CompileOptions,
    kernel: KernelInfo,
    config: Config,
    diagnostics: Diagnostics,
) -> list[ProbeUnit]:
    """Resolve the attach points of a script.

    Args:
        program: the AST with macros expanded.
        options: options of the compilation, such as ``-p`` and ``--probe-filter``.
        kernel: facts about the machine: functions, tracepoints, binaries.
        config: the script's configuration (``missing_probes``, ``max_probes`` …).
        diagnostics: receives errors and warnings.

    Returns:
        The programs in source order, each with all its targets.
    """
    scope = Scope(
        options,
        kernel,
        config,
        diagnostics,
        decides=any(
            isinstance(node, nodes.Identifier | nodes.Call) and node.name == IN_SCOPE for node in nodes.walk(program)
        ),
    )
    try:
        scope.probe_filter = None if options.probe_filter is None else re.compile(options.probe_filter)
    except re.error as problem:
        diagnostics.error(f"--probe-filter is not a regular expression: {problem}", program.span)
    blocks: list[Block] = []
    dropped = False
    entering: list[Match] | None = None
    for index, probe in enumerate(program.probes):
        if probe.off:
            continue
        matches = places(probe, scope) if not probe.role else _call_places(probe, scope, entering)
        if probe.role:
            entering = matches if probe.role == nodes.CALL_ENTRY else None
        kept = [item for item in matches if _is_selected(item, scope)]
        dropped = dropped or len(kept) < len(matches)
        if any(item.kind.user for item in kept):
            kept = uprobes.leave_out_harmful(kept, scope)
        if kept:
            blocks.append(Block(probe, index, kept, uses_of([probe.predicate, probe.body])))
    units = _units(_returning(blocks), program, scope)
    if not diagnostics.failed:
        _check_limits(units, scope)
        _check_some(units, program, options, diagnostics, dropped=dropped)
    return _pair_returns(units, scope)


def _units(blocks: list[Block], program: nodes.Program, scope: Scope) -> list[ProbeUnit]:
    """The programs of all blocks."""
    if not any(isinstance(match.place, TracepointTarget) for block in blocks for match in block.matches):
        return _units_of(blocks, scope)
    blocks = raw_tracepoints.choose_hot(blocks, program, scope)
    units = _units_of(raw_tracepoints.choose_system_calls(blocks, program, scope), scope)
    too_large = raw_tracepoints.too_large(units)
    if too_large:
        units = _units_of(raw_tracepoints.choose_system_calls(blocks, program, scope, too_large), scope)
    return raw_tracepoints.combine(units)


def _units_of(blocks: list[Block], scope: Scope) -> list[ProbeUnit]:
    units: list[ProbeUnit] = []
    for block in blocks:
        units.extend(_build_programs(block.probe, block.index, len(units), block.matches, block.uses, scope))
    return units


def _call_places(probe: nodes.Probe, scope: Scope, entering: list[Match] | None) -> list[Match]:
    """The targets of one half of a ``call:``; *entering* are those of its entry.

    Messages name the call. What the entry has reported is not reported again for the return.
    """
    if probe.role == nodes.CALL_RETURN and entering is not None and not entering:
        return []
    items = scope.diagnostics.items
    before = len(items)
    matches = places(probe, scope)
    known = set(items[:before])
    reported = [replace(item, message=call_name(item.message), hints=tuple(map(call_name, item.hints)))
                for item in items[before:]]  # fmt: skip
    items[before:] = [item for item in dict.fromkeys(reported) if item not in known]
    return matches


def _returning(blocks: list[Block]) -> list[Block]:
    """The blocks; entries of calls without functions whose returns are not seen, as these would be kept for ever."""
    kept: list[Block] = []
    for index, block in enumerate(blocks):
        if block.probe.role == nodes.CALL_ENTRY:
            following = blocks[index + 1] if index + 1 < len(blocks) else None
            leaving = following.matches if following is not None and following.probe.role == nodes.CALL_RETURN else []
            functions = {_function_of(match) for match in leaving}
            matches = [match for match in block.matches if _function_of(match) in functions]
            if not matches:
                continue
            block = replace(block, matches=matches)
        kept.append(block)
    return kept


def _function_of(match: Match) -> Hashable:
    """What a call's entry and return have in common."""
    place = match.place
    if isinstance(place, UserTarget):
        return place.path, place.symbol
    return (place.module, place.function) if isinstance(place, TypedFunctionTarget) else None


def split_point(
    point: nodes.AttachPoint, parameters: Sequence[str], diagnostics: Diagnostics, *, ahead: bool = False
) -> tuple[Part, ...] | None:
    """The parts of *point*, the provider first; None after an error was reported."""
    text, span = point.text, point.span
    offset = span.text.find(text)
    if offset >= 0:
        # Without name=, which the node's span includes.
        span = Span(span.source, span.start + offset, span.start + offset + len(text))
    parts = _Parts(span)
    for match in re.finditer(TOKEN, text):
        if match["separator"]:
            parts.end(match["separator"], match.start(), match.end())
        elif match["quoted"]:
            parts.quote(unquoted(match["quoted"]))
        elif match["parameter"]:
            value = _parameter(match["parameter"], parameters)
            if value is None:
                where = _within(span, match.start(), match.end())
                hint = f"the script was given {counted(len(parameters), 'parameter')}"
                hint = "give it with --aot, which fixes attach points" if ahead else hint
                diagnostics.error(f"{match.group()} in an attach point has no value", where, hints=[hint])
                return None
            parts.value(value, match)
        elif match["option"]:
            name, value = _option(match["option"], point.options)
            if value is None:
                where = _within(span, match.start(), match.end())
                _report_unknown(name, point.options, where, diagnostics)
                return None
            parts.value(value, match)
            parts.plain(match["option"][len(name) :])
        elif match["bad"]:
            _report_bad(match["bad"], _within(span, match.start(), match.end()), diagnostics)
            return None
        else:
            parts.plain(match["plain"])
    parts.end("", len(text), len(text))
    return tuple(parts.done)


def places(probe: nodes.Probe, scope: Scope) -> list[Match]:
    """The targets of the attach points of one block."""
    matches: list[Match] = []
    kinds_of_block: list[tuple[ProbeKind, Span]] = []
    for attach_point in probe.attach_points:
        parts = split_point(attach_point, scope.options.positional, scope.diagnostics, ahead=scope.options.ahead)
        if parts is None:
            continue
        wanted = _points(parts, attach_point.span, scope)
        kinds_of_block.extend((point.kind, point.span) for point in wanted)
        matches.extend(_places(wanted, parts, attach_point.span, scope))
    scope.end_block(attached=bool(matches))
    for kind, span in kinds_of_block:
        if kind.context is Context.ITERATOR and len(kinds_of_block) > 1:
            message = "an iter probe cannot share its block with other probes"
            return scope.error(message, span, ["give it a block of its own"])
    return matches


def _places(wanted: list[Point], parts: tuple[Part, ...], span: Span, scope: Scope) -> list[Match]:
    """The targets of one attach point; a pattern as provider must have matches in at least one of the kinds."""
    scope.quiet = parts[0].wild
    matches = []
    for point in wanted:
        scope.user = point.kind.user
        matches += PROVIDERS[point.kind.name].expand(point, scope)
    scope.quiet = False
    if parts[0].wild and wanted and not matches:
        names = ", ".join(point.kind.name for point in wanted)
        scope.unmatched(f"no probe matches this in any of {names}", span)
    return matches


def _points(parts: tuple[Part, ...], span: Span, scope: Scope) -> list[Point]:
    """The attach point for each kind that its provider matches; empty after an error."""
    first = parts[0]
    if first.wild:
        return _any_provider(parts, span, scope)
    kind = probe_kind(first.text)
    if kind is not None:
        return [Point(kind, first, parts[1:], span)]
    if first.text.lower() in REMOVED:
        scope.error(REMOVED[first.text.lower()], first.span)
    elif len(parts) == 1:
        hints = did_you_mean(first.text.lower(), _names()) or (
            f"a probe is written provider:what, for example kprobe:{first.text or 'vfs_read'}",
        )
        scope.error(f"there is no probe {first.text!r}", first.span, hints)
    else:
        scope.error(f"there is no provider {first.text!r}", first.span, did_you_mean(first.text.lower(), _names()))
    return []


def _names() -> list[str]:
    return [name for row in PROBE_KINDS for name in (row.name, *(alias for alias in row.aliases if len(alias) > 2))]


def _any_provider(parts: tuple[Part, ...], span: Span, scope: Scope) -> list[Point]:
    """A pattern as provider: all kernel kinds that accept its parts, or the user-space ones with ``-p`` or a path."""
    user = scope.options.filters.pid is not None or (len(parts) > 1 and "/" in parts[1].text)
    points = [
        Point(row, parts[0], parts[1:], span)
        for row in PROBE_KINDS
        if row.wildcards and row.user == user and _matches_kind(parts[0].text, row)
    ]
    points = [point for point in points if PROVIDERS[point.kind.name].fit(point)]
    if not points:
        scope.error(f"no probe type matches {parts[0].text!r} with these parts", span)
    return points


def _matches_kind(pattern: str, row: ProbeKind) -> bool:
    return any(matches_pattern(pattern.lower(), name) for name in (row.name, *row.aliases))


def _is_selected(item: Match, scope: Scope) -> bool:
    """Whether the mode of the run has this kind, and ``--probe-filter`` lets it pass."""
    mode = _ONLY_IN_MODE.get(item.kind.name)
    if mode is not None and scope.options.mode not in (mode[0], "list"):
        return False
    filter_ = scope.probe_filter
    return filter_ is None or item.kind.name in (BEGIN, END) or filter_.search(item.probe) is not None


def _check_limits(units: list[ProbeUnit], scope: Scope) -> None:
    most = sum(len(unit.targets) for unit in units)
    within = most <= scope.config.max_probes and len(units) <= scope.config.max_bpf_progs
    if within or scope.options.mode == "list":
        return
    # A function that returns in several places is one probe.
    count = sum(len({item.probe for item in unit.targets if _is_exit(item)}) for unit in units)
    count += sum(not _is_exit(item) for unit in units for item in unit.targets)
    limits: Sequence[tuple[str, int, int, str]] = (
        ("max_probes", count, scope.config.max_probes, "probes"),
        ("max_bpf_progs", len(units), scope.config.max_bpf_progs, "BPF programs"),
    )
    for key, number, most, what in limits:
        if number > most:
            span = max(units, key=lambda unit: len(unit.targets)).span
            hints = [f"config = {{ {key} = {number} }} or PYTRACE_{key.upper()}={number} raises the limit"]
            scope.diagnostics.error(f"the script needs {number} {what}; the limit is {most}", span, hints=hints)


def _is_exit(target: Target) -> bool:
    """Whether this is one of the places at which a function returns."""
    return isinstance(target.place, UserTarget) and target.place.leaving is not None


def _check_some(
    units: list[ProbeUnit], program: nodes.Program, options: CompileOptions, diagnostics: Diagnostics, *, dropped: bool
) -> None:
    """Report an error if no program is left to attach."""
    wanted = options.probe_filter
    if wanted is not None and all(unit.kind.name in (BEGIN, END) for unit in units):
        diagnostics.error(f"no probe matches --probe-filter {wanted!r}", program.span)
        return
    if units or options.mode == "list":
        return
    hints = [
        f"{option} runs the {name} probes"
        for name, (_, option) in _ONLY_IN_MODE.items()
        if dropped and any(_is_of_provider(item, name) for probe in program.probes for item in probe.attach_points)
    ]
    if any(probe.off for probe in program.probes):
        hints.append("the options of the script switch its probes off")
    span = program.probes[0].head if program.probes else program.span
    diagnostics.error("there are no probes to attach", span, hints=hints)


def _is_of_provider(point: nodes.AttachPoint, name: str) -> bool:
    kind = kind_of(point.text)
    return kind is not None and kind.name == name


# ---------------------------------------------------------------------------------------------- queries

_NEEDS = {
    probe_kinds.KPROBE: "kprobe", probe_kinds.KRETPROBE: "kprobe",
    probe_kinds.FENTRY: "fentry", probe_kinds.FEXIT: "fentry",
    probe_kinds.UPROBE: "uprobe", probe_kinds.URETPROBE: "uprobe", probe_kinds.USDT: "uprobe", probe_kinds.ITER: "iter",
    probe_kinds.TRACEPOINT: "tracepoint", probe_kinds.RAWTRACEPOINT: "rawtracepoint",
    probe_kinds.HARDWARE: "perf_hardware", probe_kinds.WATCHPOINT: "watchpoint",
}  # fmt: skip
"""The kernel feature that a probe kind needs to attach; kinds that need none are omitted."""


def exists(
    text: str, options: CompileOptions, kernel: KernelInfo, config: Config, diagnostics: Diagnostics
) -> bool:
    """Whether an attach point or pattern has a target that can be attached to on this machine.

    Args:
        text: the attach point as in a script.
        options: options of the compilation.
        kernel: facts about the machine.
        config: the script's configuration.
        diagnostics: receives syntax errors in the attach point; a missing target is no error.
    """
    # --unsafe attaches even to targets that seem to be missing.
    wanted = replace(options, mode="run" if options.mode == "list" else options.mode, unsafe=False)
    scope = Scope(wanted, kernel, replace(config, missing_probes="ignore"), diagnostics)
    point = nodes.AttachPoint(Span(Source("probe_exist()", text), 0, len(text)), text)
    parts = split_point(point, options.positional, diagnostics, ahead=options.ahead)
    if parts is None:
        return False
    matches = _places(_points(parts, point.span, scope), parts, point.span, scope)
    matches = uprobes.leave_out_harmful(matches, scope)
    return any(item.kind.name not in _NEEDS or scope.feature(_NEEDS[item.kind.name]) for item in matches)


# ---------------------------------------------------------------------------------------------- unattached blocks


def left_out(
    program: nodes.Program, present: list[ProbeUnit], options: CompileOptions, kernel: KernelInfo, config: Config
) -> list[ProbeUnit]:
    """Units of probe blocks without targets, with as much of their context as is known."""
    scope = Scope(options, kernel, config, Diagnostics())
    blocks = {unit.index for unit in present}
    units: list[ProbeUnit] = []
    for index, probe in enumerate(program.probes):
        if index in blocks:
            continue
        matches = places(probe, scope)
        if matches:
            used = uses_of([probe.predicate, probe.body])
            units.extend(_build_programs(probe, index, len(units), matches, used, scope))
        else:
            units.extend(_unit_without_targets(probe, index))
    return units


def _within(span: Span, start: int, end: int) -> Span:
    return Span(span.source, min(span.start + start, span.end), min(span.start + max(end, start + 1), span.end))


def _report_bad(character: str, span: Span, diagnostics: Diagnostics) -> None:
    if character == '"':
        diagnostics.error("this quote is not closed", span)
    else:
        diagnostics.error(
            "'$' in an attach point must be followed by the number of a parameter or the name of an option",
            span,
            hints=["put the part in double quotes to use the character as it is"],
        )


def _report_unknown(
    name: str, options: Sequence[tuple[str, str]], span: Span, diagnostics: Diagnostics
) -> None:
    known = [known for known, _ in options]
    hints = [*did_you_mean(name, known)]
    if not hints:
        declared = ", ".join(known) or "none"
        hints = [f"'$' stands before the number of a parameter or the name of an option; options declared: {declared}"]
    diagnostics.error(f"the script declares no option {name!r}", span, hints=hints)


def _option(text: str, options: Sequence[tuple[str, str]]) -> tuple[str, str | None]:
    """The longest name of an option that *text* starts with, up to a dash, and its value; None when there is none."""
    known = dict(options)
    name = text
    while name not in known and "-" in name:
        name = name.rpartition("-")[0]
    return (name, known[name]) if name in known else (text, None)


def _parameter(digits: str, parameters: Sequence[str]) -> str | None:
    number = int(digits[-10:]) if not digits[:-10].strip("0") else 0
    return parameters[number - 1] if 1 <= number <= len(parameters) else None


class _Parts:
    """Collects the parts of one attach point while its text is read."""

    def __init__(self, span: Span) -> None:
        self.done: list[Part] = []
        self._span = span
        self._text, self._start, self._before = "", 0, ""
        self._quoted, self._plus = False, -1

    def plain(self, text: str) -> None:
        """Add text outside of quotes."""
        plus = text.find("+")
        if plus >= 0 and self._plus < 0:
            self._plus = len(self._text) + plus
        self._text += text

    def value(self, text: str, match: re.Match[str]) -> None:
        """Add the text of a parameter or option, which may contain several parts."""
        for index, part in enumerate(text.split(":")):
            if index:
                self.end(":", match.end(), match.start())
            self.plain(part)

    def quote(self, text: str) -> None:
        """Add text between quotes."""
        self._text += text
        self._quoted = True

    def end(self, separator: str, end: int, following: int) -> None:
        """End a part before offset *end*; the next one starts at offset *following*, after *separator*."""
        where = _within(self._span, self._start, end)
        self.done.append(Part(self._text, where, self._before, self._quoted, self._plus))
        self._text, self._start, self._before = "", following, separator
        self._quoted, self._plus = False, -1


def _unit_without_targets(probe: nodes.Probe, index: int) -> list[ProbeUnit]:
    """A unit of a block without targets, whose context is known only as far as the probe kind determines it."""
    for point in probe.attach_points:
        kind = kind_of(point.text)
        if kind is not None:
            target = Target(point.text, 0, NoTarget())
            return [ProbeUnit("", index, kind, (target,), ProbeContext(), _body_of(probe), probe.head)]
    return []
