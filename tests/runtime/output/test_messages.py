"""Messages about losses: one for each kind, with numbers, locations and hints."""

from __future__ import annotations

import errno

import pytest

from pytrace.core.config import Config
from pytrace.core.event_layout import Location
from pytrace.core.manifest import Counters, Manifest, MapSpec, ProgramSpec, Site, Target
from pytrace.core.probes.targets import TimerTarget
from pytrace.core.types import INT64, Count, Type
from pytrace.runtime.output import messages
from tests.support.rows import each_row

PLACE = Location("x.bt", 3, 7)
TARGETS = tuple(Target(f"interval:s:{n}", n, TimerTarget(period_ns=n * 10**9)) for n in range(1, 15))
PROGRAMS = tuple(ProgramSpec(f"p{at}", "interval", at, TARGETS[: at + 1], PLACE) for at in range(14))
MAPS = (
    MapSpec("@a", "a", "hash", INT64, INT64, 10),
    MapSpec("@b", "b", "hash", INT64, INT64, 20),
)
MANIFEST = Manifest(
    PROGRAMS, MAPS, (), (), Config(max_strlen=99),
    counters=Counters(".data", 0, 1, 8, (), (Site("bpf_get_stack", PLACE), Site("bpf_probe_read", PLACE))),
)  # fmt: skip


@each_row("kind", sorted(messages.FAILURES))
def test_each_kind_has_a_sentence(kind: str) -> None:
    row = messages.FAILURES[kind]
    (one,) = messages.summary_lines(MANIFEST, {(kind, 0): 1})
    assert one.startswith(f"1 {row.one}")
    (many,) = messages.summary_lines(MANIFEST, {(kind, 0): 2, (kind, 1): 3}, told=[kind])
    assert many.startswith(f"in total, 5 {row.many}")
    names = {"program": ("interval:s:1 ", "interval:s:1 and 1 more "), "map": ("@a ", "@b ")}.get(row.subject)
    if row.subject == "site":
        names = ("bpf_get_stack at x.bt:3:7 ", "bpf_probe_read at x.bt:3:7 ")
    if names is not None:
        assert f"({names[1]}3, {names[0]}2)" in many
    else:
        assert many == f"in total, 5 {row.many}"


@pytest.mark.parametrize(
    ("kind", "value", "declared"),
    [("hash", INT64, "hash"), ("percpuhash", Count(), "percpuhash"), ("hash", Count(), "percpuhash")],
)
def test_a_full_map_is_to_be_declared_as_what_takes_its_values(kind: str, value: Type, declared: str) -> None:
    spec = MapSpec("@a", "a", kind, INT64, value, 10)
    text, hint = messages.helper_failure("bpf_map_update_elem", -errno.E2BIG, spec, Config())
    assert text == "@a is full (10 keys): the update was dropped"
    assert hint.endswith(f"let @a = {declared}(N);")


def test_what_helps_is_named() -> None:
    (ring,) = messages.summary_lines(MANIFEST, {("lost", 0): 5})
    assert "perf_rb_pages" in ring
    (full,) = messages.summary_lines(MANIFEST, {("map_full", 0): 5, ("map_full", 1): 6})
    assert "@b holds 20 keys, @a holds 10 keys" in full
    assert "max_map_keys" in full
    (cut,) = messages.summary_lines(MANIFEST, {("cut", 0): 5})
    assert cut.endswith("max_strlen is 99")


def test_many_probes_are_not_all_named() -> None:
    (line,) = messages.summary_lines(MANIFEST, {("lost", at): at + 1 for at in range(14)})
    assert line.startswith("105 events lost (interval:s:1 and 13 more 14, ")
    assert "4 others 10)" in line
    assert sum(messages.by_kind(MANIFEST, {("lost", at): at + 1 for at in range(14)})["lost"].values()) == 105


def test_numbers_of_one_name_are_added() -> None:
    """Two programs of one probe are told as one; what did not happen is not told."""
    twice = Manifest((PROGRAMS[0], PROGRAMS[0]), MAPS, (), (), Config())
    totals = {("lost", 0): 2, ("lost", 1): 5, ("missed", 0): 0}
    assert messages.by_kind(twice, totals) == {"lost": {"interval:s:1": 7}}
    assert len(messages.summary_lines(twice, totals)) == 1


def test_underlined_places() -> None:
    place = Location("x.bt", 3, 2, 6, "\tcall(1);")
    assert messages.located("ERROR", "bad", place) == "x.bt:3:2-6: ERROR: bad\n    call(1);\n    ~~~~\n"
    coloured = messages.located("WARNING", "odd", place, (PLACE,), colour=True)
    assert coloured.startswith("\x1b[33mx.bt:3:2-6: WARNING: odd\x1b[0m\n")
    assert coloured.endswith("NOTE: expanded from here\x1b[0m\n")


def test_the_limit_of_loops_is_named() -> None:
    config = Config(max_loop_iterations=1234)
    text, hint = messages.helper_failure("bpf_loop", -errno.ELOOP, None, config)
    assert "at most 1234 iterations" in text
    assert "max_loop_iterations" in hint
