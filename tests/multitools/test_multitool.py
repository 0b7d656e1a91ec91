"""Multi-purpose tools in general: patterns, parts of scripts, lists of probes, the table of them."""

from __future__ import annotations

import re
import shlex

import pytest

from pytrace.cli import request, script_options, tools
from pytrace.cli.options import read
from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.options.script_options import ScriptOption, Value
from pytrace.frontend.syntax.formatter import format_source
from pytrace.multitools import multitool
from pytrace.multitools.counts import FUNCCOUNT
from pytrace.multitools.latencies import FUNCLATENCY
from pytrace.multitools.multitool import LANGUAGES, MULTI_PURPOSE, MultiTool, Naming, Options, Pattern, Translation
from pytrace.multitools.table import TOOLS
from pytrace.runtime.load import live_kernel
from tests.support.facts import RecordedKernel
from tests.support.multitools import translate
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- multitool
# .


OPTIONS = (
    ScriptOption(("f", "flag"), False),
    ScriptOption(("n", "number"), 3, "", "N"),
    ScriptOption(("m", "many"), "", "", "TEXT", repeat=True),
)


def test_values_have_types_and_defaults() -> None:
    options = Options(OPTIONS, {"many": "a\nb"})
    assert (options.flag("flag"), options.number("number"), options.many("many")) == (False, 3, ("a", "b"))
    assert Options(OPTIONS, {"number": 5}).text("number") == "5"
    assert Options(OPTIONS, {}).many("many") == ()


def test_a_tool_translates_with_facts_about_the_machine() -> None:
    tool = MultiTool("x", "", "", OPTIONS, "", lambda options, kernel: Translation(kernel.release))
    assert tool.translate({}, RecordedKernel(release="9.9")).text == "9.9"


def options(**values: Value) -> Options:
    return Options(FUNCCOUNT.options, values)


def test_processes() -> None:
    assert options(pid="1,2\n3").pids() == (1, 2, 3)
    assert options(pid="1,2").only_pid() is None
    assert options(pid="7").only_pid() == 7
    assert options(pid="1\n2", duration=2_500_000_000).run_arguments("x$") == (
        "--pid", "1,2", "--duration", "2.5", "--probe-filter", "x$",
    )  # fmt: skip
    assert options().run_arguments() == ()


def test_cpu() -> None:
    assert options().cpu_condition() == ""
    assert options(cpu=0).cpu_condition() == "cpu == 0"
    assert options(cpu=3).cpu_condition() == "cpu == 3"


# ---------------------------------------------------------------------------------------------- patterns
# .


def pattern(text: str, *, regexp: bool = False) -> Pattern:
    return multitool.counted_pattern(
        Options(FUNCLATENCY.options, {"pattern": text, "regexp": regexp}), RecordedKernel()
    )


def functions(text: str) -> Pattern:
    return multitool.function_pattern(Options(FUNCLATENCY.options, {"pattern": text}), RecordedKernel())


def test_names_are_told_apart_by_what_is_the_same_in_all_processes() -> None:
    assert pattern("vfs_*").naming.key == "func"
    assert pattern("/bin/app:work*").naming.key == "probe"
    assert pattern("/bin/app:work*").naming.prefix == len("uprobe:/bin/app:")
    assert pattern("/bin/app:work").naming.key == '"work"'
    assert pattern("t:sched:sched_switch").naming.key == '"sched_switch"'


def test_the_return_is_another_point() -> None:
    assert pattern("r:/bin/app:work").point == "uretprobe:/bin/app:work"
    assert pattern("/bin/app:work").point == "uprobe:/bin/app:work"


def test_regular_expressions_become_a_filter() -> None:
    found = pattern("/bin/app:^work(_more)?$", regexp=True)
    assert found.point == "uprobe:/bin/app:*"
    assert found.filter.startswith(":(?:work(_more)?$)")


@pytest.mark.parametrize("text", ["t:sched:sched_switch", "u:/bin/app:start", "software:faults"])
def test_events_have_no_latency(text: str) -> None:
    with pytest.raises(TraceError, match="functions have a latency"):
        functions(text)


def test_offsets_have_no_return() -> None:
    with pytest.raises(TraceError, match="leave the offset out"):
        functions("/bin/app:work+4")
    assert functions("/bin/app:work").attachment.leave == "uretprobe:/bin/app:work"


# ---------------------------------------------------------------------------------------------- script parts
# .


def test_blocks_indent_what_they_hold() -> None:
    inner = multitool.block("if (1)", ["a;", "b;"])
    assert multitool.block("end", [inner]) == "end {\n    if (1) {\n        a;\n        b;\n    }\n}"


def test_predicates_are_joined() -> None:
    text = multitool.probe(["a", "b"], ["x;"], ["", "cpu == 1", "p || q"])
    assert text == "a, b /cpu == 1 && (p || q)/ {\n    x;\n}"
    assert multitool.probe(["a"], ["x;"]) == "a {\n    x;\n}"


def test_literals_are_escaped() -> None:
    assert multitool.literal('a"b\\c\nd') == r'"a\"b\\c\nd"'


def test_empty_parts_leave_no_gap() -> None:
    assert multitool.script("a", "", "b") == "a\n\nb\n"


def test_names_are_shown_without_what_is_the_same_for_all() -> None:
    assert Naming("func").shown("$x") == "$x"
    assert Naming("probe", 12).shown("$x") == "str((int8 *)&$x + 12, 128)"


def test_frames_hold_what_is_needed_only() -> None:
    assert multitool.enter(None)[-1] == "@frame[tid, $level] = (function=func, start=nsecs);"
    assert multitool.enter(Naming("func"))[-1] == "@frame[tid, $level] = (function=func, start=nsecs);"
    assert "name=probe, arg1=arg0" in multitool.enter(Naming("probe"), more=(("arg1", "arg0"),))[-1]
    assert "@callees" not in " ".join(multitool.enter(None) + multitool.leave([]))
    assert "@callees" in " ".join(multitool.leave([], callees=True))


def test_predicates_keep_their_parentheses() -> None:
    assert multitool.unless("(a == 1)") == "if (!(a == 1)) { return; }"
    assert multitool.unless("(a) || (b)") == "if (!((a) || (b))) { return; }"


def test_outputs() -> None:
    shown = "{\n    x;\n}"
    assert multitool.outputs(0, 0, ["x;"]) == f"end {shown}"
    assert multitool.outputs(5_000_000_000, 0, ["x;"]) == f"interval:s:5, end {shown}"
    assert multitool.outputs(500_000_000, 700_000_000, ["x;"]) == f"interval:ms:500, end {shown}"
    assert multitool.outputs(1_500, 0, ["x;"]) == f"interval:us:1, end {shown}"
    assert multitool.outputs(0, 3_000_000_000, ["x;"]) == f"end {shown}"
    counted = "{\n    x;\n    @outputs++;\n    if (@outputs >= 3) { exit(); }\n}"
    assert multitool.outputs(10**9, 3 * 10**9, ["x;"]) == f"interval:s:1, end /@outputs < 3/ {counted}"
    assert multitool.stamp(wanted=False) == []


# ---------------------------------------------------------------------------------------------- tplist
# .


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({"lib": "/bin/app"}, ("-l", "usdt:/bin/app:*")),
        ({"lib": "c", "filter": "set*"}, ("-l", "usdt:libc:set*")),
        ({"lib": "pthread", "verbose": True}, ("-l", "-v", "usdt:libpthread:*")),
        ({"pid": "12"}, ("-l", "-p", "12", "usdt:*:*")),
        ({"filter": "block:*"}, ("-l", "tracepoint:block:*")),
        ({"filter": "sched_switch"}, ("-l", "tracepoint:*:sched_switch")),
        ({}, ("-l", "tracepoint:*")),
    ],
)
def test_arguments(options: dict[str, Value], arguments: tuple[str, ...]) -> None:
    kernel = RecordedKernel(files={"libc": ["/lib/c"], "libpthread": ["/lib/p"]})
    made = translate("tplist", kernel, **options)
    assert (made.text, made.arguments) == ("", arguments)


def test_mistakes() -> None:
    with pytest.raises(TraceError, match="cannot be used together"):
        translate("tplist", lib="c", pid="1")
    with pytest.raises(TraceError, match="one process"):
        translate("tplist", pid="1,2")


# ---------------------------------------------------------------------------------------------- table


def test_the_command_line_knows_the_names_without_the_table() -> None:
    assert tuple(TOOLS) == tools.TRANSLATED


def test_each_tool_has_examples_and_help() -> None:
    for name, tool in TOOLS.items():
        assert tool.summary
        assert all(line.startswith(f"pytrace {name}") for line in tool.examples.split("\n"))
        assert all(option.help for option in tool.options)
        names = [text for option in tool.options for text in option.names]
        assert len(names) == len(set(names))


EXAMPLES = [(name, re.split(r" {2,}", line)[0]) for name, tool in TOOLS.items() for line in tool.examples.split("\n")]


@each_row(("name", "command"), EXAMPLES)
def test_examples_are_command_lines(name: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_kernel, "LiveKernel", RecordedKernel)
    monkeypatch.setattr(script_options, "check", lambda words, other_network: None)
    line = read(shlex.split(command)[1:], request.find)
    request.complete(line)
    if name == "tplist":
        assert line.flag("list")
        return
    assert line.script is not None
    diagnostics = Diagnostics()
    format_source(line.script[0], diagnostics)
    assert not diagnostics.items


def test_each_tool_has_a_group_and_one_sentence() -> None:
    assert len(TOOLS) == 8
    assert all(tool.group in (LANGUAGES, MULTI_PURPOSE) for tool in TOOLS.values())
    texts = [tool.summary for tool in TOOLS.values()]
    assert all(text and text == text.strip() and not text.endswith(".") for text in texts)
