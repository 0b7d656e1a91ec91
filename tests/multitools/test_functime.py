from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.multitools import functime
from tests.support.multitools import script, translate


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


def test_intervals() -> None:
    text = script("functime", pattern="vfs_*", interval=2, timestamp=True)
    assert "interval:s:2, end {\n    time(" in text
    assert "$calls = $kv.1 - @shown_calls[$name];" in text
    assert "clear(@slots);\n    clear(@longest);" in text


def test_words_of_the_run() -> None:
    made = translate("functime", pattern="w", pid="5", duration=1, regexp=True)
    assert made.arguments[:4] == ("--pid", "5", "--duration", "1")
    assert made.arguments[4] == "--probe-filter"


def test_events_have_no_time() -> None:
    with pytest.raises(TraceError, match="have none"):
        translate("functime", pattern="u:/bin/app:start")


def _functions() -> tuple[Callable[[int], int], Callable[[int], int]]:
    """``slot`` and ``middle`` of the script, as Python."""
    text = functime._SLOTS
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
