from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.multitools import patterns
from pytrace.multitools.latencies import FUNCLATENCY
from pytrace.multitools.multitool import Options
from pytrace.multitools.patterns import Pattern
from tests.support.facts import RecordedKernel


def pattern(text: str, *, regexp: bool = False) -> Pattern:
    return patterns.parse(Options(FUNCLATENCY.options, {"pattern": text, "regexp": regexp}), RecordedKernel())


def functions(text: str) -> Pattern:
    return patterns.functions(Options(FUNCLATENCY.options, {"pattern": text}), RecordedKernel())


def test_names_are_told_apart_by_what_is_the_same_in_all_processes() -> None:
    assert pattern("vfs_*").naming.key == "func"
    assert pattern("/bin/app:work*").naming.key == "probe"
    assert pattern("/bin/app:work*").naming.prefix == len("uprobe:/bin/app:")
    assert pattern("/bin/app:work").naming.key == '"work"'
    assert pattern("t:sched:sched_switch").naming.key == '"sched_switch"'


def test_the_return_is_another_point() -> None:
    assert pattern("r:/bin/app:work").point == "uretprobe:/bin/app:work"
    assert pattern("/bin/app:work").point == "uprobe:/bin/app:work"


def test_regular_expressions_become_a_filter() -> None:
    found = pattern("/bin/app:^work(_more)?$", regexp=True)
    assert found.point == "uprobe:/bin/app:*"
    assert found.filter.startswith(":(?:work(_more)?$)")


@pytest.mark.parametrize("text", ["t:sched:sched_switch", "u:/bin/app:start", "software:faults"])
def test_events_have_no_latency(text: str) -> None:
    with pytest.raises(TraceError, match="functions have a latency"):
        functions(text)


def test_offsets_have_no_return() -> None:
    with pytest.raises(TraceError, match="leave the offset out"):
        functions("/bin/app:work+4")
    assert functions("/bin/app:work").attachment.leave == "uretprobe:/bin/app:work"
