"""Groups the targets of a probe block into programs, and pairs entry and return of a function.

Targets with the same context share one program, which distinguishes them by attach cookie; each program has its own
copy of the body, so that a node has one type.

A kprobe and a kretprobe on the same functions each need a program, a link and a hook. With kprobe sessions (since 6.10,
``BPF_TRACE_KPROBE_SESSION``) one hook serves both: its program checks whether it runs at entry or return.

Kernels before 6.14 keep the state of running calls in a pool of two entries per CPU and function of the link, and skip
entry and return of a call when the pool is full. A function that sleeps exhausts the pool of a link on that function
alone; the pool of a link on many functions is large enough.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator

import msgspec
from msgspec.structs import replace

from pytrace.core.manifest import Target
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.probes.kinds import KPROBE, KRETPROBE, PidFilter, ProbeKind
from pytrace.core.probes.targets import (
    ENTER,
    EXIT,
    KernelFunctionTarget,
    ProbeTarget,
    RawTracepointTarget,
    TracepointTarget,
    sampling_period,
)
from pytrace.frontend.attach.points.body_uses import Uses
from pytrace.frontend.attach.providers.base import Match, Scope
from pytrace.frontend.attach.providers.table import PROVIDERS
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import KPROBE_SESSION, SESSION_IS_RETURN, ProbeContext, ProbeUnit


class _Group(msgspec.Struct):
    context: ProbeContext
    matches: list[Match] = msgspec.field(default_factory=list)


def build(
    probe: nodes.Probe, index: int, first: int, matches: list[Match], uses: Uses, scope: Scope
) -> list[ProbeUnit]:
    """The units of one block; *first* is the index of the first one in the script."""
    injected = any(item.kind.pid_filter is PidFilter.INJECTED for item in matches)
    filtered = any(item.kind.pid_filter is not PidFilter.NONE for item in matches)
    follow = any(_checked_when_following(item.kind, scope) for item in matches)
    automatic = not scope.decides
    by_pid = bool(scope.options.filters.pids) or scope.options.ahead
    body = body_of(probe)
    units: list[ProbeUnit] = []
    for group in _groups(matches, uses, scope):
        kind = group.matches[0].kind
        # Samples of CPUs are those of any process, also in scripts that decide themselves about other events.
        sampling = any(_samples_cpus(item) for item in group.matches)
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
                pid_filter=(sampling or (automatic and injected)) and by_pid,
                of_child=sampling and _by_child(scope.options),
                filtered=automatic and filtered and scope.options.filtered,
                foreign=automatic and scope.options.foreign and _attributes(group.matches, uses),
                follow=scope.options.follow and (sampling or (automatic and follow)),
            )
        )
    return units


def _groups(matches: list[Match], uses: Uses, scope: Scope) -> Iterator[_Group]:
    """The groups, in order of their first match."""
    groups: dict[Hashable, _Group] = {}
    # A program with several targets distinguishes them by cookie.
    shared = "probe" not in uses or len(matches) < 2 or scope.feature("get_attach_cookie")
    for index, match in enumerate(_distinct(matches)):
        provider = PROVIDERS[match.kind.name]
        context = provider.context(match, uses, scope)
        # uaddr() derives the binary's load address from the single target of its program.
        single = provider.single or match.raw or not shared or (match.kind.user and "uaddr" in uses)
        single = single or (match.exits and not scope.feature("get_attach_cookie"))
        key = (match.kind.name, index if single else _layout(context, uses), provider.apart(match))
        groups.setdefault(key, _Group(context)).matches.append(match)
    yield from groups.values()


def _distinct(matches: list[Match]) -> Iterator[Match]:
    """The targets, deduplicated unless one was written twice without a pattern."""
    seen: set[tuple[str, ProbeTarget]] = set()
    for match in matches:
        key = (match.probe, match.place)
        if key in seen and match.wild:
            continue
        seen.add(key)
        yield match


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


def _attributes(matches: list[Match], uses: Uses) -> bool:
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
    """Whether the process of ``-c`` may be what selects the processes: no other filter does."""
    return (options.child or options.ahead) and not options.follow and not options.filtered


def _checked_when_following(kind: ProbeKind, scope: Scope) -> bool:
    """Whether programs have to check for followed processes.

    Perf events of the ``-c`` process are inherited by all processes that it forks.  For ``-p`` it is not known which of
    the existing descendants have inherited one, so perf events are opened for all processes.
    """
    if kind.pid_filter is PidFilter.INJECTED:
        return True
    options = scope.options
    runs_already = bool(options.filters.pids) or options.awaits or options.ahead
    return kind.pid_filter is PidFilter.ATTACH and (kind.user or runs_already)


def body_of(probe: nodes.Probe) -> nodes.Block:
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

ROOM = 16
"""Minimum number of functions of a link whose pool is large enough for concurrent calls."""


def pair(units: list[ProbeUnit], scope: Scope) -> list[ProbeUnit]:
    """The units; exactly one kprobe and one kretprobe on the same functions are marked as a session."""
    if not any(unit.kind.name == KRETPROBE for unit in units) or not _possible(scope):
        return units
    least = ROOM if _has_pool(scope) else 1
    entries, returns = _by_functions(units, KPROBE), _by_functions(units, KRETPROBE)
    replaced: dict[str, ProbeUnit] = {}
    for functions, entry_units in entries.items():
        left = returns.get(functions, [])
        if len(entry_units) == 1 and len(left) == 1 and len(entry_units[0].targets) >= least:
            entry, leaving = entry_units[0], left[0]
            replaced[entry.symbol] = replace(entry, multi=KPROBE_SESSION)
            replaced[leaving.symbol] = replace(leaving, multi=KPROBE_SESSION, part_of=entry.symbol)
    return [replaced.get(unit.symbol, unit) for unit in units]


def _possible(scope: Scope) -> bool:
    return scope.attaching and scope.feature(KPROBE_SESSION) and scope.kernel.function(SESSION_IS_RETURN) is not None


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
