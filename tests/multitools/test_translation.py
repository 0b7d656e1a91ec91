from __future__ import annotations

from pytrace.core.options.script_options import ScriptOption
from pytrace.multitools.translation import Options, TranslatedTool, Translation
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
    tool = TranslatedTool("x", "", "", OPTIONS, "", lambda options, kernel: Translation(kernel.release))
    assert tool.translate({}, RecordedKernel(release="9.9")).text == "9.9"
    assert tool.translate({}).text.split(".")[0].isdigit()
