"""Layout of slots, counters and scratch areas."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pytrace.codegen.emit.storage import CACHE_LINE, CLAIM, COPIES, Layout, emptied, resettable, snapshots
from pytrace.codegen.ir.module import Module
from pytrace.core.event_layout import Location
from pytrace.core.manifest import SLOT_FLAG
from pytrace.core.source import Source, Span
from pytrace.core.types import INT64, Count, Hist, String, Type
from pytrace.frontend.syntax.typed_program import CheckedProgram, MapInfo
from tests.support.front import analyse

SPAN = Span(Source("stdin", "@", None), 0, 1)


def checked(**values: Type) -> CheckedProgram:
    maps = {f"@{name}": MapInfo(f"@{name}", None, value, "global", 1, SPAN) for name, value in values.items()}
    return CheckedProgram(maps=maps)


def test_copies_are_a_power_of_two() -> None:
    assert [Layout.plan(CheckedProgram(), cpus).copies for cpus in (1, 2, 3, 8, 9)] == [1, 2, 4, 8, 16]


def test_aggregates_are_per_cpu_and_do_not_overlap() -> None:
    program = checked(a=Count(), b=Hist(0), c=Count())
    layout = Layout.plan(program, 4)
    places = sorted((layout.slots[name], SLOT_FLAG + info.value.size) for name, info in program.maps.items())
    for (start, size), (following, _) in pairwise(places):
        assert start + size <= following
    layout.finish(Module(None, "GPL"))
    assert layout.stride % CACHE_LINE == 0
    assert layout.stride >= places[-1][0] + places[-1][1]
    assert layout.total == 4 * layout.stride
    slot = layout.slot(program.maps["@b"])
    assert slot is not None
    assert (slot.copies, slot.stride) == (4, layout.stride)


def test_scalars_are_shared_and_on_lines_of_their_own() -> None:
    program = checked(x=INT64, y=String(100))
    layout = Layout.plan(program, 4)
    assert layout.slots["@x"] % CACHE_LINE == 0
    assert layout.slots["@y"] % CACHE_LINE == 0
    assert layout.slots["@x"] != layout.slots["@y"]
    slot = layout.slot(program.maps["@x"])
    assert slot is not None
    assert slot.copies == 1


def test_preemptible_programs_have_several_copies_of_their_area() -> None:
    plain, claimed = Layout(2), Layout(2)
    plain.area("guarded", 1024)
    claimed.area("user", 1024)
    for layout in (plain, claimed):
        layout.finish(Module(None, "GPL"))
    assert plain.stride >= 1024
    assert claimed.stride >= CLAIM + COPIES * 1024


def test_counters_come_behind_the_slots_in_the_order_of_use() -> None:
    layout = Layout.plan(checked(a=Count()), 2)
    assert [layout.counter(*key) for key in (("map_full", 0), ("lost", 3), ("map_full", 0))] == [0, 8, 0]
    layout.finish(Module(None, "GPL"))
    counters = layout.manifest_counters()
    assert counters.names == (("map_full", 0), ("lost", 3))
    assert counters.offset >= layout.slots["@a"] + SLOT_FLAG + 8


def test_a_place_where_a_helper_fails_has_one_counter() -> None:
    layout = Layout.plan(checked(), 2)
    places = [Location("stdin", 1, column) for column in (1, 5, 1)]
    assert [layout.site("bpf_probe_read_user", place) for place in places] == [0, 1, 0]
    assert [site.location for site in layout.manifest_counters().sites] == places[:2]


def test_random_words_are_for_the_largest_digested_key() -> None:
    maps = {
        f"@{size}": MapInfo(f"@{size}", String(size), INT64, "hash", 5, SPAN) for size in (100, 333, 1000)
    }
    layout = Layout.plan(CheckedProgram(maps=maps), 1, digested=frozenset({"@100", "@333"}))
    words = layout.random_words()
    assert words is not None
    assert words.size == 2 * (336 + 8)
    assert words.offset % CACHE_LINE == 0
    assert layout.shared >= words.offset + words.size
    assert Layout.plan(CheckedProgram(maps=maps), 1).random_words() is None


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("@m[1] = 1; print(@m);", set()),
        ("@m[1] = 1; clear(@m);", set()),
        ("@m[1] = 1; print(@m); clear(@m);", {"@m"}),
        ("@m[1] = 1; print_clear(@m);", {"@m"}),
        ("@m[1] = count(); print(@m); clear(@m);", {"@m"}),
        ("@s = 1; clear(@s);", {"@s"}),
        ("@s = 1; zero(@s);", {"@s"}),
        ("@s = 1; print(@s); clear(@s);", {"@s"}),
        ("@s = 1; print(@s);", set()),
        ("@c = count(); clear(@c);", set()),
        ("@c = count(); print(@c); clear(@c);", set()),
        ("@c = count(); $x = (int64)@c; clear(@c);", {"@c"}),
        ("@h = hist(1); clear(@h);", set()),
        ("@h = hist(1); quantiles(@h); clear(@h);", set()),
        ("@x = max(1); clear(@x);", {"@x"}),
        ("@a = 1; @b = count(); @b = count(); clear(@b); @a = (int64)@b;", {"@b"}),
        ("@m[1] = 1; print(@m); @m[2] = 2; clear(@m);", set()),
    ],
)
def test_names(body: str, names: set[str]) -> None:
    assert snapshots(analyse(f"begin {{ {body} }}").checked()) == names


@pytest.mark.parametrize(
    ("body", "names", "buffered"),
    [
        ("@c = count();", {"@c"}, set()),
        ("@c = count(); $x = (int64)@c;", {"@c"}, {"@c"}),
        ("@c[tid] = count(); @h = hist(1);", {"@c", "@h"}, {"@c"}),
        ("@m = max(1); @s[comm] = stats(1); print(@m);", {"@m", "@s"}, {"@m", "@s"}),
        ("@n++; --@m[1]; @o[tid] += 2; @p -= tid;", {"@n", "@m", "@o", "@p"}, {"@n", "@m", "@o", "@p"}),
        ("@n[1]++; if (@n[1] > 3) { exit(); }", set(), set()),
        ("@n++; @n = 5;", set(), set()),
        ("$x = @n++; @k[@j++]++;", {"@k"}, {"@k"}),
        ("@n[1]++; _ = delete(@n, 1); @o[@a] += @b; @a = 1; @b = 2;", {"@o"}, {"@o"}),
        ("@start[tid] = nsecs; @text = comm; @t[1] = (1, 2);", set(), set()),
    ],
)
def test_what_the_user_may_reset(body: str, names: set[str], buffered: set[str]) -> None:
    program = analyse(f"begin {{ {body} }}").checked()
    assert resettable(program) == names
    assert snapshots(program, resets=True) == buffered
    assert snapshots(program) == set()
    layout = Layout.plan(program, 2, resets=True)
    assert layout.emptied == names
    assert layout.awaited == set(), "programs may sleep as without the view"


def test_functions_read_maps() -> None:
    text = "fn f(): int64 { return (int64)@c; } begin { @c = count(); clear(@c); print(f()); }"
    assert snapshots(analyse(text).checked()) == {"@c"}


def test_emptied_in_any_way() -> None:
    body = "@a[1] = 1; @b[1] = 1; @c[1] = 1; @d[1] = 1; @e = 1; print(@a); clear(@a); clear(@b); zero(@c); print(@d);"
    assert emptied(analyse(f"begin {{ {body} clear(@e); }}").checked()) >= {"@a", "@b", "@e"}
    assert "@d" not in emptied(analyse(f"begin {{ {body} clear(@e); }}").checked())
