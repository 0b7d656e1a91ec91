"""Groups the targets of a probe block into programs.

Targets with the same context share one program, which distinguishes them by attach cookie; each program has its own
copy of the body, so that a node has one type.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from pytrace.core.manifest import Target
from pytrace.core.probes.kinds import PidFilter, ProbeKind
from pytrace.frontend.ast import nodes, visitor
from pytrace.frontend.ast.probe_context import ProbeContext
from pytrace.frontend.ast.typed_program import ProbeUnit
from pytrace.frontend.attach.providers.table import provider_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from pytrace.core.probes.targets import ProbeTarget
    from pytrace.frontend.attach.points.body_uses import Uses
    from pytrace.frontend.attach.providers.base import Match, Scope


class _Group(msgspec.Struct):
    context: ProbeContext
    matches: list[Match] = msgspec.field(default_factory=list)


def build(
    probe: nodes.Probe, index: int, first: int, matches: list[Match], uses: Uses, scope: Scope
) -> list[ProbeUnit]:
    """The units of one block; *first* is the index of the first one in the script."""
    injected = any(item.kind.pid_filter is PidFilter.INJECTED for item in matches)
    filtered = any(item.kind.pid_filter is not PidFilter.NONE for item in matches)
    follow = scope.options.follow and any(_checked_when_following(item.kind, scope) for item in matches)
    automatic = not scope.decides
    body = body_of(probe)
    units: list[ProbeUnit] = []
    for group in _groups(matches, uses, scope):
        kind = group.matches[0].kind
        targets = tuple(Target(item.probe, cookie, item.place) for cookie, item in enumerate(group.matches))
        units.append(
            ProbeUnit(
                symbol=_symbol(group.matches, first + len(units)),
                index=index,
                kind=kind,
                targets=targets,
                context=group.context,
                body=visitor.copy(body) if units else body,
                span=probe.head,
                multi=provider_of(kind.name).multi(group.matches, scope),
                calls=tuple(item.call for item in group.matches if item.call is not None),
                # If one kind in the block needs filtering in the program, all its targets are filtered there.
                pid_filter=automatic and injected and (bool(scope.options.filters.pids) or scope.options.ahead),
                filtered=automatic and filtered and scope.options.filtered,
                follow=automatic and follow,
            )
        )
    return units


def _groups(matches: list[Match], uses: Uses, scope: Scope) -> Iterator[_Group]:
    """The groups, in order of their first match."""
    groups: dict[Hashable, _Group] = {}
    # A program with several targets distinguishes them by cookie.
    shared = "probe" not in uses or len(matches) < 2 or scope.feature("get_attach_cookie")
    for index, match in enumerate(_distinct(matches)):
        provider = provider_of(match.kind.name)
        context = provider.context(match, uses, scope)
        # uaddr() derives the binary's load address from the single target of its program.
        single = provider.single or match.raw or not shared or (match.kind.user and "uaddr" in uses)
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
