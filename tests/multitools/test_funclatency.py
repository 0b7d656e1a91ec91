from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
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
