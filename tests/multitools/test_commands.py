"""Scripts that argdist, funccount and its relatives, funclatency and its relatives, and trace become."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.options.script_options import Value
from pytrace.core.source import Source
from pytrace.core.types import INT32, VOID
from pytrace.frontend.syntax import nodes, parser
from pytrace.multitools import argdist, latencies, trace
from pytrace.multitools.argdist import Distribution
from pytrace.multitools.expressions import SpecText
from tests.support.facts import FEATURES, RecordedKernel, function
from tests.support.multitools import script, translate
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- argdist


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


# ---------------------------------------------------------------------------------------------- counts


COUNTED = """\
config = { print_maps_on_exit = false }

uprobe:/bin/app:work* {
    @calls[probe] = count();
}

end {
    for ($kv : @calls) {
        $name = $kv.0;
        row((func=str((int8 *)&$name + 16, 128), count=$kv.1), "-count");
    }
    print_rows();
}
"""


def test_the_whole_script_of_funccount() -> None:
    assert script("funccount", pattern="/bin/app:work*") == COUNTED


def test_kernel_functions_are_told_by_address() -> None:
    text = script("funccount", pattern="vfs_*")
    assert "kprobe:vfs_* {\n    @calls[func] = count();" in text
    assert 'row((func=$name, count=$kv.1), "-count");' in text


@pytest.mark.parametrize(
    ("pattern", "point"),
    [
        ("vfs_read", "fentry:vfs_read {"), ("t:sched:sched_*", "tracepoint:sched:sched_* {"),
        ("r:/bin/app:work", "uretprobe:/bin/app:work {"), ("u:/bin/app:*", "usdt:/bin/app:* {"),
        ("kretprobe:vfs_*", "kretprobe:vfs_* {"), ("software:faults:1", "software:faults:1 {"),
    ],
)  # fmt: skip
def test_places(pattern: str, point: str) -> None:
    assert point in script("funccount", pattern=pattern)


def test_intervals_lose_no_calls() -> None:
    text = script("funccount", pattern="vfs_*", interval=2)
    assert "interval:s:2, end {" in text
    assert "$new = $kv.1 - @shown[$name];" in text
    assert "clear(" not in text


def test_time_cpu() -> None:
    text = script("funccount", pattern="vfs_*", timestamp=True, cpu="3")
    assert 'time("%H:%M:%S\\n");' in text
    assert "kprobe:vfs_* /cpu == 3/ {" in text


def test_words_of_the_run_of_funccount() -> None:
    made = translate("funccount", pattern="^vfs_", pid="12", duration=9, regexp=True)
    assert made.arguments[:4] == ("--pid", "12", "--duration", "9")
    assert made.arguments[4:] == ("--probe-filter", ":(?:vfs_)[^:]*$|^interval:|:sched_process_exit$")
    assert "kprobe:* {" in made.text


def test_one_cpu() -> None:
    assert "/cpu == 2/" in translate("funccount", pattern="vfs_*", cpu=2).text
    assert "cpu ==" not in translate("funccount", pattern="vfs_*").text


def test_mistakes_of_funccount() -> None:
    with pytest.raises(TraceError, match="names nothing"):
        translate("funccount", pattern="c:")


@pytest.mark.parametrize(
    ("pattern", "options", "key"),
    [
        ("vfs_read", {}, "kstack, ustack"),
        ("/bin/app:work", {}, "ustack"),
        ("u:/bin/app:start", {}, "ustack"),
        ("vfs_read", {"kernel-stacks-only": True}, "kstack"),
        ("vfs_read", {"user-stacks-only": True}, "ustack"),
        ("/bin/app:work", {"kernel-stacks-only": True}, "kstack"),
        ("vfs_read", {"delimited": True}, 'kstack, "--", ustack'),
        ("vfs_read", {"delimited": True, "python": True}, 'kstack, "--", pystack'),
        ("/bin/app:work", {"python": True}, "pystack"),
        ("vfs_read", {"perpid": True}, "kstack, ustack, comm, pid"),
        ("vfs_read", {"perpid": True, "folded": True, "delimited": True}, "comm, pid, kstack, ustack"),
    ],
)
def test_keys(pattern: str, options: dict[str, Value], key: str) -> None:
    assert f"@stacks[{key}] = count();" in script("stackcount", None, pattern=pattern, **options)


def test_intervals() -> None:
    text = script("stackcount", pattern="t:sched:sched_switch", interval=2, timestamp=True, cpu="1")
    assert "tracepoint:sched:sched_switch /cpu == 1/ {" in text
    assert 'interval:s:2, end {\n    time("%H:%M:%S\\n");\n    print_clear(@stacks);\n}' in text
    assert "end {\n    time(" in script("stackcount", pattern="vfs_read", timestamp=True)


def test_words_of_the_run_of_stackcount() -> None:
    made = translate("stackcount", pattern="vfs", regexp=True, pid="3", duration=4, folded=True, offset=True)
    assert made.arguments[:4] == ("--pid", "3", "--duration", "4")
    assert made.arguments[-2:] == ("--format", "folded")
    assert "stack_layout" not in made.text
    shown = translate("stackcount", pattern="vfs", regexp=True, offset=True, all=True)
    assert [word for word in ("names", "offsets", "all", "lines") if f'stack_layout("{word}");' in shown.text] == [
        "names", "offsets", "all",
    ]  # fmt: skip


def test_mistakes_of_stackcount() -> None:
    with pytest.raises(TraceError, match="-K and -U"):
        translate("stackcount", None, pattern="vfs_read", **{"kernel-stacks-only": True, "user-stacks-only": True})
    with pytest.raises(TraceError, match="whole run"):
        translate("stackcount", pattern="vfs_read", folded=True, interval=1)


# ---------------------------------------------------------------------------------------------- latencies


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


def test_intervals_of_latencies() -> None:
    text = script("funclatency", pattern="vfs_read", interval=3, timestamp=True)
    assert "interval:s:3, end {\n    time(" in text
    assert "print_clear(@nsecs);" in text
    assert "$calls = (int64)@calls - @shown_calls;" in text


def test_words_of_the_run_of_latencies() -> None:
    made = translate("funclatency", pattern="work", regexp=True, pid="5", duration=1, level=9)
    assert made.arguments[:4] == ("--pid", "5", "--duration", "1")
    assert "sched_process_exit" in made.arguments[5]
    assert [note[:2] for note in made.notes] == ["-l"]


def test_mistakes_of_latencies() -> None:
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


# ---------------------------------------------------------------------------------------------- trace


ROW = 'row((time=strftime("%H:%M:%S", nsecs), pid=pid, tid=tid, comm=comm, func=sprintf("%s", func), "-"=sprintf('
KPROBES = RecordedKernel(features=FEATURES - {"fentry"})


def test_a_place_alone() -> None:
    assert script("trace", probe="/bin/app:work") == f'uprobe:/bin/app:work {{\n    {ROW}"")));\n}}\n'


@pytest.mark.parametrize(
    ("probe", "point", "lines"),
    [
        ('p::do_exit "%d", arg1', "kprobe:do_exit", ['"%d", arg0)']),
        ('r:/bin/app:work (retval == 0) "none"', "uretprobe:/bin/app:work",
         ["if (!(retval == 0)) { return; }", 'sprintf("none")']),
        ('t:syscalls:sys_enter_open "%s", args->filename', "tracepoint:syscalls:sys_enter_open",
         ["str(args->filename, 80)", '"sys_enter_open"']),
        ('t:sched:sched_switch "%s", args->prev_comm', "tracepoint:sched:sched_switch", ['"%s", args->prev_comm)']),
        ('u:/bin/app:one:stop "%d %s", arg1, arg2', "usdt:/bin/app:one:stop", ["arg0, str(arg1, 80))"]),
        ("/bin/app:work+4", "uprobe:/bin/app:work+4", []),
        ('p::do_exit(struct task_struct *t, size_t n) (n > 100 && t->pid == 1) "%d %K", n, t', "kprobe:do_exit",
         ["$t = (struct task_struct *)arg0;", "$n = arg1;", "if (!($n > 100 && $t->pid == 1)) { return; }",
          '"%d %s", $n, ksym($t)']),
        ('/bin/app:work (STRCMP("a)b", arg1)) "x, %d", arg2', "uprobe:/bin/app:work",
         ['if (!((str(arg0, 80) == "a)b"))) { return; }', '"x, %d", arg1']),
        ('kprobe:do_exit "%x", arg1', "kprobe:do_exit", ['"%x", arg0']),
        ('/bin/app:work "%s", arg1@user', "uprobe:/bin/app:work", ["str(uptr(arg0), 80)"]),
    ],
)  # fmt: skip
def test_probes(probe: str, point: str, lines: list[str]) -> None:
    text = script("trace", KPROBES, probe=probe)
    assert text.startswith(f"{point} {{")
    assert [line for line in lines if line not in text] == []


def test_typed_kernel_functions_have_names() -> None:
    text = script("trace", probe='p::vfs_read "%d", arg2')
    assert text.startswith("fentry:vfs_read {")
    assert "args.count" in text


@each_row(
    ("options", "part"),
    [
        ({"tid": 7}, "/tid == 7/"),
        ({"uid": "0"}, "/uid == 0/"),
        ({"uid": "root"}, "/uid == 0/"),
        ({"name": "ls"}, '/strcontains(comm, "ls")/'),
        ({"string-size": 20}, "str(arg0, 20)"),
        ({"timestamp": True}, "time=fixed(elapsed, 1000000000, 6)"),
        ({"unix-timestamp": True}, 'time=strftime("%s.%f", nsecs)'),
        ({"time": True}, 'time=strftime("%H:%M:%S", nsecs)'),
        ({"print_cpu": True}, "cpu=cpu, pid=pid"),
        ({"kernel-stack": True}, "print(kstack);"),
        ({"user-stack": True}, "print(ustack);"),
        ({"user-stack": True, "address": True}, "print(ustack(perf));"),
        ({"aggregate": True}, '@lines[comm, func, sprintf("%s", str(arg0, 80))] = count();'),
        ({"max-events": 3}, "if ($number >= 3) { return; }"),
        ({"max-events": 3}, "if ($number == 2) { exit(); }"),
    ],
)
def test_options_of_trace(options: dict[str, Value], part: str) -> None:
    assert part in script("trace", None, probe='/bin/app:work "%s", arg1', **options)


def test_words_of_the_run_of_trace() -> None:
    made = translate("trace", None, probe="/bin/app:work", pid="3", duration=4, include="a.h\nb.h",
                     **{"cgroup-path": "/sys/fs/cgroup/x"})  # fmt: skip
    assert made.arguments == (
        "--pid", "3", "--duration", "4", "--cgroup", "/sys/fs/cgroup/x", "--include", "a.h", "--include", "b.h",
    )  # fmt: skip


def test_notes() -> None:
    made = translate("trace", None, probe="/bin/app:work", bin_cmp=True, sym_file_list="x",
                     **{"include-self": True})  # fmt: skip
    assert [note[:2] for note in made.notes] == ["-S", "-B", "-s"]


@each_row(
    ("probe", "message", "word"),
    [
        ("", "a probe is expected", ""),
        ('/bin/app:work "%d"', "takes 1 value, 0 given", '"%d"'),
        ('/bin/app:work "%d", arg1, arg2', "takes 1 value, 2 given", '"%d"'),
        ('/bin/app:work "%y", arg1', "unknown conversion '%y'", "%y"),
        ('/bin/app:work "%d", nosuch', "unknown name 'nosuch'", "nosuch"),
        ("/bin/app:work (arg1 == 1", "the predicate has no end", "("),
        ("/bin/app:work ()", "the predicate is empty", "()"),
        ("/bin/app:work arg1", "a format is expected", "arg1"),
        ('/bin/app:work "%d" arg1', "a comma is expected", '"%d" arg1'),
        ('/bin/app:work "%d", ', "values are expected", ","),
        ('/bin/app:work "abc', "has no end", '"abc'),
        ('r:/bin/app:work "%d", arg1', "unknown name 'arg1'", "arg1"),
        ("/bin/app:work(int a", "the signature has no end", "("),
        ('t:sched:sched_switch "%d", arg1', "unknown name 'arg1'", "arg1"),
        ('/bin/app:work (arg1 = 1) "x"', "an assignment", "="),
    ],
)  # fmt: skip
def test_mistakes_of_trace(probe: str, message: str, word: str) -> None:
    with pytest.raises(TraceError) as caught:
        translate("trace", probe=probe or " ")
    first, line, mark = caught.value.message.split("\n")
    assert message in first
    assert line[mark.index("~") :].startswith(word)


def test_options_that_exclude_each_other() -> None:
    with pytest.raises(TraceError, match="cannot be used together"):
        translate("trace", probe="/bin/app:work", timestamp=True, time=True)
    with pytest.raises(TraceError, match="user space only") as caught:
        translate("trace", None, probe="/bin/app:work", **{"msg-filter": "x"})
    assert "grep" in caught.value.hints[0]
    with pytest.raises(TraceError, match="there is no user 'nobody here'"):
        translate("trace", probe="/bin/app:work", uid="nobody here")


def test_escapes_of_a_format() -> None:
    with pytest.raises(TraceError, match=r"unknown escape '\\q'\n"):
        translate("trace", probe=r'/bin/app:work "a\q"')
    assert r'sprintf("\\a\t\x41\101\"")' in translate("trace", probe=r'/bin/app:work "\\a\t\x41\101\""').text


def test_conversions() -> None:
    spec = SpecText.of('"%d %5lu %-8s %K %% %10U %llx"')
    assert [item.name for item in trace.conversions(spec)] == ["d", "u", "s", "K", "U", "x"]
    assert trace.script_format(spec) == "%d %5lu %-8s %s %% %10s %llx"


def test_values() -> None:
    spec = SpecText.of('"%s %K %U %d"')
    found = trace.values(spec, trace.conversions(spec), ["a", "b", "c", "d"], lambda text: f"str({text})")
    assert found == ["str(a)", "ksym(b)", "usym(c)", "d"]


@pytest.mark.parametrize(("text", "word"), [('"%y"', "%y"), ('"a %5q"', "%5q"), ('"%f"', "%f"), ('"%"', "%")])
def test_unknown_conversions(text: str, word: str) -> None:
    with pytest.raises(TraceError, match="unknown conversion") as caught:
        trace.conversions(SpecText.of(text))
    _, line, mark = caught.value.message.split("\n")
    assert line[mark.index("~") :].startswith(word)


@pytest.mark.parametrize("values", [[], ["a"], ["a", "b", "c"]])
def test_numbers_of_values(values: list[str]) -> None:
    spec = SpecText.of('"%d %d"')
    with pytest.raises(TraceError, match=f"takes 2 values, {len(values)} given"):
        trace.values(spec, trace.conversions(spec), values, str)


@pytest.mark.parametrize(
    "spec",
    ["/.", 't:a:b"); system("id', 'u:app:o"ne:st"art', 'p::a/ { system("id") } begin', "t:sched:x/1/{exit();}",
     "software:cpu-clock /1/ { exit() } x", "p:/bin/a b:c d"],
)  # fmt: skip
def test_names_are_no_code(spec: str) -> None:
    """What is translated has one probe with one statement, or the specification is refused."""
    try:
        text = translate("trace", probe=spec).text
    except TraceError:
        return
    diagnostics = Diagnostics()
    program = parser.parse(Source("trace", text), diagnostics)
    assert not diagnostics.failed, text
    assert len(program.probes) == 1
    assert "system(" not in {getattr(node, "name", "") for node in nodes.walk(program)}


def test_control_characters_are_in_no_name() -> None:
    with pytest.raises(TraceError, match="control characters"):
        translate("trace", probe="p::a\x07b")


@pytest.mark.parametrize("spec", ['do_exit "a" b "c"', 'do_exit "); tem("isywtem("', 'do_exit "a\\"'])
def test_what_follows_a_format_is_no_code(spec: str) -> None:
    with pytest.raises(TraceError, match="after the format"):
        translate("trace", probe=spec)
