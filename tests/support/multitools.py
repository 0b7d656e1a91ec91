"""Translations of command lines of the multi-purpose tools, by the options' names."""

from __future__ import annotations

from pytrace.core import script_options
from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.script_options import Value
from pytrace.core.source import Source
from pytrace.frontend.syntax.formatter import format_source
from pytrace.multitools.multitool import MultiTool, Translation
from pytrace.multitools.table import TOOLS
from tests.support.facts import RecordedKernel


def translate(name: str, kernel: RecordedKernel | None = None, /, **values: Value) -> Translation:
    """What a tool makes of option values; ``min_ms`` is ``min-ms``. The kernel is a recorded one."""
    tool = TOOLS[name]
    given = {key.replace("_", "-"): _as_given(tool, key.replace("_", "-"), value) for key, value in values.items()}
    unknown = set(given) - {option.name for option in tool.options}
    known = {key.replace("-", "_"): value for key, value in given.items() if key in unknown}
    named = {key: value for key, value in given.items() if key not in unknown}
    assert set(known) <= {option.name for option in tool.options}, f"{name} has no option {known}"
    return tool.translate({**named, **known}, kernel or RecordedKernel())


def _as_given(tool: MultiTool, name: str, value: Value) -> Value:
    """Seconds as the command line passes them on: nanoseconds."""
    types = {option.name: option.type for option in tool.options}
    return script_options.default_of_type(types.get(name, ""), value) if isinstance(value, int) else value


def script(name: str, kernel: RecordedKernel | None = None, /, **values: Value) -> str:
    """The script of a command line, which must have no syntax errors."""
    text = translate(name, kernel, **values).text
    diagnostics = Diagnostics()
    assert format_source(Source(name, text), diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
    return text
