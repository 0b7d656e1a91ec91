"""Weights: what a hit that stands for several adds to aggregations, and how weights travel with values."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pytrace.codegen.emit.map_uses import weights_symbol
from pytrace.core.manifest import WEIGHT
from pytrace.core.options import CompileOptions
from tests.codegen.running import compiled, machine
from tests.support.bpf_machine import Machine
from tests.support.facts import RecordedKernel

A, B = "tracepoint:sched:sched_switch", "tracepoint:sched:sched_wakeup"
RANDOM = 7
SAMPLED = CompileOptions(sampled=True)


def sampled(text: str, *weights: int, draws: list[int] | None = None) -> Machine:
    """A machine whose programs have *weights*; *draws* are the random numbers, without it each hit runs."""
    numbers = iter(draws or ())
    helpers = {RANDOM: lambda *_: next(numbers, 0)}
    found = machine(text, RecordedKernel(), SAMPLED, helpers=helpers)
    sampling = found.script.manifest.sampling
    assert sampling is not None
    place = found.section(sampling.section) + sampling.offset
    found.write(place, struct.pack(f"={1 + len(weights)}Q", int(any(weight > 1 for weight in weights)), *weights))
    assert WEIGHT == 8
    return found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("count()", 48), ("sum(5)", 240), ("sum(-5)", (1 << 64) - 240), ("avg(5)", (240, 48)), ("stats(5)", (240, 48)),
        ("min(5)", 0xFF ^ 5), ("max(5)", 5),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["", "[1]"])
def test_each_update_has_the_weight_of_its_hit(value: str, expected: object, key: str) -> None:
    found = sampled(f"{A} {{ @{key} = {value}; }}", 16)
    for _ in range(3):
        found.run()
    result: Any = found.entries("@")[1] if key else found.slot("@")
    if value[:3] in ("min", "max"):
        result = result[0] & 0xFF
    assert result == expected


def test_buckets_are_scaled() -> None:
    found = sampled(f"{A} {{ @h = hist(4); @l = lhist(25, 0, 100, 10); }}", 8)
    found.run()
    found.run()
    assert [sorted(found.slot(name))[-2:] for name in ("@h", "@l")] == [[0, 16], [0, 16]]


def test_weights_may_change_between_hits() -> None:
    found = sampled(f"{A} {{ @ = count(); }}", 1)
    found.run()
    sampling = found.script.manifest.sampling
    assert sampling is not None
    found.write(found.section(sampling.section) + sampling.offset + WEIGHT, struct.pack("=Q", 64))
    found.run()
    assert found.slot("@") == 65


def test_loops_and_functions_have_the_weight() -> None:
    function = "fn f($n : int64) : int64 { @f = count(); return $n; }"
    text = f"{function} {A} {{ for ($i : 0..10) {{ @ = count(); }} f(1); }}"
    found = sampled(text, 4)
    found.run()
    assert (found.slot("@"), found.slot("@f")) == (40, 4)


def test_one_of_n_hits_runs() -> None:
    found = sampled(f"{A} {{ @ = count(); }}", 4, draws=[0, 1 << 30, (1 << 30) - 1, 1 << 31, (1 << 32) - 1])
    for _ in range(5):
        found.run()
    assert (found.slot("@"), found.counts()["hits"]) == (8, 5)


PAIR = f"{A} {{ @t[1] = 5; }} {B} /@t[1]/ {{ @ = count(); @s = sum(@t[1]); delete(@t, 1); }}"


def test_a_pair_counts_with_the_weight_of_its_first_hit() -> None:
    found = sampled(PAIR, 16, 1, draws=[0, 1 << 31, 0])
    first, second = (program.symbol for program in found.script.manifest.programs)
    for _ in range(3):
        found.run(first)
        found.run(second)
    # The second entry was left out, so its return found nothing.
    assert (found.slot("@"), found.slot("@s")) == (32, 160)
    assert not found.maps[found.names[weights_symbol("@t")]].entries


def test_values_that_were_stored_before_count_once() -> None:
    found = sampled(PAIR, 1, 1)
    first, second = (program.symbol for program in found.script.manifest.programs)
    found.run(first)
    sampling = found.script.manifest.sampling
    assert sampling is not None
    found.write(found.section(sampling.section) + sampling.offset, struct.pack("=QQ", 1, 16))
    found.run(second)
    assert found.slot("@") == 1


def test_without_the_option_nothing_is_emitted() -> None:
    script = compiled(PAIR, RecordedKernel())
    assert script.manifest.sampling is None
    assert weights_symbol("@t").encode() not in script.elf
