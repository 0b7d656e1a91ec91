"""``tplist``: USDT probes of a file or process, and tracepoints."""

from __future__ import annotations

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.script_options import ScriptOption
from pytrace.multitools.argdist import ARGDIST
from pytrace.multitools.functions import FUNCCOUNT, FUNCLATENCY, FUNCSLOWER, FUNCTIME, STACKCOUNT
from pytrace.multitools.multitool import LANGUAGES, MultiTool, Options, Translation
from pytrace.multitools.targets import quoted
from pytrace.multitools.trace import TRACE


def _tplist(options: Options, kernel: KernelInfo) -> Translation:
    """The words for ``-l``: there is no script."""
    library, pids = options.text("lib"), options.pids()
    name = options.text("filter")
    if library and pids:
        raise TraceError("-l and -p cannot be used together", hints=("-l names a file, -p a process",))
    if len(pids) > 1:
        raise TraceError("tplist takes one process")
    words = ["-l", *(["-v"] if options.flag("verbose") else [])]
    if library or pids:
        target = quoted(_file(library, kernel), path=True) if library else "*"
        pattern = name or "*"
        words += [*(["-p", str(pids[0])] if pids else []), f"usdt:{target}:{pattern}"]
    else:
        words.append(f"tracepoint:{name or '*'}" if ":" in name or not name else f"tracepoint:*:{name}")
    return Translation("", tuple(words))


def _file(library: str, kernel: KernelInfo) -> str:
    if "/" in library:
        return library
    name = "libc" if library == "c" else library
    return name if kernel.binaries(name, None) or not kernel.binaries(f"lib{name}", None) else f"lib{name}"


_TPLIST = MultiTool(
    "tplist",
    LANGUAGES,
    "USDT probes of a file or process, and tracepoints",
    (
        ScriptOption(("p", "pid"), "", "USDT probes of what process PID has mapped", "PID", repeat=True,
                     type="pid", listed=True),
        ScriptOption(("l", "lib"), "", "USDT probes of a library, or of a program by its path", "FILE"),
        ScriptOption(("v", "verbose"), False, "also the arguments"),
        ScriptOption(("filter",), "", "only probes of this name (* matches anything); of tracepoints CATEGORY:EVENT",
                     "FILTER", operand=True),
    ),
    """\
pytrace tplist -l /usr/bin/python3        USDT probes of a program
pytrace tplist -l c                       of libc
pytrace tplist -p 185 -v                  of everything that a process has mapped, with arguments
pytrace tplist -v 'block:*'               tracepoints of the block layer with their fields""",
    _tplist,
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------- table

# The multi-purpose tools: tools that are translated from their command line into a script (`pytrace NAME`).


TOOLS: dict[str, MultiTool] = {
    tool.name: tool for tool in (FUNCCOUNT, FUNCLATENCY, FUNCTIME, FUNCSLOWER, STACKCOUNT, TRACE, ARGDIST, _TPLIST)
}
"""The tools by name; ``pytrace.cli.tools.TRANSLATED`` has the same names."""
