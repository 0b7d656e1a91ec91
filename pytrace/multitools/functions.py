"""``funccount`` and ``stackcount``: calls of functions and events of a pattern, and the stacks that lead to them."""

from __future__ import annotations

import re

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.script_options import ScriptOption
from pytrace.multitools import targets
from pytrace.multitools.expressions import SpecText
from pytrace.multitools.multitool import (
    DURATION,
    HEAD,
    MULTI_PURPOSE,
    PID,
    MultiTool,
    Options,
    Translation,
    block,
    config,
    fitting,
    literal,
    probe,
    script,
    timer,
)
from pytrace.multitools.targets import KERNEL, Attachment, TraceTarget

_INTERVAL = ScriptOption(("i", "interval"), 0, "print every SECONDS", "SECONDS", type="interval")
_TIMESTAMP = ScriptOption(("T", "timestamp"), False, "print the time of day with each output")
_REGEXP = ScriptOption(("r", "regexp"), False, "the pattern is a regular expression, from the beginning of names")
_CPU = ScriptOption(("cpu",), -1, "only on this CPU", "CPU", type="cpu")
_PATTERN = ScriptOption(("pattern",), "", "functions or events: vfs_*, c:malloc, t:sched:*, u:LIB:PROBE, kprobe:…",
                        "PATTERN", operand=True, required=True)


# ---------------------------------------------------------------------------------------------- names of functions


class _Naming(msgspec.Struct, frozen=True):
    """How a script stores and shows the name of the probed function or event.

    Attributes:
        key: the expression in a probe: ``func`` in the kernel, else the name of the probe, as an address in user
            space is different in each process.
        prefix: number of characters of it that are not shown.
    """

    key: str
    prefix: int = 0

    @classmethod
    def of(cls, target: TraceTarget, attachment: Attachment) -> _Naming:
        """The naming for a target."""
        if target.family == KERNEL:
            return cls("func")
        return cls("probe", attachment.prefix)

    @property
    def of_call(self) -> _Naming:
        """The naming in a probe of whole calls: the name of the probe has ``call`` in place of ``uprobe``."""
        return _Naming(self.key, self.prefix - len("uprobe") + len("call")) if self.prefix else self

    def shown(self, variable: str) -> str:
        """The displayed name, as an expression; *variable* contains the key."""
        return f"str((int8 *)&{variable} + {self.prefix}, 128)" if self.prefix else variable


# ---------------------------------------------------------------------------------------------- patterns


class _Pattern(msgspec.Struct, frozen=True):
    """A pattern as attach points.

    *naming* distinguishes its functions in the output, *filter* is for ``--probe-filter``.
    """

    target: TraceTarget
    attachment: Attachment
    naming: _Naming
    filter: str = ""

    @property
    def point(self) -> str:
        """The attach point of the requested event."""
        return self.attachment.leave if self.target.returns and self.attachment.leave else self.attachment.entry


def by_regexp(target: TraceTarget) -> tuple[TraceTarget, str]:
    """For a target whose name is a regular expression: a target with name ``*``, and the ``--probe-filter``.

    Names match from their beginning.

    Raises:
        TraceError: it is not a regular expression.
    """
    expression = _without_anchors(target.name)
    try:
        re.compile(expression)
    except re.error as problem:
        raise target.spec.error(f"{target.name!r} is not a regular expression: {problem}") from None
    everything = TraceTarget(target.spec, target.family, target.container, "*", target.returns, target.kind)
    return everything, rf":(?:{expression})[^:]*$|^interval:|:sched_process_exit$"


def _counted_pattern(options: Options, kernel: KernelInfo) -> _Pattern:
    """The pattern of a command line, with ``-r`` as a regular expression.

    Raises:
        TraceError: the pattern is invalid, or this kernel cannot trace its functions or events.
    """
    regexp = options.flag("regexp")
    target = TraceTarget.parse(SpecText.of(options.text("pattern")), regexp=regexp)
    filter_ = ""
    if regexp:
        target, filter_ = by_regexp(target)
    target = target.resolve(kernel, options.only_pid())
    attachment = target.attach(kernel, options.only_pid())
    naming = _Naming.of(target, attachment)
    if not target.wild and not target.mangled and target.family != KERNEL:
        naming = _Naming(literal(target.name))
    return _Pattern(target, attachment, naming, filter_)


def _function_pattern(options: Options, kernel: KernelInfo) -> _Pattern:
    """As :func:`_counted_pattern`, for tools that need functions with an entry and a return.

    Raises:
        TraceError: also if the pattern names events.
    """
    pattern = _counted_pattern(options, kernel)
    if not pattern.attachment.leave:
        what = "tracepoints" if pattern.target.family == targets.TRACEPOINT else "events"
        hints = ("name functions: vfs_read, c:malloc, /path/program:FUNCTION", "funccount counts events")
        raise pattern.target.spec.error(f"functions have a latency, {what} have none", hints=hints)
    if "+" in pattern.target.name and pattern.target.name != "*":
        raise pattern.target.spec.error("a latency is that of whole functions: leave the offset out")
    return pattern


# ---------------------------------------------------------------------------------------------- intervals


def _outputs(interval: int, duration: int, lines: list[str]) -> str:
    """The probes that output *lines*: at each interval if there is one, and the remainder at the end.

    If intervals fill the duration, the last one ends with the run, without another output right after it.
    """
    if not interval:
        return probe(["end"], lines)
    most = fitting(interval, duration)
    if not most:
        return probe([timer(interval), "end"], lines)
    counted = [*lines, "@outputs++;", f"if (@outputs >= {most}) {{ exit(); }}"]
    return probe([timer(interval), "end"], counted, [f"@outputs < {most}"])


def _stamp(*, wanted: bool) -> list[str]:
    """The statement that prints the time of day."""
    return ['time("%H:%M:%S\\n");'] if wanted else []


# --------------------------------------------------------------------------------------- funccount


def _funccount(options: Options, kernel: KernelInfo) -> Translation:
    """The script that counts."""
    pattern = _counted_pattern(options, kernel)
    only = options.cpu_condition()
    count = probe([pattern.point], [f"@calls[{pattern.naming.key}] = count();"], [only])
    text = script(HEAD, count, _calls_table(pattern.naming, options))
    words = options.run_arguments(pattern.filter)
    return Translation(text, words)


def _calls_table(naming: _Naming, options: Options) -> str:
    """The table; with intervals, the difference to the last one, so that no call is lost between two."""
    interval, duration = options.number("interval"), options.number("duration")
    if interval:
        rows = [
            "$new = $kv.1 - @shown[$name];",
            "@shown[$name] = $kv.1;",
            f'if ($new > 0) {{ row((func={naming.shown("$name")}, count=$new), "-count"); }}',
        ]
    else:
        rows = [f'row((func={naming.shown("$name")}, count=$kv.1), "-count");']
    loop = block("for ($kv : @calls)", ["$name = $kv.0;", *rows])
    return _outputs(interval, duration, [*_stamp(wanted=options.flag("timestamp")), loop, "print_rows();"])


FUNCCOUNT = MultiTool(
    "funccount",
    MULTI_PURPOSE,
    "calls of functions of a pattern: kernel, programs, tracepoints, USDT",
    (PID, _INTERVAL, DURATION, _TIMESTAMP, _REGEXP, _CPU, _PATTERN),
    """\
pytrace funccount 'vfs_*'                      calls of kernel functions, until Ctrl-C
pytrace funccount -i 1 -d 10 c:malloc          malloc in all processes, each second for ten seconds
pytrace funccount -p 185 'c:pthread_*'         functions of libc in one process
pytrace funccount -Ti 5 't:syscalls:sys_enter_*'  system calls every five seconds, with the time
pytrace funccount -r 'c:^(malloc|free)$'       functions by a regular expression
pytrace funccount 'u:/usr/bin/python3:*'       USDT probes of Python""",
    _funccount,
)  # fmt: skip


# -------------------------------------------------------------------------------------- stackcount


def _stackcount(options: Options, kernel: KernelInfo) -> Translation:
    """The script that counts stacks."""
    pattern = _counted_pattern(options, kernel)
    interval = options.number("interval")
    folded = options.flag("folded")
    if folded and interval:
        hints = ("leave -i out, or use --save-every, which saves what later becomes flame graphs",)
        raise TraceError("--folded writes the stacks of the whole run, -i wants parts of it", hints=hints)
    process, stacks = _process(options), _stacks(options, pattern.target, folded=folded)
    key = ", ".join([*process, *stacks] if folded else [*stacks, *process])
    count = probe([pattern.point], [f"@stacks[{key}] = count();"], [options.cpu_condition()])
    stamps = _stamp(wanted=options.flag("timestamp"))
    show = _outputs(interval, options.number("duration"), [*stamps, "print_clear(@stacks);"]) if interval else ""
    if stamps and not interval:
        show = block("end", stamps)
    arguments = options.run_arguments(pattern.filter) + (("--format", "folded") if folded else ())
    layout = "" if folded else block("begin", [f'stack_layout("{word}");' for word in _layout(options)])
    text = script(config(own_output=bool(interval), user_stacks="ustack" in key), count, show, layout)
    return Translation(text, arguments)


def _layout(options: Options) -> list[str]:
    """The words of ``stack_layout()``."""
    words = {"offset": "offsets", "offsets": "offsets", "lines": "lines", "all": "all"}
    return ["names", *dict.fromkeys(word for flag, word in words.items() if options.flag(flag))]


def _process(options: Options) -> list[str]:
    if not options.flag("perpid"):
        return []
    return ["comm", "pid"]


def _stacks(options: Options, target: TraceTarget, *, folded: bool) -> list[str]:
    only_kernel, only_user = options.flag("kernel-stacks-only"), options.flag("user-stacks-only")
    if only_kernel and only_user:
        raise TraceError("-K and -U cannot be used together", hints=("without both, both parts are shown",))
    if only_kernel:
        return ["kstack"]
    user = "pystack" if options.flag("python") else "ustack"
    if only_user or target.family in (targets.USER, targets.USDT):
        return [user]
    delimiter = ['"--"'] if options.flag("delimited") and not folded else []
    return ["kstack", *delimiter, user]


STACKCOUNT = MultiTool(
    "stackcount",
    MULTI_PURPOSE,
    "stacks that lead to a function or event, with counts",
    (
        PID, _CPU, _INTERVAL,
        ScriptOption(("D", "duration"), 0, "stop after SECONDS", "SECONDS", type="interval"),
        _TIMESTAMP, _REGEXP,
        ScriptOption(("s", "offset"), False, "offsets in functions, as --offsets"),
        ScriptOption(("all",), False, "all stacks, not the 20 with the largest counts"),
        ScriptOption(("lines",), False, "files and lines of functions, too: stacks that differ by them stand apart"),
        ScriptOption(("offsets",), False, "offsets in functions, too: stacks that differ by them stand apart"),
        ScriptOption(("P", "perpid"), False, "by process: the process id and the command are part of the key"),
        ScriptOption(("K", "kernel-stacks-only"), False, "only the kernel's part of stacks"),
        ScriptOption(("U", "user-stacks-only"), False, "only the user part of stacks"),
        ScriptOption(("d", "delimited"), False, "a line -- between the kernel's and the user part"),
        ScriptOption(("folded",), False, "one line for each stack, for flame graphs"),
        ScriptOption(("python",), False, "Python's functions as the user part (pystack)"),
        _PATTERN,
    ),
    """\
pytrace stackcount submit_bio                    kernel and user stacks that lead to block I/O, until Ctrl-C
pytrace stackcount -p 185 c:malloc               user stacks of one process
pytrace stackcount -P -K 't:sched:sched_switch'  kernel stacks by process
pytrace stackcount --python -U -p 185 t:syscalls:sys_enter_openat  Python's lines that open files
pytrace stackcount --folded -D 10 c:malloc       for flame graphs, ten seconds""",
    _stackcount,
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ latencies

# `funclatency`, `functime` and `funcslower`: how long functions take.


# ------------------------------------------------------------------------------------- funclatency


def _funclatency(options: Options, kernel: KernelInfo) -> Translation:
    """The script that measures."""
    pattern = _function_pattern(options, kernel)
    unit, divisor = _unit(options)
    naming = pattern.naming.of_call if options.flag("function") else None
    value = "$time" if divisor == 1 else f"$time / {divisor}"
    text = script(
        HEAD,
        probe([pattern.attachment.call], _stores(naming, unit, value)),
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


def _stores(naming: _Naming | None, unit: str, value: str) -> list[str]:
    lines = ["$time = duration;", "@calls = count();", "@total = sum($time);"]
    if naming is None:
        return [*lines, f"@{unit}s = hist({value});"]
    return [*lines, f"$name = {naming.key};", f"@{unit}s[{naming.shown('$name')}] = hist({value});"]


def _show_histogram(unit: str, divisor: int, options: Options) -> str:
    """Histogram, then the average and the total of the same calls."""
    line = f'"\\navg = %ld {unit}s, total: %ld {unit}s, count: %ld\\n"'
    unit_of = "" if divisor == 1 else f" / {divisor}"
    stamps, interval = _stamp(wanted=options.flag("timestamp")), options.number("interval")
    if interval:
        calls = ["$calls = (int64)@calls - @shown_calls;", "$total = (int64)@total - @shown_total;"]
        calls += ["@shown_calls = (int64)@calls;", "@shown_total = (int64)@total;"]
    else:
        calls = ["$calls = (int64)@calls;", "$total = (int64)@total;"]
    show = block("if ($calls > 0)", [f"printf({line}, $total / $calls{unit_of}, $total{unit_of}, $calls);"])
    return _outputs(interval, options.number("duration"), [*stamps, *calls, f"print_clear(@{unit}s);", show])


FUNCLATENCY = MultiTool(
    "funclatency",
    MULTI_PURPOSE,
    "latency of functions of a pattern as a histogram",
    (
        PID, _INTERVAL, DURATION, _TIMESTAMP,
        ScriptOption(("u", "microseconds"), False, "in microseconds"),
        ScriptOption(("m", "milliseconds"), False, "in milliseconds"),
        ScriptOption(("F", "function"), False, "a histogram for each function"),
        _REGEXP,
        ScriptOption(("l", "level"), 0, "accepted; nested and recursive calls are told apart at any level", "LEVEL"),
        _PATTERN,
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
    pattern = _function_pattern(options, kernel)
    own = options.flag("self")
    time = "$own" if own else "$time"
    stores = [
        "@calls[$name] = count();",
        f"@total[$name] = sum({time});",
        f"@longest[$name] = max({time});",
        f"@slots[$name, slot({time})]++;",
    ]
    naming = pattern.naming if own else pattern.naming.of_call
    if own:
        measured = _own_time(pattern.attachment, naming, stores)
    else:
        measured = probe([pattern.attachment.call], ["$time = duration;", f"$name = {naming.key};", *stores])
    text = script(HEAD, _SLOTS, measured, _show_table(naming, options))
    return Translation(text, options.run_arguments(pattern.filter))


def _own_time(attachment: Attachment, naming: _Naming, stores: list[str]) -> str:
    """Probes by hand for the time of functions without that of the functions that they called.

    For each thread ``@frame[tid, level]`` has its running functions, outermost first, ``@callees[tid, level]`` the time
    of their callees, ``@depth[tid]`` their number. A ``call:`` probe runs at the return only, and could not forget what
    was called by a function that was left without one. Frames above that of a return belong to such functions.
    """
    of_kernel = naming.key == "func"
    name = "" if of_kernel else f"name={naming.key}, "
    entry = [
        "$level = @depth[tid];",
        "@depth[tid] = $level + 1;",
        "@callees[tid, $level] = 0;",
        f"@frame[tid, $level] = (function=func, {name}start=nsecs);",
    ]
    leave = [
        "$now = nsecs;",
        "$function = func;",
        "$depth = @depth[tid];",
        "let $above: int64 = 0;",
        block(
            "for ($i : 0..$depth)",
            ["if (@frame[tid, $depth - 1 - $i].function == $function) { break; }", "$above = $above + 1;"],
        ),
        "if ($above >= $depth) { return; }",
        "$level = $depth - 1 - $above;",
        "$frame = @frame[tid, $level];",
        "$time = $now - $frame.start;",
        "delete(@frame, (tid, $level));",
        "if ($level > 0) { @depth[tid] = $level; } else { delete(@depth, tid); }",
        "$own = $time - @callees[tid, $level];",
        "delete(@callees, (tid, $level));",
        "if ($level > 0) { @callees[tid, $level - 1] += $time; }",
        f"$name = {'$function' if of_kernel else '$frame.name'};",
    ]
    return script(
        "let @depth = hash(16384);\nlet @frame = hash(16384);\nlet @callees = hash(16384);",
        probe([attachment.entry], entry),
        probe([attachment.leave], [*leave, *stores], ["@depth[tid]"]),
        "tracepoint:sched:sched_process_exit /has_key(@depth, tid)/ { delete(@depth, tid); }",
    )


def _show_table(naming: _Naming, options: Options) -> str:
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
    stamps = _stamp(wanted=options.flag("timestamp"))
    return _outputs(interval, duration, [*stamps, block("for ($kv : @calls)", lines), "print_rows();", *clears])


FUNCTIME = MultiTool(
    "functime",
    MULTI_PURPOSE,
    "calls, total, average, P99 and maximum time of every function of a pattern",
    (
        PID, _INTERVAL, DURATION, _TIMESTAMP,
        ScriptOption(("self",), False, "time without that of other traced functions that were called"),
        _REGEXP, _PATTERN,
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
    unresolved = [TraceTarget.parse(SpecText.of(text)) for text in options.many("function")]
    parsed = [target.resolve(kernel, pid) for target in unresolved]
    for target in parsed:
        if target.family != parsed[0].family:
            hints = ("run funcslower once for each of them",)
            raise target.spec.error("functions of the kernel and of programs do not go together", hints=hints)
        probes.append(_slow_calls(target, arguments, options, kernel))
    words = options.run_arguments() + (("--format", "folded") if options.flag("folded") else ())
    return Translation(script("" if options.flag("folded") else HEAD, *probes), words)


def _slow_calls(target: TraceTarget, arguments: int, options: Options, kernel: KernelInfo) -> str:
    spec = target.spec
    attachment = target.attach(kernel, options.only_pid())
    if not attachment.leave:
        raise spec.error("a function is expected: events have no duration", hints=(targets.SHAPES,))
    if target.returns:
        raise spec.error("leave r: out, the whole call is traced", length=1)
    typed = [f"(uint64)args.{name}" for name in attachment.arguments[:arguments]]
    values = [f"arg{number}" for number in range(arguments)] if attachment.untyped else typed
    return probe([attachment.call], ["$time = duration;", *_slow(target, values, options, result=attachment.result)])


def _limit(options: Options) -> tuple[int, str, int]:
    """Nanoseconds of the limit, title and divisor of the latency."""
    millis, micros = options.number("min-ms"), options.number("min-us")
    if millis and micros:
        raise TraceError("-m and -u cannot be used together", hints=("one of them is the limit and the unit",))
    if micros:
        return micros * 1_000, "LAT(us)", 1_000
    return (millis or 1) * 1_000_000, "LAT(ms)", 1_000_000


def _slow(target: TraceTarget, arguments: list[str], options: Options, *, result: bool) -> list[str]:
    limit, title, divisor = _limit(options)
    check = f"if ($time < {limit}) {{ return; }}"
    user = ("python", "pystack") if options.flag("python") else ("user-stack", "ustack")
    stacks = [name for flag, name in (("kernel-stack", "kstack"), user) if options.flag(flag)]
    if options.flag("folded"):
        stacks = stacks or ["kstack" if target.family == targets.KERNEL else "ustack"]
        return [check, f"@usecs[{', '.join(['comm', *stacks, 'func'])}] = sum($time / 1000);"]
    texts = ", ".join(f"(void *){argument}" for argument in arguments)
    value = "retval" if result else "0"
    members = [
        *(['time=strftime("%H:%M:%S", nsecs)'] if options.flag("time") else []),
        *(['"TIME(s)"=fixed(elapsed, 1000000000, 6)'] if options.flag("timestamp") else []),
        "comm=comm", "pid=pid", f'"{title}"=fixed($time, {divisor}, 3)', f"rval=(void *){value}", "func=func",
        f'args=joined(" ", {texts})' if arguments else 'args=""',
    ]  # fmt: skip
    return [check, f"row(({', '.join(members)}));", *(f"print({stack});" for stack in stacks)]


def _without_anchors(expression: str) -> str:
    """The expression without its ``^``, as the filter matches text in which names are not at the beginning."""
    characters: list[str] = []
    escaped = inside = False
    for character in expression:
        if character == "^" and not escaped and not inside:
            continue
        if not escaped:
            inside = character == "[" or (inside and character != "]")
        escaped = character == "\\" and not escaped
        characters.append(character)
    return "".join(characters)


FUNCSLOWER = MultiTool(
    "funcslower",
    MULTI_PURPOSE,
    "calls of functions that take longer than a limit, with arguments",
    (
        PID,
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
