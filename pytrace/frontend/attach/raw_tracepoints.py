"""Hot tracepoints traced by raw tracepoint programs.

The kernel runs a program of ``tracepoint:sched:sched_switch`` through perf, which first copies all fields into a
record. A program of the raw tracepoint of the same name receives the arguments that the fields are computed from. A
probe becomes such a program if every field that its body uses is a known expression of these arguments
(``points.raw_fields``) and the rest of the body behaves the same. All bodies on a target use the same method, so that
they run in the order of the script.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from pytrace.core.kernel_info import TracepointField
from pytrace.core.probes import system_calls as call_numbers
from pytrace.core.probes.targets import AnyTarget, TracepointTarget
from pytrace.core.types import String
from pytrace.frontend.attach.points import body_uses, raw_fields
from pytrace.frontend.attach.providers.base import Match, Scope
from pytrace.frontend.attach.system_calls import Block
from pytrace.frontend.syntax import nodes

FEATURE = "rawtracepoint"


def choose(blocks: list[Block], program: nodes.Program, scope: Scope) -> list[Block]:
    """*blocks* with :attr:`Match.raw` set on the targets that raw tracepoint programs trace.

    Args:
        blocks: the blocks with their targets.
        program: the script, for the functions that blocks call.
        scope: the inputs of expansion.
    """
    places = dict.fromkeys(match.place for block in blocks for match in block.matches if _hot(match))
    if not places or scope.options.ahead or not scope.attaching:
        return blocks
    plain: dict[AnyTarget, str] = dict.fromkeys(places, _unusable(scope))
    if not any(plain.values()):
        functions = {item.name: item for item in program.items if isinstance(item, nodes.Function)}
        known: dict[AnyTarget, _Fields] = {}
        for block in blocks:
            for match in filter(_hot, block.matches):
                fields = known.setdefault(match.place, _Fields.of(match.place, scope))
                plain[match.place] = plain[match.place] or _difference(block, fields, functions)
    if scope.options.verbose:
        _report(blocks, plain, scope)
    raw = {place for place, reason in plain.items() if not reason}
    return [
        replace(block, matches=[replace(match, raw=True) if match.place in raw else match for match in block.matches])
        for block in blocks
    ]


def _hot(match: Match) -> bool:
    place = match.place
    return isinstance(place, TracepointTarget) and (place.category, place.event) in raw_fields.TABLE


def _unusable(scope: Scope) -> str:
    """The reason why raw tracepoint programs cannot be used; empty if they can."""
    kernel = scope.kernel
    if scope.config.raw_tracepoints == "plain":
        return "raw_tracepoints is plain"
    if kernel.arch not in call_numbers.ABIS:
        return f"not on {kernel.arch}"
    return "" if kernel.has_btf and scope.feature(FEATURE) else "no raw tracepoints with types"


class _Fields(msgspec.Struct, frozen=True):
    """The fields of a tracepoint: all, the known ones, and those that are text."""

    all: frozenset[str]
    known: frozenset[str]
    texts: frozenset[str]
    typed: bool

    @classmethod
    def of(cls, place: AnyTarget, scope: Scope) -> _Fields:
        """The fields of the tracepoint at *place*."""
        assert isinstance(place, TracepointTarget), place
        kernel = scope.kernel
        fields = kernel.tracepoint_fields(place.category, place.event)
        shown: tuple[TracepointField, ...] = () if fields is None else raw_fields.own(fields)
        known = raw_fields.places(place.category, place.event, shown, kernel, trusted=False)
        return cls(
            frozenset(item.name for item in shown),
            frozenset(known),
            frozenset(item.name for item in shown if item.data_loc or isinstance(item.type, String)),
            fields is not None and kernel.type_id("typedef", f"btf_trace_{place.event}") != 0,
        )


def _difference(block: Block, fields: _Fields, functions: Mapping[str, nodes.Function]) -> str:
    """The reason why a body would behave differently in a raw tracepoint program; empty if it would not."""
    uses = block.uses
    if not fields.typed:
        return "its types are not known"
    unknown = (fields.all | uses.fields if uses.whole else uses.fields) - fields.known
    if unknown:
        return f"args.{min(unknown)}"
    name = body_uses.type_specific(block.roots, functions)
    if name:
        return name
    name = body_uses.bytes_of(block.roots, fields.texts)
    return f"bytes of args.{name}" if name else ""


def _report(blocks: list[Block], plain: Mapping[AnyTarget, str], scope: Scope) -> None:
    """With ``-v``, report how tracepoints are traced, and why."""
    spans = {match.place: match.span for block in blocks for match in block.matches}
    raw = [_name(place) for place, reason in plain.items() if not reason]
    others = [f"{_name(place)} ({reason})" for place, reason in plain.items() if reason]
    first = spans[next(iter(plain))]
    for names, way in ((raw, "raw tracepoints"), (others, "perf events")):
        if names:
            scope.diagnostics.note(f"tracepoints by way of {way}: {', '.join(names)} (config raw_tracepoints)", first)


def _name(place: AnyTarget) -> str:
    assert isinstance(place, TracepointTarget), place
    return f"{place.category}:{place.event}"
