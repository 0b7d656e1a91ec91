"""Loops: as callbacks, followed by the verifier, left from inside."""

from __future__ import annotations

import pytest

from pytrace.codegen.emit.loops import FOLLOWED, MOST_ITERATIONS
from tests.codegen.running import helpers, machine, ran
from tests.support.recorded import Facts

OLD = Facts(missing=frozenset({"bpf_loop"}))


@pytest.mark.parametrize("kernel", [Facts(), OLD], ids=["bpf_loop", "followed"])
@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("for ($i : 0..4) { @ += $i; }", 6),
        ("for ($i : -2..3) { @ += $i + 10; }", 50),
        ("for ($i : 3..3) { @ = 9; } for ($i : 4..1) { @ = 9; }", 0),
        ("for ($i : 0..10) { if ($i == 3) { break; } @ = $i; }", 2),
        ("for ($i : 0..4) { if ($i % 2 == 1) { continue; } @ += 1; }", 2),
        ("for ($i : 0..4) { for ($j : 0..3) { if ($j == 2) { break; } @ += 1; } }", 8),
        ("for ($i : 0..4) { @ = 5; if ($i == 1) { return; } } @ = 9;", 5),
        ("for ($i : 0..4) { for ($j : 0..4) { @ += 1; if ($j == 1) { return; } } } @ = 99;", 2),
        ("$n = 0; while ($n < 5) { $n++; @ = $n; }", 5),
        ("$n = 0; while (1) { $n++; @ = $n; if ($n == 3) { break; } }", 3),
        ("$x = 1; for ($i : 0..3) { $x = $x * 2; } @ = $x;", 8),
    ],
)
def test_rounds(kernel: Facts, body: str, wanted: int) -> None:
    found = ran(f"begin {{ @ = 0; {body} }}", kernel)
    assert found.slot("@") == wanted
    assert (181 in helpers(found)) <= (kernel is not OLD)


def test_what_a_function_returns_from_inside_a_loop() -> None:
    script = """fn f($n: int64): int64 { for ($i : 0..10) { if ($i == $n) { return $i * 100; } } return -1; }
    begin { print(f(3)); print(f(30)); }"""
    assert ran(script).printed() == [300, -1]
    assert ran(script, OLD).printed() == [300, -1]


def test_more_rounds_than_the_kernel_takes_are_reported() -> None:
    found = ran(f"begin {{ for ($i : 0..{MOST_ITERATIONS + 1}) {{ @ = $i; }} }}")
    ((kind, arguments),) = found.values()
    assert (kind, arguments) == ("helper_error", [-7])


def test_old_kernels_follow_so_many_rounds() -> None:
    found = ran(f"begin {{ for ($i : 0..{FOLLOWED + 5}) {{ @ += 1; }} }}", OLD)
    assert found.slot("@") == FOLLOWED


def test_the_context_reaches_the_bodies_of_loops() -> None:
    found = machine("tracepoint:sched:sched_switch { $p = args.next_pid; for ($i : 0..2) { print($p + $i); } }")
    context = bytearray(64)
    context[24:28] = (77).to_bytes(4, "little")
    found.run(context=bytes(context))
    assert found.printed() == [77, 78]


LIMITED = """config = { max_loop_iterations = 10 } let @m = hash(4);
fn f($n : int64) : void { for ($i : 0..$n) { @a++; } }"""


@pytest.mark.parametrize(
    ("body", "wanted", "reports"),
    [
        # (iterations of the inner loop, runs of the outer body to its end, what is after the loops)
        ("for ($i : 0..5) { for ($j : 0..$n) { @a++; } @b++; }", (10, 3, 1), 1),
        ("for ($i : 0..2) { for ($j : 0..$n) { @a++; } @b++; }", (6, 2, 1), 0),
        ("while (1) { for ($j : 0..$n) { @a++; } @b++; }", (10, 3, 1), 1),
        ("for ($i : 0..5) { for ($j : 0..$n) { @a++; if ($j == 0) { break; } } @b++; }", (5, 5, 1), 0),
        ("for ($j : 0..$n) { @a++; } for ($j : 0..$n) { @a++; } for ($j : 0..5) { @a++; @b++; }", (10, 4, 1), 1),
        ("for ($i : 0..5) { f($n); @b++; }", (10, 4, 1), 1),
        ("for ($i : 0..5) { f($n); @b++; continue; }", (10, 4, 1), 1),
        ("@m[1] = 1; @m[2] = 1; for ($i : 0..5) { for ($kv : @m) { f($n); @a--; } @b++; }", (4, 1, 1), 1),
        ("for ($i : 0..12) { @a++; @b++; }", (10, 10, 1), 1),
        ("@m[1] = 1; @m[2] = 1; for ($i : 0..5) { for ($kv : @m) { @a++; } @b++; }", (6, 3, 1), 1),
        ("for ($i : 0..3) { for ($j : 0..$n) { for ($k : 0..$n) { @a++; } } @b++; }", (9, 1, 1), 1),
    ],
)
def test_all_loops_together_are_limited(body: str, wanted: tuple[int, int, int], reports: int) -> None:
    """The first is reported at its place; the loops around it end as well, what comes after them runs."""
    found = ran(f"{LIMITED} begin {{ @a = 0; @b = 0; $n = 3 + pid - pid; {body} @c = 1; }}")
    assert tuple(found.slot(name) for name in ("@a", "@b", "@c")) == wanted
    assert [item for item in found.values() if item[0] == "helper_error"] == [("helper_error", [-40])] * reports


def test_each_run_has_the_whole_limit() -> None:
    found = machine(f"{LIMITED} begin {{ for ($i : 0..2) {{ f(pid - pid + 4); }} }}")
    found.run()
    found.run()
    assert found.slot("@a") == 16


def test_loops_that_cannot_reach_the_limit_are_not_counted() -> None:
    plain = "begin {{ for ($i : 0..{0}) {{ @ = $i; }} }}"
    limited = "config = {{ max_loop_iterations = 99 }} " + plain
    steps = [ran(text.format(50)).steps for text in (plain, limited)]
    assert steps[0] == steps[1]
