"""``funclatency``, ``functime`` and ``funcslower``: how long functions take."""

from __future__ import annotations

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.script_options import ScriptOption
from pytrace.multitools import multitool as common
from pytrace.multitools import targets
from pytrace.multitools.expressions import SpecText
from pytrace.multitools.multitool import (
    CALLEES,
    FRAMES,
    HEAD,
    MULTI_PURPOSE,
    MultiTool,
    Naming,
    Options,
    Translation,
    block,
    enter,
    forget,
    function_pattern,
    leave,
    outputs,
    probe,
    script,
    stamp,
)
from pytrace.multitools.targets import TraceTarget

# ------------------------------------------------------------------------------------- funclatency


def _funclatency(options: Options, kernel: KernelInfo) -> Translation:
    """The script that measures."""
    pattern = function_pattern(options, kernel)
    unit, divisor = _unit(options)
    naming = pattern.naming if options.flag("function") else None
    value = "$time" if divisor == 1 else f"$time / {divisor}"
    text = script(
        HEAD,
        FRAMES,
        probe([pattern.attachment.entry], enter(naming)),
        probe([pattern.attachment.leave], leave(_stores(naming, unit, value)), ["@depth[tid]"]),
        forget(),
        _show_histogram(unit, divisor, options),
    )
    notes = ("-l has no effect here: calls are told apart at any level",) if options.number("level") else ()
    arguments = options.run_arguments(pattern.filter)
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


def _show_histogram(unit: str, divisor: int, options: Options) -> str:
    """Histogram, then the average and the total of the same calls."""
    line = f'"\\navg = %ld {unit}s, total: %ld {unit}s, count: %ld\\n"'
    unit_of = "" if divisor == 1 else f" / {divisor}"
    stamps, interval = stamp(wanted=options.flag("timestamp")), options.number("interval")
    if interval:
        calls = ["$calls = (int64)@calls - @shown_calls;", "$total = (int64)@total - @shown_total;"]
        calls += ["@shown_calls = (int64)@calls;", "@shown_total = (int64)@total;"]
    else:
        calls = ["$calls = (int64)@calls;", "$total = (int64)@total;"]
    show = block("if ($calls > 0)", [f"printf({line}, $total / $calls{unit_of}, $total{unit_of}, $calls);"])
    return outputs(interval, options.number("duration"), [*stamps, *calls, f"print_clear(@{unit}s);", show])


FUNCLATENCY = MultiTool(
    "funclatency",
    MULTI_PURPOSE,
    "latency of functions of a pattern as a histogram",
    (
        common.PID, common.INTERVAL, common.DURATION, common.TIMESTAMP,
        ScriptOption(("u", "microseconds"), False, "in microseconds"),
        ScriptOption(("m", "milliseconds"), False, "in milliseconds"),
        ScriptOption(("F", "function"), False, "a histogram for each function"),
        common.REGEXP,
        ScriptOption(("l", "level"), 0, "accepted; nested and recursive calls are told apart at any level", "LEVEL"),
        common.PATTERN,
    ),
    """\
pytrace funclatency vfs_read                 latency of a kernel function in nanoseconds, until Ctrl-C
pytrace funclatency -u -p 185 c:read         read() of libc in one process, in microseconds
pytrace funclatency -m -i 2 -d 10 -T c:usleep  in milliseconds, every two seconds for ten seconds
pytrace funclatency -F 'vfs_r*'              one histogram for each function""",
    _funclatency,
)  # fmt: skip


# ---------------------------------------------------------------------------------------- functime

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


def _functime(options: Options, kernel: KernelInfo) -> Translation:
    """The script that measures every function."""
    pattern = function_pattern(options, kernel)
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
        _show_table(pattern.naming, options),
    )
    return Translation(text, options.run_arguments(pattern.filter))


def _show_table(naming: Naming, options: Options) -> str:
    """The table. P99 is searched from the longest call downwards: a hundredth of the calls is above it."""
    interval, duration = options.number("interval"), options.number("duration")
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


FUNCTIME = MultiTool(
    "functime",
    MULTI_PURPOSE,
    "calls, total, average, P99 and maximum time of every function of a pattern",
    (
        common.PID, common.INTERVAL, common.DURATION, common.TIMESTAMP,
        ScriptOption(("self",), False, "time without that of other traced functions that were called"),
        common.REGEXP, common.PATTERN,
    ),
    """\
pytrace functime -p 185 '/usr/sbin/nginx:ngx_http_*'         functions of a program by total time, until Ctrl-C
pytrace functime --self -d 10 -c ./work '/home/me/work:*'    time without callees
pytrace functime -i 5 -T 'vfs_*'                             kernel functions, every five seconds""",
    _functime,
)  # fmt: skip


# -------------------------------------------------------------------------------------- funcslower

_MOST_ARGUMENTS = 6


def _funcslower(options: Options, kernel: KernelInfo) -> Translation:
    """The script that shows slow calls."""
    arguments = options.number("arguments")
    probes: list[str] = []
    pid = options.only_pid()
    unresolved = [targets.parse(SpecText.of(text)) for text in options.many("function")]
    parsed = [targets.resolve(target, kernel, pid) for target in unresolved]
    for target in parsed:
        if target.family != parsed[0].family:
            hints = ("run funcslower once for each of them",)
            raise target.spec.error("functions of the kernel and of programs do not go together", hints=hints)
        probes += _probes(target, arguments, options, kernel)
    words = options.run_arguments() + (("--format", "folded") if options.flag("folded") else ())
    head = "" if options.flag("folded") else HEAD
    if not head:
        probes.append(probe(["end"], ["clear(@frame);\nclear(@depth);"]))
    return Translation(script(head, FRAMES, *probes, forget()), words)


def _probes(target: TraceTarget, arguments: int, options: Options, kernel: KernelInfo) -> list[str]:
    spec = target.spec
    attachment = targets.attach(target, kernel, options.only_pid())
    if not attachment.leave:
        raise spec.error("a function is expected: events have no duration", hints=(targets.SHAPES,))
    if target.returns:
        raise spec.error("leave r: out, the whole call is traced", length=1)
    typed = [f"(uint64)args.{name}" for name in attachment.arguments[:arguments]]
    values = [f"arg{number}" for number in range(arguments)] if attachment.untyped else typed
    # The frames of all functions have the same members.
    members = tuple((f"arg{number + 1}", (values + ["(uint64)0"] * arguments)[number]) for number in range(arguments))
    slow = _slow(target, len(values), options, result=attachment.result)
    return [
        probe([attachment.entry], enter(None, more=members)),
        probe([attachment.leave], leave(slow), ["@depth[tid]"]),
    ]


def _limit(options: Options) -> tuple[int, str, int]:
    """Nanoseconds of the limit, title and divisor of the latency."""
    millis, micros = options.number("min-ms"), options.number("min-us")
    if millis and micros:
        raise TraceError("-m and -u cannot be used together", hints=("one of them is the limit and the unit",))
    if micros:
        return micros * 1_000, "LAT(us)", 1_000
    return (millis or 1) * 1_000_000, "LAT(ms)", 1_000_000


def _slow(target: TraceTarget, arguments: int, options: Options, *, result: bool) -> list[str]:
    limit, title, divisor = _limit(options)
    check = f"if ($time < {limit}) {{ return; }}"
    user = ("python", "pystack") if options.flag("python") else ("user-stack", "ustack")
    stacks = [name for flag, name in (("kernel-stack", "kstack"), user) if options.flag(flag)]
    if options.flag("folded"):
        stacks = stacks or ["kstack" if target.family == targets.KERNEL else "ustack"]
        return [check, f"@usecs[{', '.join(['comm', *stacks, 'func'])}] = sum($time / 1000);"]
    texts = ", ".join(f"(void *)$frame.arg{number + 1}" for number in range(arguments))
    value = "retval" if result else "0"
    members = [
        *(['time=strftime("%H:%M:%S", nsecs)'] if options.flag("time") else []),
        *(['"TIME(s)"=fixed(elapsed, 1000000000, 6)'] if options.flag("timestamp") else []),
        "comm=comm", "pid=pid", f'"{title}"=fixed($time, {divisor}, 3)', f"rval=(void *){value}", "func=func",
        f'args=joined(" ", {texts})' if arguments else 'args=""',
    ]  # fmt: skip
    return [check, f"row(({', '.join(members)}));", *(f"print({stack});" for stack in stacks)]


FUNCSLOWER = MultiTool(
    "funcslower",
    MULTI_PURPOSE,
    "calls of functions that take longer than a limit, with arguments",
    (
        common.PID,
        ScriptOption(("m", "min-ms"), 0, "only calls of at least MS milliseconds (1 without -m and -u)", "MS",
                     type="0.."),
        ScriptOption(("u", "min-us"), 0, "only calls of at least US microseconds; latencies are in microseconds", "US",
                     type="0.."),
        ScriptOption(("a", "arguments"), 0, "show the first N arguments (at most 6)", "N",
                     type=f"0..{_MOST_ARGUMENTS}"),
        ScriptOption(("T", "time"), False, "the time of day"),
        ScriptOption(("t", "timestamp"), False, "seconds since the start"),
        ScriptOption(("folded",), False, "stacks of slow calls with their microseconds, for flame graphs"),
        ScriptOption(("U", "user-stack"), False, "the user stack after each call"),
        ScriptOption(("python",), False, "Python's functions after each call (pystack), in place of -U"),
        ScriptOption(("K", "kernel-stack"), False, "the kernel stack after each call"),
        ScriptOption(("d", "duration"), 0, "stop after SECONDS", "SECONDS", type="interval"),
        ScriptOption(("function",), "", "functions: vfs_write, c:open, /path/program:FUNCTION", "FUNCTION",
                     operand=True, required=True, repeat=True),
    ),
    """\
pytrace funcslower vfs_write                 kernel function, calls of a millisecond and more
pytrace funcslower -m 10 -a 2 c:open         open() of libc from 10 ms, with two arguments
pytrace funcslower -u 10 c:malloc c:realloc  two functions, from 10 microseconds
pytrace funcslower -UK -p 185 c:fsync        with stacks, one process""",
    _funcslower,
)  # fmt: skip
