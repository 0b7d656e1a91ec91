from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.types import INT32, VOID
from pytrace.multitools import latencies
from tests.support.facts import FEATURES, RecordedKernel, function
from tests.support.multitools import script, translate


def test_entry_and_return_share_frames() -> None:
    text = script("funclatency", pattern="vfs_read")
    assert "fentry:vfs_read {\n    $level = @depth[tid];" in text
    assert "fexit:vfs_read /@depth[tid]/ {\n    $now = nsecs;" in text
    assert "@nsecs = hist($time);" in text
    assert "tracepoint:sched:sched_process_exit /has_key(@depth, tid)/ { delete(@depth, tid); }" in text
    assert "avg = %ld nsecs, total: %ld nsecs, count: %ld" in text


@pytest.mark.parametrize(("option", "store"), [("microseconds", "@usecs = hist($time / 1000);"),
                                               ("milliseconds", "@msecs = hist($time / 1000000);")])  # fmt: skip
def test_units(option: str, store: str) -> None:
    text = script("funclatency", None, pattern="/bin/app:work", **{option: True})
    assert store in text
    assert f"avg = %ld {store[1:5]}s" in text


def test_a_histogram_for_each_function() -> None:
    assert "@nsecs[$function] = hist($time);" in script("funclatency", pattern="vfs_*", function=True)
    user = script("funclatency", pattern="/bin/app:w*", function=True)
    assert "$name = $frame.name;\n    @nsecs[str((int8 *)&$name + 16, 128)] = hist($time);" in user


def test_intervals() -> None:
    text = script("funclatency", pattern="vfs_read", interval=3, timestamp=True)
    assert "interval:s:3, end {\n    time(" in text
    assert "print_clear(@nsecs);" in text
    assert "$calls = (int64)@calls - @shown_calls;" in text


def test_words_of_the_run() -> None:
    made = translate("funclatency", pattern="work", regexp=True, pid="5", duration=1, level=9)
    assert made.arguments[:4] == ("--pid", "5", "--duration", "1")
    assert "sched_process_exit" in made.arguments[5]
    assert [note[:2] for note in made.notes] == ["-l"]


def test_mistakes() -> None:
    with pytest.raises(TraceError, match="cannot be used together"):
        translate("funclatency", pattern="vfs_read", microseconds=True, milliseconds=True)
    with pytest.raises(TraceError, match="functions have a latency, tracepoints have none"):
        translate("funclatency", pattern="t:sched:*")


def test_columns() -> None:
    text = script("functime", pattern="/bin/app:w*")
    titles = re.findall(r'[( ](func|count|"[^"]+")=(?:str|\$calls|fixed)', text)
    assert titles == ["func", "count", '"TOTAL(ms)"', '"AVG(us)"', '"P99(us)"', '"MAX(us)"']
    assert '"-TOTAL(ms)");' in text
    assert "@callees" not in text


def test_time_without_callees() -> None:
    text = script("functime", None, pattern="/bin/app:w*", self=True)
    assert "@callees[tid, $level - 1] += $time;" in text
    assert "@total[$name] = sum($own);" in text


def test_kernel_functions() -> None:
    text = script("functime", pattern="vfs_*")
    assert "kprobe:vfs_* {" in text
    assert "kretprobe:vfs_* /@depth[tid]/ {" in text
    assert "$name = $function;" in text


def test_intervals_of_functime() -> None:
    text = script("functime", pattern="vfs_*", interval=2, timestamp=True)
    assert "interval:s:2, end {\n    time(" in text
    assert "$calls = $kv.1 - @shown_calls[$name];" in text
    assert "clear(@slots);\n    clear(@longest);" in text


def test_words_of_the_run_of_functime() -> None:
    made = translate("functime", pattern="w", pid="5", duration=1, regexp=True)
    assert made.arguments[:4] == ("--pid", "5", "--duration", "1")
    assert made.arguments[4] == "--probe-filter"


def test_events_have_no_time() -> None:
    with pytest.raises(TraceError, match="have none"):
        translate("functime", pattern="u:/bin/app:start")


def _functions() -> tuple[Callable[[int], int], Callable[[int], int]]:
    """``slot`` and ``middle`` of the script, as Python."""
    text = latencies._SLOTS
    limits = [(int(a), int(b)) for a, b in re.findall(r"\$rest >= (\d+)\) \{ \$rest = \$rest >> (\d+)", text)]
    assert len(limits) == 6

    def slot(ns: int) -> int:
        shift = 0
        for limit, by in limits:
            if ns >= limit:
                ns, shift = ns >> by, shift + by
        return shift * 8 + ns

    def middle(number: int) -> int:
        if number < 16:
            return number
        shift = (number - 8) // 8
        return ((number - 8 * shift) << shift) + (1 << shift) // 2

    return slot, middle


def test_slots_follow_each_other_and_are_narrow() -> None:
    slot, middle = _functions()
    values = [*range(5000), *(1 << power for power in range(13, 63)), *((1 << power) - 1 for power in range(13, 63))]
    known = [slot(value) for value in sorted(values)]
    assert known == sorted(known)
    assert [slot(value) for value in range(17)] == [*range(17)]
    for value in values[16:]:
        assert slot(middle(slot(value))) == slot(value)
        assert abs(middle(slot(value)) - value) <= value / 16
    assert max(known) < 512


def test_one_millisecond_without_a_limit() -> None:
    text = script("funcslower", function="/bin/app:work")
    assert "if ($time < 1000000) { return; }" in text
    row = 'comm=comm, pid=pid, "LAT(ms)"=fixed($time, 1000000, 3), rval=(void *)retval, func=func, args=""'
    assert f"row(({row}));" in text


def test_limits() -> None:
    assert "if ($time < 20000000) { return; }" in script("funcslower", function="/bin/app:work", min_ms=20)
    text = script("funcslower", function="/bin/app:work", min_us=20)
    assert "if ($time < 20000) { return; }" in text
    assert '"LAT(us)"=fixed($time, 1000, 3)' in text


def test_arguments() -> None:
    kprobes = RecordedKernel(features=FEATURES - {"fentry"})
    text = script("funcslower", kprobes, function="vfs_read", arguments=2)
    assert "arg1=arg0, arg2=arg1, start=nsecs" in text
    assert 'args=joined(" ", (void *)$frame.arg1, (void *)$frame.arg2)' in text
    typed = script("funcslower", function="vfs_read", arguments=6)
    assert "arg1=(uint64)args.file, arg2=(uint64)args.count, arg3=(uint64)0" in typed
    assert "(void *)$frame.arg2)" in typed


def test_functions_without_a_result() -> None:
    kernel = RecordedKernel(prototypes=(function("quiet", ("n", INT32), result=VOID),))
    assert "rval=(void *)0" in script("funcslower", kernel, function="quiet")


def test_several_functions() -> None:
    text = script("funcslower", function="/bin/app:work\n/bin/app:main")
    assert text.count("uprobe:/bin/app:") == 2
    assert text.count("let @frame") == 1


def test_times_and_stacks() -> None:
    text = script("funcslower", None, function="/bin/app:work", time=True, timestamp=True, user_stack=True,
                  kernel_stack=True)  # fmt: skip
    assert 'row((time=strftime("%H:%M:%S", nsecs), "TIME(s)"=fixed(elapsed, 1000000000, 6), comm=comm' in text
    assert "print(kstack);\n    print(ustack);" in text


def test_folded() -> None:
    made = translate("funcslower", function="/bin/app:work", folded=True, user_stack=True)
    assert made.arguments == ("--format", "folded")
    assert "@usecs[comm, ustack, func] = sum($time / 1000);" in made.text
    assert "clear(@frame);" in made.text


def test_folded_shows_the_stack_that_the_function_has_without_u_and_k() -> None:
    assert "@usecs[comm, ustack, func] = sum(" in script("funcslower", function="/bin/app:work", folded=True)
    assert "@usecs[comm, kstack, func] = sum(" in script("funcslower", function="vfs_read", folded=True)
    both = script("funcslower", function="/bin/app:work", folded=True, kernel_stack=True)
    assert "@usecs[comm, kstack, func] = sum(" in both


def test_words_of_the_run_of_funcslower() -> None:
    made = translate("funcslower", function="/bin/app:work", pid="3", duration=2)
    assert made.arguments == ("--pid", "3", "--duration", "2")


def test_mistakes_of_funcslower() -> None:
    with pytest.raises(TraceError, match="cannot be used together"):
        translate("funcslower", function="/bin/app:work", min_ms=1, min_us=1)
    with pytest.raises(TraceError, match="events have no duration"):
        translate("funcslower", function="t:sched:sched_switch")
    with pytest.raises(TraceError, match="do not go together"):
        translate("funcslower", function="/bin/app:work\nvfs_read")
    with pytest.raises(TraceError, match="leave r: out"):
        translate("funcslower", function="r:/bin/app:work")
