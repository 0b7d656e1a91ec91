"""The multi-purpose tools: tools that are translated from their command line into a script (``pytrace NAME``)."""

from __future__ import annotations

from types import ModuleType

from pytrace.multitools import argdist, funccount, funclatency, funcslower, functime, stackcount, tplist, trace
from pytrace.multitools.names import NAMES
from pytrace.multitools.translation import MultiTool, TranslatedTool

_MODULES: dict[str, ModuleType] = {
    "funccount": funccount, "funclatency": funclatency, "functime": functime, "funcslower": funcslower,
    "stackcount": stackcount, "trace": trace, "argdist": argdist, "tplist": tplist,
}  # fmt: skip


def _tool(name: str) -> MultiTool:
    group, summary = NAMES[name]
    module = _MODULES[name]
    examples = "\n".join(f"pytrace {line}" for line in module.EXAMPLES.split("\n"))
    return TranslatedTool(name, summary, group, module.OPTIONS, examples, module.translate)


TOOLS: dict[str, MultiTool] = {name: _tool(name) for name in NAMES}
"""The tools by name; ``pytrace.cli.scripts.tools.TRANSLATED`` has the same names."""
