from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.multitools.specs import distribution
from pytrace.multitools.specs.distribution import Distribution
from pytrace.multitools.specs.problems import SpecText
from tests.support.facts import RecordedKernel


def parsed(text: str, *, histogram: bool = False) -> Distribution:
    return distribution.parse(SpecText.of(text), RecordedKernel(), None, size=80, histogram=histogram)


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


@pytest.mark.parametrize(
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
def test_mistakes(text: str, message: str, word: str) -> None:
    with pytest.raises(TraceError) as caught:
        parsed(text)
    first, line, mark = caught.value.message.split("\n")
    assert message in first
    assert line[mark.index("~") :].startswith(word)


@pytest.mark.parametrize("text", ["/bin/app:work():char*:arg1", "/bin/app:work():int,int:arg1,arg2", "/bin/app:work()"])
def test_histograms_need_one_number(text: str) -> None:
    with pytest.raises(TraceError, match="histogram"):
        parsed(text, histogram=True)
