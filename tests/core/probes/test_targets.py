"""Targets of probes: each class is restored from its values, and each kind has one."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from pytrace.base import typed_json
from pytrace.core.probes.kinds import PROBE_KINDS
from pytrace.core.probes.targets import (
    AnyTarget,
    CountedEventTarget,
    IteratorTarget,
    KernelFunctionTarget,
    NamedRunTarget,
    NoTarget,
    ProbeTarget,
    PythonTarget,
    RawTracepointTarget,
    SignalTarget,
    StaticProbeTarget,
    TimerTarget,
    TracepointTarget,
    TypedFunctionTarget,
    UserTarget,
    WatchpointTarget,
)
from tests.support.rows import each_row

EACH = (
    NoTarget(),
    SignalTarget("SIGUSR1"),
    NamedRunTarget("a"),
    KernelFunctionTarget("vfs_read", "ext4", 4),
    KernelFunctionTarget(address=2**63),
    TypedFunctionTarget("vfs_read", "vmlinux"),
    TypedFunctionTarget("hit", program_id=7, by_pattern=True),
    UserTarget("/bin/a", 0x40, symbol="main"),
    UserTarget("/bin/a", 0x40, by_pattern=True),
    StaticProbeTarget("/bin/a", 0x40, provider="p", name="n", semaphore_offset=8),
    PythonTarget(("a.py", "*/a.py"), "C.f"),
    TracepointTarget("sched", "sched_switch"),
    RawTracepointTarget("sched_switch", "vmlinux"),
    TimerTarget(frequency=99),
    TimerTarget(period_ns=10**9),
    CountedEventTarget("page-faults", 2, 100),
    WatchpointTarget(4096, 8, "rw"),
    IteratorTarget("task", "/sys/fs/bpf/list"),
)


@each_row("place", EACH, ids=repr)
def test_what_is_encoded_is_decoded(place: ProbeTarget) -> None:
    data = typed_json.encode(place)
    # mypy does not take a union for a class.
    assert typed_json.decode(data, cast(Any, AnyTarget)) == place
    with pytest.raises(msgspec.ValidationError):
        typed_json.decode(data.replace(b'"', b'"X', 1), cast(Any, AnyTarget))


def test_each_kind_names_a_class_that_is_tested_here() -> None:
    assert {row.target for row in PROBE_KINDS} == {type(place) for place in EACH}


def test_places_that_differ_are_not_equal() -> None:
    assert len(set(EACH)) == len(EACH)


@pytest.mark.parametrize(
    ("place", "whole"),
    [
        (KernelFunctionTarget("f"), True),
        (KernelFunctionTarget("f", "m"), True),
        (KernelFunctionTarget("f", offset=1), False),
        (KernelFunctionTarget(address=0), False),
    ],
)
def test_start_of_a_function(place: KernelFunctionTarget, whole: bool) -> None:
    assert place.whole == whole
