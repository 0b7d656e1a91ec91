"""``functime``: calls and time of every function of a pattern."""

from __future__ import annotations

from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options.script_options import ScriptOption
from pytrace.multitools import common_options as common
from pytrace.multitools import patterns
from pytrace.multitools.script_parts import (
    CALLEES,
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
    ScriptOption(("self",), False, "time without that of other traced functions that were called"),
    common.REGEXP, common.PATTERN,
)  # fmt: skip

EXAMPLES = """\
functime -p 185 '/usr/sbin/nginx:ngx_http_*'         functions of a program by total time, until Ctrl-C
functime --self -d 10 -c ./work '/home/me/work:*'    time without callees
functime -i 5 -T 'vfs_*'                             kernel functions, every five seconds"""

_SLOTS = """\
let @slots = hash(65536);

fn slot($ns: int64): int64 {
    let $rest: int64 = $ns;
    let $shift: int64 = 0;
    if ($rest >= 34359738368) { $rest = $rest >> 32; $shift += 32; }
    if ($rest >= 524288) { $rest = $rest >> 16; $shift += 16; }
    if ($rest >= 2048) { $rest = $rest >> 8; $shift += 8; }
    if ($rest >= 128) { $rest = $rest >> 4; $shift += 4; }
    if ($rest >= 32) { $rest = $rest >> 2; $shift += 2; }
    if ($rest >= 16) { $rest = $rest >> 1; $shift += 1; }
    return $shift * 8 + $rest;
}

fn middle($slot: int64): int64 {
    if ($slot < 16) { return $slot; }
    $shift = ($slot - 8) / 8;
    return (($slot - 8 * $shift) << $shift) + ((int64)1 << $shift) / 2;
}"""
"""Histograms with eight slots for each power of two, so that P99 is right within about 6 %."""


def translate(options: Options, kernel: KernelInfo) -> Translation:
    """The script that measures every function."""
    pattern = patterns.functions(options, kernel)
    own = options.flag("self")
    name = "$function" if pattern.naming.key == "func" else "$frame.name"
    time = "$own" if own else "$time"
    stores = [
        f"$name = {name};",
        "@calls[$name] = count();",
        f"@total[$name] = sum({time});",
        f"@longest[$name] = max({time});",
        f"@slots[$name, slot({time})]++;",
    ]
    text = script(
        HEAD,
        f"{FRAMES}\n{CALLEES}" if own else FRAMES,
        _SLOTS,
        probe([pattern.attachment.entry], enter(pattern.naming, callees=own)),
        probe([pattern.attachment.leave], leave(stores, callees=own), ["@depth[tid]"]),
        forget(),
        _show(pattern.naming, options),
    )
    return Translation(text, common.run_arguments(options, pattern.filter))


def _show(naming: Naming, options: Options) -> str:
    """The table. P99 is searched from the longest call downwards: a hundredth of the calls is above it."""
    interval, duration = common.interval(options), common.duration(options)
    search = [
        "$seen += @slots[$name, $top - $i];",
        "if ($seen * 100 > $calls) { $p99 = middle($top - $i); break; }",
    ]
    row = (
        f'row((func={naming.shown("$name")}, count=$calls, "TOTAL(ms)"=fixed($total, 1000000, 3), '
        '"AVG(us)"=fixed($total / $calls, 1000, 3), "P99(us)"=fixed($p99, 1000, 3), '
        '"MAX(us)"=fixed($longest, 1000, 3)), "-TOTAL(ms)");'
    )
    shown = ["@shown_calls[$name] = $kv.1;", "@shown_total[$name] = (int64)@total[$name];"] if interval else []
    lines = [
        "$name = $kv.0;",
        f"$calls = {'$kv.1 - @shown_calls[$name]' if interval else '$kv.1'};",
        f"$total = (int64)@total[$name]{' - @shown_total[$name]' if interval else ''};",
        *shown,
        "if ($calls == 0) { continue; }",
        "$longest = (int64)@longest[$name];",
        "$top = slot($longest);",
        "let $p99: int64 = $longest;",
        "let $seen: int64 = 0;",
        block("for ($i : 0..$top + 1)", search),
        "if ($p99 > $longest) { $p99 = $longest; }",
        row,
    ]
    clears = ["clear(@slots);", "clear(@longest);"] if interval else []
    stamps = stamp(wanted=options.flag("timestamp"))
    return outputs(interval, duration, [*stamps, block("for ($kv : @calls)", lines), "print_rows();", *clears])
