from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.types import INT32, VOID
from tests.support.facts import FEATURES, RecordedKernel, function
from tests.support.multitools import script, translate


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


def test_words_of_the_run() -> None:
    made = translate("funcslower", function="/bin/app:work", pid="3", duration=2)
    assert made.arguments == ("--pid", "3", "--duration", "2")


def test_mistakes() -> None:
    with pytest.raises(TraceError, match="cannot be used together"):
        translate("funcslower", function="/bin/app:work", min_ms=1, min_us=1)
    with pytest.raises(TraceError, match="events have no duration"):
        translate("funcslower", function="t:sched:sched_switch")
    with pytest.raises(TraceError, match="do not go together"):
        translate("funcslower", function="/bin/app:work\nvfs_read")
    with pytest.raises(TraceError, match="leave r: out"):
        translate("funcslower", function="r:/bin/app:work")
