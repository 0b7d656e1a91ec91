"""The table of providers."""

from __future__ import annotations

from pytrace.core.probe_kinds import PROBE_KINDS, ProbeKind
from pytrace.core.source import Source, Span
from pytrace.frontend.probes.attach_points import PROVIDERS
from pytrace.frontend.probes.providers import Part, Point, Provider
from tests.support.rows import each_row


def test_every_kind_has_a_provider() -> None:
    assert all(isinstance(PROVIDERS[row.name], Provider) for row in PROBE_KINDS)


SPAN = Span(Source("stdin", "x"), 0, 1)
PARTS = {
    "begin": {0}, "end": {0}, "self": {2}, "test": {1}, "bench": {1}, "kprobe": {1, 2}, "kretprobe": {1, 2},
    "uprobe": {2, 3}, "uretprobe": {2, 3}, "usdt": {2, 3}, "python": {2}, "pythonret": {2}, "tracepoint": {2},
    "rawtracepoint": {1, 2}, "fentry": {1, 2}, "fexit": {1, 2}, "profile": {1, 2}, "interval": {1, 2},
    "software": {1, 2}, "hardware": {1, 2},
    "watchpoint": {3}, "iter": {1, 2},
}  # fmt: skip
"""Numbers of parts that an attach point of each kind may have, for a pattern as provider."""


@each_row("row", PROBE_KINDS, ids=lambda row: row.name)
def test_what_a_pattern_as_provider_may_mean(row: ProbeKind) -> None:
    def point(count: int) -> Point:
        return Point(row, Part(row.name, SPAN), (Part("x", SPAN),) * count, SPAN)

    assert {count for count in range(6) if PROVIDERS[row.name].fit(point(count))} == PARTS[row.name]
