"""Hot tracepoints by way of the raw ones: which bodies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytrace.core.options import Config
from pytrace.core.types import INT32, Pointer
from tests.frontend.attach.points.test_raw_fields import FIELDS, TASK, kernel
from tests.frontend.expanding import Expanded
from tests.support.facts import RecordedKernel, event, tracepoint_field

_FACTS = kernel(Pointer(TASK))
KERNEL = replace(
    _FACTS,
    events={("sched", "sched_waking"): FIELDS, ("sched", "other"): event(tracepoint_field("pid", INT32, 8))},
    structs={**_FACTS.structs, ("struct", "task_struct"): TASK, ("typedef", "btf_trace_sched_waking"): TASK},
)


def ways(text: str, facts: RecordedKernel = KERNEL, mode: str = "auto", **options: object) -> list[str]:
    found = Expanded(text, facts, Config(raw_tracepoints=mode), **options)  # type: ignore[arg-type]
    assert not found.errors
    return [unit.multi for unit in found.units]


def test_bodies_whose_fields_are_known() -> None:
    text = 't:sched:sched_waking /args.pid == 1 && args.comm == "a"/ { @[probe] = count(); }'
    assert ways(text) == ["raw_tracepoint"]
    assert ways("t:sched:sched_waking { print(args.success); }") == [""]
    assert ways("t:sched:sched_waking { print(args); }") == [""]


def test_each_place_has_a_program() -> None:
    text = "t:sched:sched_waking, t:sched:sched_waking, t:sched:other { print(args.pid); }"
    assert ways(text) == ["raw_tracepoint", "raw_tracepoint", ""]


def test_all_bodies_of_a_place_go_the_same_way() -> None:
    text = "t:sched:sched_waking { print(args.pid); } t:sched:sched_waking { print(kstack); }"
    assert ways(text) == ["", ""]


@pytest.mark.parametrize(
    "body",
    ["print(kstack);", "f();", "kernel_function(1);", "print(args.comm[1]);", "print(buf(args.comm, 16));"],
)
def test_bodies_that_would_mean_something_else(body: str) -> None:
    assert ways(f"fn f() : void {{ print(kstack); }} t:sched:sched_waking {{ {body} }}") == [""]


@pytest.mark.parametrize(
    "other",
    [
        {"mode": "plain"},
        {"ahead": True},
        {"disabled": frozenset({"rawtracepoint"})},
        {"facts": replace(KERNEL, has_btf=False)},
        {"facts": replace(KERNEL, arch="s390x")},
        {"facts": replace(KERNEL, structs=_FACTS.structs)},
    ],
)
def test_where_plain_ones_are_used(other: dict[str, object]) -> None:
    assert ways("t:sched:sched_waking { print(args.pid); }", **other) == [""]  # type: ignore[arg-type]


def test_verbose_tells_the_way() -> None:
    found = Expanded("t:sched:sched_waking { print(args.success); }", KERNEL, verbose=True)
    (note,) = found.diagnostics.notes
    assert note.message == (
        "tracepoints by way of perf events: sched:sched_waking (args.success) (config raw_tracepoints)"
    )
