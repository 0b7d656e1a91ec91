from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.options.script_options import Value
from pytrace.core.source import Source
from pytrace.frontend.syntax import nodes, parser
from pytrace.multitools import trace
from pytrace.multitools.expressions import SpecText
from tests.support.facts import FEATURES, RecordedKernel
from tests.support.multitools import script, translate
from tests.support.rows import each_row

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
def test_options(options: dict[str, Value], part: str) -> None:
    assert part in script("trace", None, probe='/bin/app:work "%s", arg1', **options)


def test_words_of_the_run() -> None:
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
def test_mistakes(probe: str, message: str, word: str) -> None:
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
