"""Command lines of the multi-purpose tools: the scripts that they become, the words of the run, mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.source import Source
from pytrace.core.types import INT32, VOID
from pytrace.frontend.syntax import nodes, parser
from pytrace.multitools import functions
from tests.support.facts import FEATURES, RecordedKernel, function
from tests.support.multitools import script, translate
from tests.support.rows import each_row

HISTOGRAM = """\
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
TRACED = 'row((time=strftime("%H:%M:%S", nsecs), pid=pid, tid=tid, comm=comm, func=sprintf("%s", func), "-"=sprintf('
WORK, WORKS, TEXT = "/bin/app:work", "/bin/app:w*", "/bin/app:work(char *a):char*:a"
KPROBES = RecordedKernel(features=FEATURES - {"fentry"})
QUIET = RecordedKernel(prototypes=(function("quiet", ("n", INT32), result=VOID),))
Values = dict[str, Any]


@each_row(
    ("values", "parts"),
    [
        ({"histogram": "p:/bin/app:work(struct sock *sk, size_t size):u32:size:size > 100#sizes of 100 %"},
         [HISTOGRAM]),
        ({"count": "/bin/app:work(int a, char *b):int,char*:a,b"}, ["@values[$a, str($b, 80)] = count();"]),
        ({"count": "/bin/app:work()"}, ["@values = count();", 'printf("/bin/app:work()\\n");']),
        ({"count": WORK}, ["@values = count();"]),
        ({"count": "/bin/app:work(int a, char *b):u32,char*:a,b:a > 1 && b != 0#my label"},
         ["@values[(uint32)$a, str($b, 80)] = count();", "if (!($a > 1 && $b != 0)) { return; }", '("my label\\n")']),
        # A cast to the same type is left out.
        ({"count": "/bin/app:work():u64:arg1"}, ["@values[arg0] = count();"]),
        ({"count": "/bin/app:work(int a):int:a+1"}, ["@values[(int32)($a + 1)] = count();"]),
        ({"count": '/bin/app:work(char *a):char*:a:STRCMP("#1", a)#x'}, ['printf("x\\n");']),
        ({"count": "/bin/app:work(int a):int:a > 1 ? 2 : 3:a != 5"}, ["if (!($a != 5)) { return; }"]),
        ({"count": "r:/bin/app:work()"}, ["@values[(int64)retval] = count();"]),
        ({"count": "t:sched:sched_switch():char*:args->prev_comm"}, ["@values[args->prev_comm] = count();"]),
        ({"count": "t:sched:sched_switch():int:args->prev_pid"}, ["@values[(int32)(args->prev_pid)] = count();"]),
        ({"count": "r:/bin/app:work(int a):int,u64:$entry(a),$latency:$retval == 0"},
         ["call:/bin/app:work {\n    $a = (int32)arg0;\n    $entry_a = $a;\n    $latency = duration;",
          "if (!(retval == 0)) { return; }\n    @values[$entry_a, $latency] = count();"]),
        ({"histogram": "/bin/app:work():int:arg1", "count": "/bin/app:work():int:arg2\n/bin/app:main()"},
         ["@values1", "@values2", "@values3", re.compile(r"print_clear\(@values1\)(?s:.*)print_clear\(@values2\)")]),
        ({"count": TEXT, "string-size": 5}, ["str($a, 5)"]),
        ({"count": TEXT, "cumulative": True}, ["print(@values);"]),
        ({"count": TEXT, "top": 3}, ["print_clear(@values, 3);"]),
        ({"count": TEXT, "tid": 4}, ["/tid == 4/"]),
        ({"count": TEXT, "interval": 1}, ["interval:s:1, end {"]),
        # What came after the last output is shown at the end.
        ({"count": TEXT, "interval": 5, "number": 2},
         ["interval:s:5 {", "if (@outputs >= 2) { exit(); }",
          re.compile(r"end /@outputs < 2/ \{(?s:.*)print_clear\(@values\);")]),
    ],
)  # fmt: skip
def test_argdist(values: Values, parts: list[str | re.Pattern[str]]) -> None:
    check(script("argdist", None, **values), parts)


def check(text: str, parts: list[Any]) -> None:
    """*parts* are texts, patterns, and what is not in the script (a tuple)."""
    for part in parts:
        if isinstance(part, tuple):
            assert not [lacking for lacking in part if lacking in text], text
        else:
            assert part.search(text) if isinstance(part, re.Pattern) else part in text, text


@each_row(
    ("values", "parts"),
    [
        ({"pattern": "/bin/app:work*"}, [COUNTED]),
        # Functions of the kernel are told by address.
        ({"pattern": "vfs_*"}, ["kprobe:vfs_* {\n    @calls[func] = count();",
                                'row((func=$name, count=$kv.1), "-count");', ("cpu ==",)]),
        ({"pattern": "vfs_read"}, ["fentry:vfs_read {"]),
        ({"pattern": "t:sched:sched_*"}, ["tracepoint:sched:sched_* {"]),
        ({"pattern": "t:sched:sched_switch"}, ['@calls["sched_switch"] = count();']),
        ({"pattern": WORK}, ['@calls["work"] = count();']),
        ({"pattern": "r:/bin/app:work"}, ["uretprobe:/bin/app:work {"]),
        ({"pattern": "u:/bin/app:*"}, ["usdt:/bin/app:* {"]),
        ({"pattern": "kretprobe:vfs_*"}, ["kretprobe:vfs_* {"]),
        ({"pattern": "software:faults:1"}, ["software:faults:1 {"]),
        ({"pattern": "vfs_*", "interval": 2},
         ["interval:s:2, end {", "$new = $kv.1 - @shown[$name];", ("clear(",)]),
        ({"pattern": "vfs_*", "timestamp": True, "cpu": "3"},
         ['time("%H:%M:%S\\n");', "kprobe:vfs_* /cpu == 3/ {"]),
        ({"pattern": "vfs_*", "cpu": 0}, ["/cpu == 0/"]),
        ({"pattern": "vfs_*", "interval": 500_000_000.0}, ["interval:ms:500, end {"]),
        ({"pattern": "vfs_*", "interval": 1500.0}, ["interval:us:1, end {"]),
        # The last interval ends with the run.
        ({"pattern": "vfs_*", "interval": 1, "duration": 3},
         ["interval:s:1, end /@outputs < 3/ {", "if (@outputs >= 3) { exit(); }"]),
        ({"pattern": "vfs_*", "interval": 2, "duration": 3}, ["interval:s:2, end {"]),
    ],
)  # fmt: skip
def test_funccount(values: Values, parts: list[Any]) -> None:
    check(script("funccount", None, **values), parts)


@each_row(
    ("values", "key"),
    [
        ({"pattern": "vfs_read"}, "kstack, ustack"),
        ({"pattern": WORK}, "ustack"),
        ({"pattern": "u:/bin/app:start"}, "ustack"),
        ({"pattern": "vfs_read", "kernel-stacks-only": True}, "kstack"),
        ({"pattern": "vfs_read", "user-stacks-only": True}, "ustack"),
        ({"pattern": WORK, "kernel-stacks-only": True}, "kstack"),
        ({"pattern": "vfs_read", "delimited": True}, 'kstack, "--", ustack'),
        ({"pattern": "vfs_read", "delimited": True, "python": True}, 'kstack, "--", pystack'),
        ({"pattern": WORK, "python": True}, "pystack"),
        ({"pattern": "vfs_read", "perpid": True}, "kstack, ustack, comm, pid"),
        ({"pattern": "vfs_read", "perpid": True, "folded": True, "delimited": True}, "comm, pid, kstack, ustack"),
    ],
)
def test_keys_of_stackcount(values: Values, key: str) -> None:
    assert f"@stacks[{key}] = count();" in script("stackcount", None, **values)


@each_row(
    ("values", "parts"),
    [
        ({"pattern": "t:sched:sched_switch", "interval": 2, "timestamp": True, "cpu": "1"},
         ["tracepoint:sched:sched_switch /cpu == 1/ {",
          'interval:s:2, end {\n    time("%H:%M:%S\\n");\n    print_clear(@stacks);\n}']),
        ({"pattern": "vfs_read", "timestamp": True}, ["end {\n    time("]),
        ({"pattern": "vfs", "regexp": True, "folded": True, "offset": True}, [("stack_layout",)]),
        ({"pattern": "vfs", "regexp": True, "offset": True, "all": True},
         [*(f'stack_layout("{word}");' for word in ("names", "offsets", "all")), ('stack_layout("lines")',)]),
    ],
)  # fmt: skip
def test_stackcount(values: Values, parts: list[Any]) -> None:
    check(script("stackcount", None, **values), parts)


@each_row(
    ("values", "parts"),
    [
        ({"pattern": "vfs_read"},
         ["call:kernel:vfs_read {\n    $time = duration;", "@nsecs = hist($time);", ("@callees", "delete"),
          "avg = %ld nsecs, total: %ld nsecs, count: %ld"]),
        ({"pattern": WORK}, ["call:/bin/app:work {"]),
        ({"pattern": WORK, "microseconds": True}, ["@usecs = hist($time / 1000);", "avg = %ld usecs"]),
        ({"pattern": WORK, "milliseconds": True}, ["@msecs = hist($time / 1000000);", "avg = %ld msecs"]),
        ({"pattern": "vfs_*", "function": True}, ["$name = func;\n    @nsecs[$name] = hist($time);"]),
        ({"pattern": WORKS, "function": True},
         ["$name = probe;\n    @nsecs[str((int8 *)&$name + 14, 128)] = hist($time);"]),
        ({"pattern": "vfs_read", "interval": 3, "timestamp": True},
         ["interval:s:3, end {\n    time(", "print_clear(@nsecs);", "$calls = (int64)@calls - @shown_calls;"]),
    ],
)  # fmt: skip
def test_funclatency(values: Values, parts: list[Any]) -> None:
    check(script("funclatency", None, **values), parts)


@each_row(
    ("values", "parts"),
    [
        ({"pattern": WORKS}, ['"-TOTAL(ms)");', ("@callees",)]),
        ({"pattern": "vfs_*", "self": True},
         ["kprobe:vfs_* {", "kretprobe:vfs_* /@depth[tid]/ {", "$name = $function;",
          "tracepoint:sched:sched_process_exit /has_key(@depth, tid)/ { delete(@depth, tid); }"]),
        ({"pattern": WORKS, "self": True}, ["@callees[tid, $level - 1] += $time;", "@total[$name] = sum($own);"]),
        ({"pattern": "vfs_*"}, ["call:kernel:vfs_* {\n    $time = duration;\n    $name = func;"]),
        ({"pattern": "vfs_*", "interval": 2, "timestamp": True},
         ["interval:s:2, end {\n    time(", "$calls = $kv.1 - @shown_calls[$name];",
          "clear(@slots);\n    clear(@longest);"]),
    ],
)  # fmt: skip
def test_functime(values: Values, parts: list[Any]) -> None:
    text = script("functime", None, **values)
    check(text, parts)
    titles = re.findall(r'[( ](func|count|"[^"]+")=(?:str|\$name|\$calls|fixed)', text)
    assert titles == ["func", "count", '"TOTAL(ms)"', '"AVG(us)"', '"P99(us)"', '"MAX(us)"']


def _functions() -> tuple[Callable[[int], int], Callable[[int], int]]:
    """``slot`` and ``middle`` of the script, as Python."""
    text = functions._SLOTS
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


@each_row(
    ("kernel", "values", "parts"),
    [
        (None, {"function": WORK},
         ["if ($time < 1000000) { return; }", 'row((comm=comm, pid=pid, "LAT(ms)"=fixed($time, 1000000, 3), rval=',
          'rval=(void *)retval, func=func, args=""));']),
        (None, {"function": WORK, "min-ms": 20}, ["if ($time < 20000000) { return; }"]),
        (None, {"function": WORK, "min-us": 20}, ["if ($time < 20000) { return; }", '"LAT(us)"=fixed($time, 1000, 3)']),
        (KPROBES, {"function": "vfs_read", "arguments": 2},
         ['args=joined(" ", (void *)arg0, (void *)arg1)']),
        (None, {"function": "vfs_read", "arguments": 6},
         ["(void *)(uint64)args.file, (void *)(uint64)args.count)"]),
        (QUIET, {"function": "quiet"}, ["rval=(void *)0"]),
        (None, {"function": "/bin/app:work\n/bin/app:main"},
         ["call:/bin/app:work ", "call:/bin/app:main "]),
        (None, {"function": WORK, "time": True, "timestamp": True, "user-stack": True, "kernel-stack": True},
         ['row((time=strftime("%H:%M:%S", nsecs), "TIME(s)"=fixed(elapsed, 1000000000, 6), comm=comm',
          "print(kstack);\n    print(ustack);"]),
        (None, {"function": WORK, "folded": True, "user-stack": True},
         ["@usecs[comm, ustack, func] = sum($time / 1000);", ("config",)]),
        # Without -U and -K it is the stack that the function has.
        (None, {"function": WORK, "folded": True}, ["@usecs[comm, ustack, func] = sum("]),
        (None, {"function": "vfs_read", "folded": True}, ["@usecs[comm, kstack, func] = sum("]),
        (None, {"function": WORK, "folded": True, "kernel-stack": True}, ["@usecs[comm, kstack, func] = sum("]),
    ],
)  # fmt: skip
def test_funcslower(kernel: RecordedKernel | None, values: Values, parts: list[Any]) -> None:
    check(script("funcslower", kernel, **values), parts)


@each_row(
    ("probe", "parts"),
    [
        (WORK, [f'uprobe:/bin/app:work {{\n    {TRACED}"")));\n}}\n']),
        ('p::do_exit "%d", arg1', ["kprobe:do_exit {", '"%d", arg0)']),
        ('r:/bin/app:work (retval == 0) "none"',
         ["uretprobe:/bin/app:work {", "if (!(retval == 0)) { return; }", 'sprintf("none")']),
        ('t:syscalls:sys_enter_open "%s", args->filename',
         ["tracepoint:syscalls:sys_enter_open {", "str(args->filename, 80)", '"sys_enter_open"']),
        ('t:sched:sched_switch "%s", args->prev_comm', ["tracepoint:sched:sched_switch {", '"%s", args->prev_comm)']),
        ('u:/bin/app:one:stop "%d %s", arg1, arg2', ["usdt:/bin/app:one:stop {", "arg0, str(arg1, 80))"]),
        ("/bin/app:work+4", ["uprobe:/bin/app:work+4 {"]),
        ('p::do_exit(struct task_struct *t, size_t n) (n > 100 && t->pid == 1) "%d %K", n, t',
         ["kprobe:do_exit {", "$t = (struct task_struct *)arg0;", "$n = arg1;",
          "if (!($n > 100 && $t->pid == 1)) { return; }", '"%d %s", $n, ksym($t)']),
        ('/bin/app:work (STRCMP("a)b", arg1)) "x, %d", arg2',
         ["uprobe:/bin/app:work {", 'if (!((str(arg0, 80) == "a)b"))) { return; }', '"x, %d", arg1']),
        ('/bin/app:work ((arg1) || (arg2)) "x"', ["uprobe:/bin/app:work {", "if (!((arg0) || (arg1))) { return; }"]),
        ('kprobe:do_exit "%x", arg1', ["kprobe:do_exit {", '"%x", arg0']),
        ('/bin/app:work "%s", arg1@user', ["uprobe:/bin/app:work {", "str(uptr(arg0), 80)"]),
        ('/bin/app:work "%d %5lu %-8s %K %% %10U %llx", arg1, arg2, arg3, arg4, arg5, arg6',
         ["uprobe:/bin/app:work {",
          '"%d %5lu %-8s %s %% %10s %llx", arg0, arg1, str(arg2, 80), ksym(arg3), usym(arg4), arg5)']),
        (r'/bin/app:work "\\a\t\x41\101\""', ["uprobe:/bin/app:work {", r'sprintf("\\a\t\x41\101\"")']),
    ],
)  # fmt: skip
def test_trace(probe: str, parts: list[Any]) -> None:
    text = script("trace", KPROBES, probe=probe)
    assert text.startswith(parts[0])
    check(text, parts)


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
        ({"name": 'a"b\\c'}, r'/strcontains(comm, "a\"b\\c")/'),
        ({"tid": 7, "name": "ls"}, '/tid == 7 && strcontains(comm, "ls")/'),
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
def test_options_of_trace(options: Values, part: str) -> None:
    assert part in script("trace", None, probe='/bin/app:work "%s", arg1', **options)


@each_row(
    ("tool", "values", "words"),
    [
        ("argdist", {"count": "/bin/app:work()", "pid": "1", "duration": 2, "include": "x.h"},
         "--pid 1 --duration 2 --include x.h"),
        ("funccount", {"pattern": "vfs_*"}, ""),
        ("funccount", {"pattern": "^vfs_", "pid": "12", "duration": 9, "regexp": True},
         "--pid 12 --duration 9 --probe-filter :(?:vfs_)[^:]*$|^interval:|:sched_process_exit$"),
        ("funccount", {"pattern": "vfs_*", "pid": "1\n2", "duration": 2.5e9}, "--pid 1,2 --duration 2.5"),
        ("stackcount", {"pattern": "vfs", "pid": "3", "duration": 4, "folded": True},
         "--pid 3 --duration 4 --format folded"),
        ("funclatency", {"pattern": "/bin/app:^work(_more)?$", "regexp": True, "pid": "5", "duration": 1, "level": 9},
         "--pid 5 --duration 1 --probe-filter :(?:work(_more)?$)[^:]*$|^interval:|:sched_process_exit$"),
        ("functime", {"pattern": "w", "pid": "5", "duration": 1}, "--pid 5 --duration 1"),
        ("funcslower", {"function": WORK, "folded": True, "user-stack": True}, "--format folded"),
        ("funcslower", {"function": WORK, "pid": "3", "duration": 2}, "--pid 3 --duration 2"),
        ("trace", {"probe": WORK, "pid": "3", "duration": 4, "include": "a.h\nb.h", "cgroup-path": "/sys/fs/cgroup/x"},
         "--pid 3 --duration 4 --cgroup /sys/fs/cgroup/x --include a.h --include b.h"),
        ("tplist", {"lib": "/bin/app"}, "-l usdt:/bin/app:*"),
        ("tplist", {"lib": "c", "filter": "set*"}, "-l usdt:libc:set*"),
        ("tplist", {"lib": "pthread", "verbose": True}, "-l -v usdt:libpthread:*"),
        ("tplist", {"pid": "12"}, "-l -p 12 usdt:*:*"),
        ("tplist", {"filter": "block:*"}, "-l tracepoint:block:*"),
        ("tplist", {"filter": "sched_switch"}, "-l tracepoint:*:sched_switch"),
        ("tplist", {}, "-l tracepoint:*"),
    ],
)  # fmt: skip
def test_words_of_the_run(tool: str, values: Values, words: str) -> None:
    kernel = RecordedKernel(files={"libc": ["/lib/c"], "libpthread": ["/lib/p"]})
    made = translate(tool, kernel, **values)
    assert " ".join(made.arguments) == words
    assert bool(made.text) is (tool != "tplist")


@each_row(
    ("tool", "values", "notes"),
    [
        ("funclatency", {"pattern": WORK, "level": 9}, ["-l"]),
        ("trace", {"probe": WORK, "bin_cmp": True, "sym_file_list": "x", "include-self": True}, ["-S", "-B", "-s"]),
    ],
)
def test_notes(tool: str, values: Values, notes: list[str]) -> None:
    assert [note[:2] for note in translate(tool, None, **values).notes] == notes


@each_row(
    ("tool", "values", "message"),
    [
        ("argdist", {}, "needs a specification"),
        ("argdist", {"histogram": "/bin/app:work():char*:arg1"}, "histogram"),
        ("argdist", {"histogram": "/bin/app:work():int,int:arg1,arg2"}, "histogram"),
        ("argdist", {"histogram": "/bin/app:work()"}, "histogram"),
        ("funccount", {"pattern": "c:"}, "names nothing"),
        ("stackcount", {"pattern": "vfs_read", "kernel-stacks-only": True, "user-stacks-only": True}, "-K and -U"),
        ("stackcount", {"pattern": "vfs_read", "folded": True, "interval": 1}, "whole run"),
        ("funclatency", {"pattern": "vfs_read", "microseconds": True, "milliseconds": True}, "cannot be used together"),
        ("funclatency", {"pattern": "t:sched:*"}, "functions have a latency, tracepoints have none"),
        ("funclatency", {"pattern": "software:faults"}, "functions have a latency"),
        ("funclatency", {"pattern": "/bin/app:work+4"}, "leave the offset out"),
        ("functime", {"pattern": "u:/bin/app:start"}, "have none"),
        ("funcslower", {"function": WORK, "min-ms": 1, "min-us": 1}, "cannot be used together"),
        ("funcslower", {"function": "t:sched:sched_switch"}, "events have no duration"),
        ("funcslower", {"function": "/bin/app:work\nvfs_read"}, "do not go together"),
        ("funcslower", {"function": "r:/bin/app:work"}, "leave r: out"),
        ("trace", {"probe": WORK, "timestamp": True, "time": True}, "cannot be used together"),
        ("trace", {"probe": WORK, "uid": "nobody here"}, "there is no user 'nobody here'"),
        ("trace", {"probe": r'/bin/app:work "a\q"'}, r"unknown escape '\\q'\n"),
        ("trace", {"probe": "p::a\x07b"}, "control characters"),
        ("trace", {"probe": 'do_exit "a" b "c"'}, "after the format"),
        ("trace", {"probe": 'do_exit "); tem("isywtem("'}, "after the format"),
        ("trace", {"probe": 'do_exit "a\\"'}, "after the format"),
        ("tplist", {"lib": "c", "pid": "1"}, "cannot be used together"),
        ("tplist", {"pid": "1,2"}, "one process"),
    ],
)
def test_mistakes(tool: str, values: Values, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        translate(tool, None, **values)


def test_what_programs_beside_the_kernel_filter_better() -> None:
    with pytest.raises(TraceError, match="user space only") as caught:
        translate("trace", None, probe=WORK, **{"msg-filter": "x"})
    assert "grep" in caught.value.hints[0]


@each_row(
    ("tool", "text", "message", "word"),
    [
        ("argdist", "/bin/app:work(int a):int", "1 types and 0 expressions", "int"),
        ("argdist", "/bin/app:work(int a):int,int:a", "2 types and 1 expressions", "a"),
        ("argdist", "/bin/app:work(int a):in t:a", "'in t' is not a C type", "in t"),
        ("argdist", "/bin/app:work(int a):int:b", "unknown name 'b'", "b"),
        ("argdist", "/bin/app:work(int a):int::a", "is empty", ""),
        ("argdist", "/bin/app:work(int a)int:a", "':' is expected", "i"),
        ("argdist", "/bin/app:work(int a):int:a:b", "unknown name 'b'", "b"),
        ("argdist", "/bin/app:work(int a):int:$entry(a)", "unknown function '$entry'", "$entry"),
        ("argdist", "/bin/app:work(int a):int:$latency", "unknown name '$latency'", "$latency"),
        ("argdist", "r:/bin/app:work(int a):int:$entry(b)", "$entry takes a parameter", "b"),
        ("argdist", "r:/bin/app:work(int a):int:$entry(1)", "$entry takes a parameter", "1"),
        ("argdist", "r:/bin/app:work(int a):int:a", "unknown name 'a'", "a"),
        ("argdist", "/bin/app:work(int a):int:a#b#c", "one #label", "c"),
        ("trace", " ", "a probe is expected", ""),
        ("trace", '/bin/app:work "%d"', "takes 1 value, 0 given", '"%d"'),
        ("trace", '/bin/app:work "%d", arg1, arg2', "takes 1 value, 2 given", '"%d"'),
        ("trace", '/bin/app:work "%d %d", arg1', "takes 2 values, 1 given", '"%d'),
        ("trace", '/bin/app:work "%y", arg1', "unknown conversion '%y'", "%y"),
        ("trace", '/bin/app:work "a %5q", arg1', "unknown conversion", "%5q"),
        ("trace", '/bin/app:work "%f", arg1', "unknown conversion", "%f"),
        ("trace", '/bin/app:work "%"', "unknown conversion", "%"),
        ("trace", '/bin/app:work "%d", nosuch', "unknown name 'nosuch'", "nosuch"),
        ("trace", "/bin/app:work (arg1 == 1", "the predicate has no end", "("),
        ("trace", "/bin/app:work ()", "the predicate is empty", "()"),
        ("trace", "/bin/app:work arg1", "a format is expected", "arg1"),
        ("trace", '/bin/app:work "%d" arg1', "a comma is expected", '"%d" arg1'),
        ("trace", '/bin/app:work "%d", ', "values are expected", ","),
        ("trace", '/bin/app:work "abc', "has no end", '"abc'),
        ("trace", 'r:/bin/app:work "%d", arg1', "unknown name 'arg1'", "arg1"),
        ("trace", "/bin/app:work(int a", "the signature has no end", "("),
        ("trace", 't:sched:sched_switch "%d", arg1', "unknown name 'arg1'", "arg1"),
        ("trace", '/bin/app:work (arg1 = 1) "x"', "an assignment", "="),
    ],
)
def test_the_wrong_word_is_underlined(tool: str, text: str, message: str, word: str) -> None:
    with pytest.raises(TraceError) as caught:
        translate(tool, None, **{"argdist": {"count": text}, "trace": {"probe": text}}[tool])
    first, line, mark = caught.value.message.split("\n")
    assert message in first
    assert line[mark.index("~") :].startswith(word)


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
