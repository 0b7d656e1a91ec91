"""Limits of ``--max-rate``: which block has which, and what is written for programs."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import RATE_LINE, Manifest, ProgramSpec, RateLimits, Target
from pytrace.core.options.run_options import Rate
from pytrace.core.probes.targets import NoTarget
from pytrace.runtime.load import rates
from tests.support.fake_run import HERE, program


def block(index: int, *probes: str) -> ProgramSpec:
    targets = tuple(Target(probe, at, NoTarget()) for at, probe in enumerate(probes))
    return ProgramSpec(f"p{index}", probes[0].partition(":")[0], index, targets, HERE)


PROGRAMS = (
    program("begin"),
    block(1, "uprobe:/bin/a:f", "uprobe:/bin/a:g"),
    block(2, "tracepoint:sched:sched_switch"),
    block(3, "interval:s:1"),
    replace(block(4, "tracepoint:sched:sched_process_fork"), service=True),
)


def manifest(rate: int = 0) -> Manifest:
    return Manifest(PROGRAMS, (), (), (), Config(max_rate=rate), limits=RateLimits("shared", 8))


@pytest.mark.parametrize(
    ("config", "given", "expected"),
    [
        (0, [], [0, 0]),
        (7, [], [7, 7]),
        (7, [Rate(5)], [5, 5]),
        (0, [Rate(5), Rate(6)], [6, 6]),
        (7, [Rate(5, "uprobe:*:g")], [5, 7]),
        (0, [Rate(5, "u:/bin/a:f"), Rate(9)], [5, 9]),
        (0, [Rate(5, "*"), Rate(0.5, "T:sched:*")], [5, 0.5]),
        (0, [Rate(0.5, "t:sched:sched_switch"), Rate(5, "*")], [5, 5]),
    ],
)
def test_a_pattern_counts_before_the_limit_of_all(config: int, given: list[Rate], expected: list[float]) -> None:
    assert rates.of_blocks(manifest(config), given) == dict(zip((1, 2), expected, strict=True))


def test_a_pattern_without_probe_is_an_error() -> None:
    with pytest.raises(TraceError, match="--max-rate uprobe:/bin/a:h: no probe of the script") as caught:
        rates.of_blocks(manifest(), [Rate(5, "uprobe:/bin/a:h")])
    assert "'uprobe:/bin/a:g'" in caught.value.hints[0]
    with pytest.raises(TraceError) as caught:
        rates.of_blocks(manifest(), [Rate(5, "zzz")])
    assert caught.value.hints[0] == "it has tracepoint:sched:sched_switch"


def test_nanoseconds_of_a_hit_are_written() -> None:
    memory = memoryview(bytearray(8 + 3 * RATE_LINE))
    loaded = SimpleNamespace(manifest=manifest(), section=lambda name: {"shared": memory}[name])
    rates.write(cast(Any, loaded), [Rate(1000), Rate(0.5, "tracepoint:*")])
    assert struct.unpack_from("=QQ", memory, 8 + RATE_LINE) == (1_000_000, rates.AHEAD)
    assert struct.unpack_from("=QQ", memory, 8 + 2 * RATE_LINE) == (2_000_000_000, rates.AHEAD)
    assert not any(memory[: 8 + RATE_LINE])


def test_a_script_without_gates_cannot_be_limited() -> None:
    loaded = SimpleNamespace(manifest=replace(manifest(), limits=None))
    rates.write(cast(Any, loaded), [])
    with pytest.raises(TraceError, match="compiled without --max-rate"):
        rates.write(cast(Any, loaded), [Rate(5)])
