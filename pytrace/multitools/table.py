"""The multi-purpose tools: tools that are translated from their command line into a script (``pytrace NAME``)."""

from __future__ import annotations

from pytrace.multitools.argdist import ARGDIST
from pytrace.multitools.counts import FUNCCOUNT, STACKCOUNT
from pytrace.multitools.latencies import FUNCLATENCY, FUNCSLOWER, FUNCTIME
from pytrace.multitools.multitool import MultiTool
from pytrace.multitools.tplist import TPLIST
from pytrace.multitools.trace import TRACE

TOOLS: dict[str, MultiTool] = {
    tool.name: tool for tool in (FUNCCOUNT, FUNCLATENCY, FUNCTIME, FUNCSLOWER, STACKCOUNT, TRACE, ARGDIST, TPLIST)
}
"""The tools by name; ``pytrace.cli.tools.TRANSLATED`` has the same names."""
