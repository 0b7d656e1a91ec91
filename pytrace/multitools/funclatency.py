"""``funclatency``: how long functions of a pattern take, as a histogram."""

from __future__ import annotations

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options.script_options import ScriptOption
from pytrace.multitools import common_options as common
from pytrace.multitools import patterns
from pytrace.multitools.script_parts import (
    FRAMES,
    HEAD,
    Naming,
    block,
    enter,
    forget,
    leave,
    outputs,
    probe,
    script,
    stamp,
)
from pytrace.multitools.translation import Options, Translation

OPTIONS: tuple[ScriptOption, ...] = (
    common.PID, common.INTERVAL, common.DURATION, common.TIMESTAMP,
    ScriptOption(("u", "microseconds"), False, "in microseconds"),
    ScriptOption(("m", "milliseconds"), False, "in milliseconds"),
    ScriptOption(("F", "function"), False, "a histogram for each function"),
    common.REGEXP,
    ScriptOption(("l", "level"), 0, "accepted; nested and recursive calls are told apart at any level", "LEVEL"),
    common.PATTERN,
)  # fmt: skip

EXAMPLES = """\
funclatency vfs_read                 latency of a kernel function in nanoseconds, until Ctrl-C
funclatency -u -p 185 c:read         read() of libc in one process, in microseconds
funclatency -m -i 2 -d 10 -T c:usleep  in milliseconds, every two seconds for ten seconds
funclatency -F 'vfs_r*'              one histogram for each function"""


def translate(options: Options, kernel: KernelInfo) -> Translation:
    """The script that measures."""
    pattern = patterns.functions(options, kernel)
    unit, divisor = _unit(options)
    naming = pattern.naming if options.flag("function") else None
    value = "$time" if divisor == 1 else f"$time / {divisor}"
    text = script(
        HEAD,
        FRAMES,
        probe([pattern.attachment.entry], enter(naming)),
        probe([pattern.attachment.leave], leave(_stores(naming, unit, value)), ["@depth[tid]"]),
        forget(),
        _show(unit, divisor, options),
    )
    notes = ("-l has no effect here: calls are told apart at any level",) if options.number("level") else ()
    arguments = common.run_arguments(options, pattern.filter)
    return Translation(text, arguments, notes)


def _unit(options: Options) -> tuple[str, int]:
    micro, milli = options.flag("microseconds"), options.flag("milliseconds")
    if micro and milli:
        raise TraceError("-u and -m cannot be used together", hints=("one of them is the unit of the histogram",))
    return ("usec", 1_000) if micro else ("msec", 1_000_000) if milli else ("nsec", 1)


def _stores(naming: Naming | None, unit: str, value: str) -> list[str]:
    totals = ["@calls = count();", "@total = sum($time);"]
    if naming is None:
        return [f"@{unit}s = hist({value});", *totals]
    if naming.key == "func":
        return [f"@{unit}s[$function] = hist({value});", *totals]
    return ["$name = $frame.name;", f"@{unit}s[{naming.shown('$name')}] = hist({value});", *totals]


def _show(unit: str, divisor: int, options: Options) -> str:
    """Histogram, then the average and the total of the same calls."""
    line = f'"\\navg = %ld {unit}s, total: %ld {unit}s, count: %ld\\n"'
    unit_of = "" if divisor == 1 else f" / {divisor}"
    stamps, interval = stamp(wanted=options.flag("timestamp")), common.interval(options)
    if interval:
        calls = ["$calls = (int64)@calls - @shown_calls;", "$total = (int64)@total - @shown_total;"]
        calls += ["@shown_calls = (int64)@calls;", "@shown_total = (int64)@total;"]
    else:
        calls = ["$calls = (int64)@calls;", "$total = (int64)@total;"]
    show = block("if ($calls > 0)", [f"printf({line}, $total / $calls{unit_of}, $total{unit_of}, $calls);"])
    return outputs(interval, common.duration(options), [*stamps, *calls, f"print_clear(@{unit}s);", show])
