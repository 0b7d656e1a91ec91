from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from tests.support.multitools import script, translate

WHOLE = """\
config = { print_maps_on_exit = false }

uprobe:/bin/app:work {
    $size = arg1;
    if (!($size > 100)) { return; }
    @values = hist((uint32)$size);
}

interval:s:1, end {
    time("[%H:%M:%S]\\n");
    printf("sizes of 100 %%\\n");
    print_clear(@values);
}
"""


def test_the_whole_script() -> None:
    spec = "p:/bin/app:work(struct sock *sk, size_t size):u32:size:size > 100#sizes of 100 %"
    assert script("argdist", histogram=spec) == WHOLE


def test_counts() -> None:
    text = script("argdist", count="/bin/app:work(int a, char *b):int,char*:a,b")
    assert "@values[$a, str($b, 80)] = count();" in text
    assert "@values = count();" in script("argdist", count="/bin/app:work()")


def test_entry_and_latency() -> None:
    text = script("argdist", count="r:/bin/app:work(int a):int,u64:$entry(a),$latency:$retval == 0")
    assert "uprobe:/bin/app:work {\n    $level = @depth[tid];" in text
    assert "$a = (int32)arg0;\n    @entry_a[tid, $level] = $a;\n    @start[tid, $level] = nsecs;" in text
    assert "uretprobe:/bin/app:work /@depth[tid]/ {\n    $now = nsecs;" in text
    assert "$latency = $now - @start[tid, $level];" in text
    assert "if (!(retval == 0)) { return; }\n    @values[$entry_a, $latency] = count();" in text


def test_several_have_maps_of_their_own() -> None:
    text = script("argdist", histogram="/bin/app:work():int:arg1", count="/bin/app:work():int:arg2\n/bin/app:main()")
    assert all(f"@values{number}" in text for number in (1, 2, 3))
    assert text.index("print_clear(@values1)") < text.index("print_clear(@values2)")


def test_options() -> None:
    spec = "/bin/app:work(char *a):char*:a"
    assert "str($a, 5)" in script("argdist", None, count=spec, **{"string-size": 5})
    assert "print(@values);" in script("argdist", count=spec, cumulative=True)
    assert "print_clear(@values, 3);" in script("argdist", count=spec, top=3)
    assert "/tid == 4/" in script("argdist", count=spec, tid=4)
    text = script("argdist", count=spec, interval=5, number=2)
    assert "interval:s:5 {" in text
    assert "if (@outputs >= 2) { exit(); }" in text


def test_what_came_after_the_last_output_is_shown_at_the_end() -> None:
    spec = "/bin/app:work(char *a):char*:a"
    assert "interval:s:1, end {" in script("argdist", count=spec, interval=1)
    text = script("argdist", count=spec, interval=5, number=2)
    assert "print_clear(@values);" in text.partition("end /@outputs < 2/ {")[2]


def test_words_of_the_run() -> None:
    made = translate("argdist", count="/bin/app:work()", pid="1", duration=2, include="x.h")
    assert made.arguments == ("--pid", "1", "--duration", "2", "--include", "x.h")


def test_mistakes() -> None:
    with pytest.raises(TraceError, match="needs a specification"):
        translate("argdist")
