"""Names of the multi-purpose tools, for the list of tools, which does not import them."""

from __future__ import annotations

MULTI_PURPOSE, LANGUAGES = "multi-purpose", "languages"

NAMES: dict[str, tuple[str, str]] = {
    "funccount": (MULTI_PURPOSE, "calls of functions of a pattern: kernel, programs, tracepoints, USDT"),
    "funclatency": (MULTI_PURPOSE, "latency of functions of a pattern as a histogram"),
    "functime": (MULTI_PURPOSE, "calls, total, average, P99 and maximum time of every function of a pattern"),
    "funcslower": (MULTI_PURPOSE, "calls of functions that take longer than a limit, with arguments"),
    "stackcount": (MULTI_PURPOSE, "stacks that lead to a function or event, with counts"),
    "trace": (MULTI_PURPOSE, "a line for each event, with a filter and a format"),
    "argdist": (MULTI_PURPOSE, "counts and histograms of arguments, results and latencies"),
    "tplist": (LANGUAGES, "USDT probes of a file or process, and tracepoints"),
}
"""Group and one-line summary of each tool."""
