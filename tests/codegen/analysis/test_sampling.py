"""Which programs may be sampled, and which maps carry weights."""

from __future__ import annotations

import pytest

from pytrace.codegen.emit.map_uses import SamplingPlan, sampling_plan
from tests.support.facts import RecordedKernel
from tests.support.front import analyse

A, B, C = "tracepoint:sched:sched_switch", "tracepoint:sched:sched_wakeup", "profile:hz:99"


def of(text: str) -> SamplingPlan:
    return sampling_plan(analyse(text, kernel=RecordedKernel()).checked())


@pytest.mark.parametrize(
    ("text", "sampled", "weighted"),
    [
        (f"{A} {{ @ = count(); @x++; @s[pid] = sum(1); }}", {0}, set()),
        # The tracer runs these, and its timers.
        (f"begin {{ @ = count(); }} interval:s:1 {{ print(@); }} end {{ @ = count(); }} {A} {{ @ = count(); }}",
         {3}, set()),
        # An entry stores what its return takes away: the pair is sampled by its entry.
        (f"{A} {{ @t[tid] = nsecs; }} {B} /@t[tid]/ {{ @ = hist(nsecs - @t[tid]); delete(@t, tid); }}", {0}, {"@t"}),
        (f"{A} {{ @t[tid] = nsecs; }} {B} {{ if (delete(@t, tid)) {{ @ = count(); }} }}", {0}, {"@t"}),
        (f"{A} {{ @t[tid] = nsecs; }} {B} {{ if (has_key(@t, tid)) {{ @ = count(); }} delete(@t, tid); }}",
         {0}, {"@t"}),
        # Nothing takes it away: a return would find what an earlier entry has left.
        (f"{A} {{ @t[tid] = nsecs; }} {B} /@t[tid]/ {{ @ = hist(nsecs - @t[tid]); }}", set(), set()),
        # The second one of three also stores something.
        ((f"{A} {{ @a[tid] = 1; }} {B} /@a[tid]/ {{ @b[tid] = 1; delete(@a, tid); }} "
         f"{C} /@b[tid]/ {{ @ = count(); delete(@b, tid); }}"), {0}, {"@a"}),
        # What is counted within a pair has the weight of the entry.
        (f"{A} {{ @t[tid] = 1; }} {B} {{ delete(@t, tid); }} {C} /@t[tid]/ {{ @ = count(); }}", {0}, {"@t"}),
        # A switch is not sampled; what only looks at it is.
        (f"{A} {{ @on = 1; }} {B} {{ @on = 0; }} {C} /@on/ {{ @ = count(); }}", {2}, set()),
        # From hit to hit.
        (f"{A} {{ @d = hist(nsecs - @last); @last = nsecs; }}", set(), set()),
        (f"{A} {{ @d = hist(nsecs - @last[cpu]); @last[cpu] = nsecs; }}", set(), set()),
        (f"{A} {{ @depth[tid]++; }} {B} {{ @depth[tid]--; }} {C} {{ @ = hist(@depth[tid]); }}", set(), set()),
        # Memory that was not freed: sums are scaled where they are stored, frees always run.
        (f"{A} {{ @size[pid] = sum(8); }} {B} {{ delete(@size, pid); }}", {0}, set()),
        # What a timer reads is no reason.
        (f"{A} {{ @x = nsecs; }} interval:s:1 {{ printf(\"%d\", @x); }}", {0}, set()),
        (f"fn f($n : int64) : int64 {{ @last = $n; return @last; }} {A} {{ @ = sum(f(1)); }}", set(), set()),
    ],
)  # fmt: skip
def test_what_later_hits_rely_on_is_not_left_out(text: str, sampled: set[int], weighted: set[str]) -> None:
    found = of(text)
    assert (found.sampled, found.weighted) == (sampled, weighted)


def test_weights_are_stored_and_read_beside_values() -> None:
    found = of(f"{A} {{ @t[tid] = nsecs; }} {B} /@t[tid]/ {{ @ = count(); delete(@t, tid); }}")
    assert [found.storing(number) for number in (0, 1)] == [{"@t"}, set()]
    assert [found.reading(number) for number in (0, 1)] == [set(), {"@t"}]


def test_uses_name_maps_and_events() -> None:
    uses = of(f'{A} {{ @a[@k] = count(); @b = @c; printf("%d", 1); print(@d); clear(@e); @d = 1; @e = 1; @c = 2; '
              '@k = 1; }').uses[0]  # fmt: skip
    assert (uses.reads, uses.writes, uses.deletes) == (
        {"@k", "@c"}, {"@a", "@b", "@c", "@d", "@e", "@k"}, {"@e"}
    )  # fmt: skip
    assert len(uses.events) == 3
