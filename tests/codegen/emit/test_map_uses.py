"""How maps and shared variables are used: elements, large keys, sampling."""

from __future__ import annotations

from typing import Any

import pytest

from pytrace import pipeline
from pytrace.codegen.emit import bodies
from pytrace.codegen.emit.bodies import called_functions, shared_variables
from pytrace.codegen.emit.map_uses import (
    SamplingPlan,
    Words,
    element_maps,
    inserted_maps,
    repeated_reads,
    sampling_plan,
    words_of,
)
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import INT8, INT64, Record, Stack, StackMode, String, Tuple, Type
from pytrace.frontend.syntax.typed_program import CheckedProgram
from tests.codegen.running import compiled, helpers, machine, ran
from tests.support.facts import RecordedKernel
from tests.support.front import analyse

LOOKUP, UPDATE, DELETE = 1, 2, 3
"""Numbers of the BPF helpers for elements."""


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("print(@a[tid] + 1); print(@a[tid] + 2);", 0),  # arguments may not be evaluated
        ("$x = @a[tid]; print(@a[tid]);", 1),
        ("$x = @a[tid] + @a[tid]; $y = @a[tid];", 2),
        ("$x = @a[tid]; $y = @a[pid];", 0),
        ("$x = @a[1]; $y = @a[1]; $z = @a[2];", 1),
        ("$x = @b[pid, 1]; $y = @b[pid, 1]; $z = @b[1, pid];", 1),
        ("$x = @a[nsecs]; $y = @a[nsecs];", 0),
        ("$x = @a[(int8)1]; $y = @a[(int8)1];", 0),
        ("$k = 5; $x = @a[$k]; $y = @a[$k];", 1),
        ("$k = 5; $x = @a[$k]; $k = 6; $y = @a[$k];", 0),
        ("$k = 5; $x = @a[$k]; $k++; $y = @a[$k];", 0),
        ("$k = 5; $x = @a[$k]; find(@a, 1, $k); $y = @a[$k];", 0),
        # What changes the map, or may.
        ("$x = @a[tid]; @a[tid] = 5; $y = @a[tid];", 0),
        ("$x = @a[tid]; @a[7] = 5; $y = @a[tid];", 0),
        ("$x = @a[tid]; @b[1, 2] = 5; $y = @a[tid];", 1),
        ("$x = @a[tid]; @a[tid] += 5; $y = @a[tid];", 0),
        ("$x = @a[tid]; @a[tid]++; $y = @a[tid];", 0),
        ("$x = @a[tid]; $z = @a[tid]--; $y = @a[tid];", 0),
        ("$x = @a[tid]; delete(@a[tid]); $y = @a[tid];", 0),
        ("$x = @a[tid]; delete(@a, tid); $y = @a[tid];", 0),
        ("$x = @a[tid]; clear(@a); $y = @a[tid];", 0),
        ("$x = @a[tid]; zero(@a); $y = @a[tid];", 0),
        ("$x = @a[tid]; print(@a); print(@a[tid]); if (has_key(@a, tid)) { print(len(@a)); } $y = @a[tid];", 2),
        ("$x = @a[tid]; $f = change(1); $y = @a[tid];", 0),
        ("$x = @a[tid]; $p = &@a[tid]; $y = @a[tid];", 0),
        ("$x = @a[tid]; if (rand > 5) { @a[tid] = 1; } $y = @a[tid];", 0),
        ("$x = @a[tid]; if (rand > 5) { print(1); } else { delete(@a[tid]); } $y = @a[tid];", 0),
        ("$x = @a[tid] + { @a[tid] = 7; 1 } + @a[tid];", 0),
        # What is not always evaluated.
        ("if (@a[tid]) { $x = @a[tid]; } else { $x = @a[tid]; } $y = @a[tid];", 3),
        ("if (rand > 5 && @a[tid]) { $x = @a[tid]; } else { $x = @a[tid]; }", 1),
        ("if (@a[tid] && @a[1]) { $x = @a[tid] + @a[1]; } else { $x = @a[tid] + @a[1]; } $y = @a[tid];", 4),
        ("if (rand > 5 || @a[tid]) { $x = @a[tid]; }", 0),
        ("if (@a[tid] || @a[1]) { $x = @a[tid] + @a[1]; }", 1),
        ("$x = @a[1] ? @a[1] : @a[2]; $y = @a[2];", 1),
        ("$b = rand > 5 && @a[1]; $x = @a[1];", 0),
        # Loops see what others write.
        ("$x = @a[1]; while (@a[1] == 0) { $y = @a[1]; } $z = @a[1];", 1),
        ("$x = @a[1]; for ($i : 0..3) { $y = @a[1]; $z = @a[1]; } $x = @a[1];", 1),
        ("$x = @a[1]; unroll (3) { $y = @a[1]; $z = @a[1]; } $x = @a[1];", 1),
        # Only numbers.
        ("$x = @s[1]; $y = @s[1]; $u = (int64)@c[1]; $v = (int64)@c[1];", 0),
    ],
)
def test_reads_that_repeat_an_earlier_one(body: str, wanted: int) -> None:
    start = 'begin { @a[1] = 1; @b[1, 2] = 2; @s[1] = "text"; @c[1] = count(); }'
    function = "fn change($n: int64): int64 { @a[1] = 3; return 1; }"
    program = checked(f"{function} {start} interval:s:1 {{ {body} }}")
    found = repeated_reads(program, program.units[1].body, element_maps(program))
    assert len(found) == wanted


def test_a_predicate_and_its_action() -> None:
    script = "begin /@a[tid] && @a[1] != 5/ { @d[1] = @a[tid] - @a[1]; delete(@a[tid]); }"
    program = checked(f"{script} end {{ @a[tid] = 1; @a[1] = 7; }}")
    assert len(repeated_reads(program, program.units[0].body, element_maps(program))) == 2


BODY = """@a[1] = 5;
if (@a[1] == 5) { @r[1] = @a[1] + @a[1]; }
@a[1] = 6; $x = @a[1]; unroll (2) { $x += @a[1]; @a[1]++; $x += @a[1]; $x += @a[1] * 100; }
@r[2] = $x;"""


@pytest.mark.parametrize(("options", "spares"), [(CompileOptions(), True), (CompileOptions(checks=2), False)])
def test_values_and_look_ups(options: CompileOptions, spares: bool) -> None:
    found = ran(f"begin {{ {BODY} }}", None, options)
    elements: dict[int, Any] = dict(found.entries("@r"))
    assert elements == {1: 10, 2: 6 + (6 + 7 + 700) + (7 + 8 + 800)}
    plain = ran(f"begin {{ {BODY} }}", None, CompileOptions(checks=2))
    assert (helpers(found).count(LOOKUP) < helpers(plain).count(LOOKUP)) is spares


TAKES = "end /@start[tid]/ { @us = hist(nsecs - @start[tid]); delete(@start[tid]); }"


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ("@start[tid] = nsecs;", "if (@start[tid]) { print(@start[tid]); delete(@start[tid]); }", {"@start"}),
        ("@start[tid] = nsecs;", "print(@start[tid]); delete(@start, tid);", {"@start"}),
        # Whoever reads it first has it mostly.
        ("print(@start[tid]); @start[tid] = nsecs;", "print(@start[tid]); delete(@start[tid]);", set()),
        ("@start[tid] += 5;", "print(@start[tid]); delete(@start[tid]);", set()),
        # A probe that only deletes tidies up.
        ("@start[tid] = nsecs;", "delete(@start[tid]);", set()),
        ("@start[tid] = nsecs;", "print(@start[tid]);", set()),
    ],
)
def test_maps_whose_elements_another_probe_takes(first: str, second: str, wanted: set[str]) -> None:
    program = checked(f"begin {{ {first} }} end {{ {second} }}")
    assert inserted_maps(program, element_maps(program))[program.units[0].body] == wanted


def test_an_element_is_inserted_without_a_look_up_and_replaced_when_it_is_there() -> None:
    found = machine(f"begin {{ @start[tid] = 5; }} {TAKES}")
    found.run()
    assert helpers(found).count(LOOKUP) == 0
    assert helpers(found).count(UPDATE) == 1
    found.run()
    assert list(found.entries("@start").values()) == [5]


def test_the_look_up_stays_where_elements_stay() -> None:
    found = machine("begin { @start[tid] = 5; } end { print(@start[tid]); }")
    found.run()
    found.run()
    assert helpers(found).count(LOOKUP) == 2
    assert helpers(found).count(UPDATE) == 1


# ----------------------------------------------------------------------------------------------------------- large keys

STACK = Stack(user=False)


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (STACK, (Words(0, 1), Words(1, 128, frame=1))),
        (Stack(user=True, limit=3, mode=StackMode.BUILD_ID), (Words(0, 1), Words(1, 13, frame=4))),
        (String(1024), (Words(0, 128, text=True),)),
        (String(100), (Words(0, 12, text=True), Words(12, 13))),
        (Tuple((String(16), STACK, INT64)), (Words(0, 3), Words(3, 130, frame=1), Words(130, 131))),
        (Tuple((STACK, STACK)), (Words(0, 1), Words(1, 128, frame=1), Words(128, 129), Words(129, 256, frame=1))),
        # Words that the string shares with what is beside it always count.
        (Tuple((INT8, String(128), INT8)), (Words(0, 1), Words(1, 16, text=True), Words(16, 17))),
        (Record(("a", "b"), (INT64, Tuple((String(80),)))), (Words(0, 1), Words(1, 11, text=True))),
    ],
)
def test_words(key: Type, wanted: tuple[Words, ...]) -> None:
    assert words_of(key) == wanted
    assert [part.start for part in wanted] == [0, *(part.stop for part in wanted[:-1])]
    assert wanted[-1].stop == (key.size + 7) // 8


@pytest.mark.parametrize(
    ("body", "digested"),
    [
        ("@[kstack] = count();", True),
        ("@[kstack(8)] = count();", True),
        ("@[kstack(7)] = count();", False),
        ("@[str(0, 63)] = 1;", False),
        ("@[str(0, 64)] = 1;", True),
        ("@[comm, comm, comm, comm, 1] = 1;", False),
        ("@[ustack, comm] = hist(1);", True),
        ("@[kstack] = 1; delete(@, kstack);", False),
        ("@[kstack] = 1; delete(@[kstack]);", False),
        ("@[kstack] = 1; for ($kv : @) { print($kv.1); }", False),
        ("@[kstack] = 1; print(@); clear(@);", True),
        ("@[kstack] = 1; if (has_key(@, kstack)) { print(len(@)); }", True),
    ],
)
def test_maps(body: str, digested: bool) -> None:
    (spec,) = compiled(f"kprobe:f {{ {body} }}").manifest.maps
    assert spec.keys == ("keys_" if digested else "")


@pytest.mark.parametrize(("kind", "value"), [("lruhash", "1"), ("percpulruhash", "count()")])
def test_maps_that_forget_have_keys(kind: str, value: str) -> None:
    manifest = compiled(f"let @ = {kind}(10); kprobe:f {{ @[kstack] = {value}; }}").manifest
    assert manifest.maps[0].keys == ""
    assert manifest.random_words is None


def test_a_function_that_deletes() -> None:
    script = "fn f($a: int64): int64 { delete(@, kstack); return $a; } kprobe:f { @[kstack] = 1; f(1); }"
    assert [spec.keys for spec in compiled(script).manifest.maps] == [""]


# ------------------------------------------------------------------------------------------------------------- sampling

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


# ----------------------------------------------------------------------------------------------------- shared variables


def checked(text: str) -> CheckedProgram:
    compilation = pipeline.Compilation(Source("stdin", text, None), CompileOptions(), RecordedKernel(), Diagnostics())
    return pipeline.front_end(compilation).checked


def shared(text: str) -> set[str]:
    program = checked(text)
    body = program.units[0].body
    return {info.name for info in shared_variables(program, body, bodies.split_plan(program, [body]))}


def test_what_is_shared_between_functions_of_loops() -> None:
    assert shared("begin { $a = 1; $b = 2; for ($i : 0..3) { $c = $a; print($c + $i); } print($b); }") == {"a"}
    assert shared("begin { for ($i : 0..3) { for ($j : 0..3) { print($i + $j); } } }") == {"i"}
    assert shared("begin { $n = 3; while ($n > 0) { $n--; } }") == {"n"}
    assert shared("begin { $n = 3; for ($i : 0..$n) { print($i); } }") == set()


def test_functions_come_after_those_that_they_call() -> None:
    text = (
        "fn a(): int64 { return 1; } fn b(): int64 { return a() + 1; } fn c(): int64 { return b() + a(); } "
        "begin { print(c()); }"
    )
    program = checked(text)
    assert [info.name for info in called_functions(program, program.units[0].body)] == ["a", "b", "c"]


def test_parts_share_what_crosses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "WHOLE", 5)
    monkeypatch.setattr(bodies, "PART", 8)
    assert shared("begin { $a = 1; @x = $a; $b = 2; @y = $b; @z = $a + 1; }") == {"a"}


def test_unrolls_that_are_loops_share_what_is_around(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "begin { $a = 1; unroll (50) { $b = $a; @ = $b; $a++; } }"
    assert shared(text) == set()
    monkeypatch.setattr(bodies, "UNROLLED", 100)
    assert shared(text) == {"a"}


def test_in_parts_variables_with_an_address_outlive_them(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "begin { $v = (uint64)1; $p = &$v; @x = 1; @y = 2; @z = *$p; $w = 3; @w = $w; }"
    assert shared(text) == set()
    monkeypatch.setattr(bodies, "WHOLE", 5)
    monkeypatch.setattr(bodies, "PART", 12)
    assert {"v", "p"} <= shared(text)
