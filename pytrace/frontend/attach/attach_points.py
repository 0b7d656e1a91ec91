"""The pass that resolves attach points (``provider:part:part``) to the programs of a script.

Each attach point is split (``points.parts``), then checked and expanded by its provider (``providers``); the targets
of one block are grouped into units (``programs``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from pytrace.core.builtins import IN_SCOPE
from pytrace.core.config import Config
from pytrace.core.diagnostics import Diagnostics, did_you_mean
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.manifest import Target
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.probes import kinds
from pytrace.core.probes.attach_point_text import kind_of
from pytrace.core.probes.kinds import BEGIN, BENCH, END, PROBE_KINDS, TEST, Context, ProbeKind, probe_kind
from pytrace.core.probes.targets import NoTarget, UserTarget
from pytrace.core.source import Source, Span
from pytrace.frontend.attach import harmful_places, programs, raw_tracepoints, system_calls
from pytrace.frontend.attach.points import body_uses
from pytrace.frontend.attach.points.parts import Part, Point, split
from pytrace.frontend.attach.providers.base import Match, Scope, matches_pattern
from pytrace.frontend.attach.providers.table import PROVIDERS
from pytrace.frontend.attach.system_calls import Block
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import ProbeContext, ProbeUnit

REMOVED = {
    "asyncwatchpoint": "asyncwatchpoint probes are gone; watchpoint:ADDRESS:LENGTH:MODE watches an address",
}
"""Providers of earlier versions, and hints about them."""

ONLY_IN_MODE = {TEST: ("test", "--test"), BENCH: ("bench", "--bench")}
"""Kinds that run in one mode only: the mode, and the option that selects it."""


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
        decides=_decides(program),
        probe_filter=_filter(options, program, diagnostics),
    )
    blocks: list[Block] = []
    dropped = False
    for index, probe in enumerate(program.probes):
        if probe.off:
            continue
        matches = places(probe, scope)
        kept = [item for item in matches if _runs(item.kind, options) and _wanted(item, scope)]
        dropped = dropped or len(kept) < len(matches)
        kept = harmful_places.leave_out(kept, scope)
        if kept:
            blocks.append(Block(probe, index, kept, body_uses.of([probe.predicate, probe.body])))
    units = _units(blocks, program, scope)
    if not diagnostics.failed:
        _check_limits(units, scope)
        _check_some(units, program, options, diagnostics, dropped=dropped)
    return programs.pair(units, scope)


def _units(blocks: list[Block], program: nodes.Program, scope: Scope) -> list[ProbeUnit]:
    """The programs of all blocks."""
    blocks = raw_tracepoints.choose(blocks, program, scope)

    def build(without: frozenset[str]) -> list[ProbeUnit]:
        units: list[ProbeUnit] = []
        for block in system_calls.choose(blocks, program, scope, without):
            units.extend(programs.build(block.probe, block.index, len(units), block.matches, block.uses, scope))
        return units

    units = build(frozenset())
    too_large = system_calls.too_large(units)
    return system_calls.combine(build(too_large) if too_large else units)


def _decides(program: nodes.Program) -> bool:
    """Whether a script uses ``in_scope``, and so applies the process filters itself."""
    names = (nodes.Identifier, nodes.Call)
    return any(isinstance(node, names) and node.name == IN_SCOPE for node in nodes.walk(program))


def places(probe: nodes.Probe, scope: Scope) -> list[Match]:
    """The targets of the attach points of one block."""
    matches: list[Match] = []
    kinds_of_block: list[tuple[ProbeKind, Span]] = []
    for attach_point in probe.attach_points:
        parts = split(attach_point, scope.options.positional, scope.diagnostics, ahead=scope.options.ahead)
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
        if row.wildcards and row.user == user and _named(parts[0].text, row)
    ]
    points = [point for point in points if PROVIDERS[point.kind.name].fit(point)]
    if not points:
        scope.error(f"no probe type matches {parts[0].text!r} with these parts", span)
    return points


def _named(pattern: str, row: ProbeKind) -> bool:
    return any(matches_pattern(pattern.lower(), name) for name in (row.name, *row.aliases))


def _runs(kind: ProbeKind, options: CompileOptions) -> bool:
    mode = ONLY_IN_MODE.get(kind.name)
    return mode is None or options.mode in (mode[0], "list")


def _filter(options: CompileOptions, program: nodes.Program, diagnostics: Diagnostics) -> re.Pattern[str] | None:
    """``--probe-filter``: a regular expression that the full name must contain."""
    try:
        return None if options.probe_filter is None else re.compile(options.probe_filter)
    except re.error as problem:
        diagnostics.error(f"--probe-filter is not a regular expression: {problem}", program.span)
        return None


def _wanted(item: Match, scope: Scope) -> bool:
    filter_ = scope.probe_filter
    return filter_ is None or item.kind.name in (BEGIN, END) or filter_.search(item.probe) is not None


def _check_limits(units: list[ProbeUnit], scope: Scope) -> None:
    if scope.options.mode == "list":
        return
    # A function that returns in several places is one probe.
    count = sum(len({item.probe for item in unit.targets if _leaves(item)}) for unit in units)
    count += sum(not _leaves(item) for unit in units for item in unit.targets)
    limits: Sequence[tuple[str, int, int, str]] = (
        ("max_probes", count, scope.config.max_probes, "probes"),
        ("max_bpf_progs", len(units), scope.config.max_bpf_progs, "BPF programs"),
    )
    for key, number, most, what in limits:
        if number > most:
            span = max(units, key=lambda unit: len(unit.targets)).span
            hints = [f"config = {{ {key} = {number} }} or PYTRACE_{key.upper()}={number} raises the limit"]
            scope.diagnostics.error(f"the script needs {number} {what}; the limit is {most}", span, hints=hints)


def _leaves(target: Target) -> bool:
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
        for name, (_, option) in ONLY_IN_MODE.items()
        if dropped and any(_is_of(item, name) for probe in program.probes for item in probe.attach_points)
    ]
    if any(probe.off for probe in program.probes):
        hints.append("the options of the script switch its probes off")
    span = program.probes[0].head if program.probes else program.span
    diagnostics.error("there are no probes to attach", span, hints=hints)


def _is_of(point: nodes.AttachPoint, name: str) -> bool:
    kind = kind_of(point.text)
    return kind is not None and kind.name == name


# ---------------------------------------------------------------------------------------------- queries

_NEEDS = {
    kinds.KPROBE: "kprobe", kinds.KRETPROBE: "kprobe", kinds.FENTRY: "fentry", kinds.FEXIT: "fentry",
    kinds.UPROBE: "uprobe", kinds.URETPROBE: "uprobe", kinds.USDT: "uprobe", kinds.ITER: "iter",
    kinds.TRACEPOINT: "tracepoint", kinds.RAWTRACEPOINT: "rawtracepoint",
    kinds.HARDWARE: "perf_hardware", kinds.WATCHPOINT: "watchpoint",
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
    parts = split(point, options.positional, diagnostics, ahead=options.ahead)
    if parts is None:
        return False
    matches = _places(_points(parts, point.span, scope), parts, point.span, scope)
    matches = harmful_places.leave_out(matches, scope)
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
            used = body_uses.of([probe.predicate, probe.body])
            units.extend(programs.build(probe, index, len(units), matches, used, scope))
        else:
            units.extend(_unplaced(probe, index))
    return units


def _unplaced(probe: nodes.Probe, index: int) -> list[ProbeUnit]:
    """A unit of a block without targets, whose context is known only as far as the probe kind determines it."""
    for point in probe.attach_points:
        kind = kind_of(point.text)
        if kind is not None:
            target = Target(point.text, 0, NoTarget())
            return [ProbeUnit("", index, kind, (target,), ProbeContext(), programs.body_of(probe), probe.head)]
    return []
