from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.multitools import argdist
from pytrace.multitools.argdist import Distribution
from pytrace.multitools.expressions import SpecText
from tests.support.facts import RecordedKernel
from tests.support.multitools import script, translate
from tests.support.rows import each_row

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


def parsed(text: str, *, histogram: bool = False) -> Distribution:
    return argdist.parse(SpecText.of(text), RecordedKernel(), None, size=80, histogram=histogram)


def test_types_expressions_filter_label() -> None:
    found = parsed("/bin/app:work(int a, char *b):u32,char*:a,b:a > 1 && b != 0#my label")
    assert found.values == ("(uint32)$a", "str($b, 80)")
    assert (found.predicate, found.label) == ("$a > 1 && $b != 0", "my label")
    assert found.texts == ("a", "b")


def test_a_cast_to_the_same_type_is_left_out() -> None:
    assert parsed("/bin/app:work(int a):int:a").values == ("$a",)
    assert parsed("/bin/app:work():u64:arg1").values == ("arg0",)
    assert parsed("/bin/app:work(int a):int:a+1").values == ("(int32)($a + 1)",)


def test_the_label_is_the_specification_without_one() -> None:
    assert parsed("/bin/app:work():int:arg1").label == "/bin/app:work():int:arg1"
    assert parsed('/bin/app:work(char *a):char*:a:STRCMP("#1", a)#x').label == "x"


def test_conditional_expressions_keep_their_colon() -> None:
    assert parsed("/bin/app:work(int a):int:a > 1 ? 2 : 3:a != 5").predicate == "$a != 5"


def test_defaults() -> None:
    assert parsed("/bin/app:work()").values == ()
    assert parsed("/bin/app:work").values == ()
    assert parsed("r:/bin/app:work()").values == ("(int64)retval",)


def test_what_the_entry_remembers() -> None:
    found = parsed("r:/bin/app:work(int a, char *b):int,char*:$entry(a),$entry(b):$latency > 100 && $retval == 0")
    assert found.entries == (("a", "$a"), ("b", "$b"))
    assert found.latency
    assert found.values == ("$entry_a", "str($entry_b, 80)")
    assert found.predicate == "$latency > 100 && retval == 0"


def test_tracepoints() -> None:
    assert parsed("t:sched:sched_switch():char*:args->prev_comm").values == ("args->prev_comm",)
    assert parsed("t:sched:sched_switch():int:args->prev_pid").values == ("(int32)(args->prev_pid)",)


@each_row(
    ("text", "message", "word"),
    [
        ("/bin/app:work(int a):int", "1 types and 0 expressions", "int"),
        ("/bin/app:work(int a):int,int:a", "2 types and 1 expressions", "a"),
        ("/bin/app:work(int a):in t:a", "'in t' is not a C type", "in t"),
        ("/bin/app:work(int a):int:b", "unknown name 'b'", "b"),
        ("/bin/app:work(int a):int::a", "is empty", ""),
        ("/bin/app:work(int a)int:a", "':' is expected", "i"),
        ("/bin/app:work(int a):int:a:b", "unknown name 'b'", "b"),
        ("/bin/app:work(int a):int:$entry(a)", "unknown function '$entry'", "$entry"),
        ("/bin/app:work(int a):int:$latency", "unknown name '$latency'", "$latency"),
        ("r:/bin/app:work(int a):int:$entry(b)", "$entry takes a parameter", "b"),
        ("r:/bin/app:work(int a):int:$entry(1)", "$entry takes a parameter", "1"),
        ("r:/bin/app:work(int a):int:a", "unknown name 'a'", "a"),
        ("/bin/app:work(int a):int:a#b#c", "one #label", "c"),
    ],
)
def test_mistakes_of_distribution(text: str, message: str, word: str) -> None:
    with pytest.raises(TraceError) as caught:
        parsed(text)
    first, line, mark = caught.value.message.split("\n")
    assert message in first
    assert line[mark.index("~") :].startswith(word)


@pytest.mark.parametrize("text", ["/bin/app:work():char*:arg1", "/bin/app:work():int,int:arg1,arg2", "/bin/app:work()"])
def test_histograms_need_one_number(text: str) -> None:
    with pytest.raises(TraceError, match="histogram"):
        parsed(text, histogram=True)
