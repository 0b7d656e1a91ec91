from __future__ import annotations

from pytrace.core.options.script_options import ScriptOption, Value
from pytrace.multitools.counts import FUNCCOUNT
from pytrace.multitools.multitool import MultiTool, Options, Translation
from tests.support.facts import RecordedKernel

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
