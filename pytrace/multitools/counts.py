"""``funccount`` and ``stackcount``: calls of functions and events of a pattern, and the stacks that lead to them."""

from __future__ import annotations

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.script_options import ScriptOption
from pytrace.multitools import multitool as common
from pytrace.multitools import targets
from pytrace.multitools.multitool import (
    HEAD,
    MULTI_PURPOSE,
    MultiTool,
    Naming,
    Options,
    Translation,
    block,
    config,
    counted_pattern,
    outputs,
    probe,
    script,
    stamp,
)
from pytrace.multitools.targets import TraceTarget

# --------------------------------------------------------------------------------------- funccount


def _funccount(options: Options, kernel: KernelInfo) -> Translation:
    """The script that counts."""
    pattern = counted_pattern(options, kernel)
    only = options.cpu_condition()
    count = probe([pattern.point], [f"@calls[{pattern.naming.key}] = count();"], [only])
    text = script(HEAD, count, _calls_table(pattern.naming, options))
    words = options.run_arguments(pattern.filter)
    return Translation(text, words)


def _calls_table(naming: Naming, options: Options) -> str:
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
    return outputs(interval, duration, [*stamp(wanted=options.flag("timestamp")), loop, "print_rows();"])


FUNCCOUNT = MultiTool(
    "funccount",
    MULTI_PURPOSE,
    "calls of functions of a pattern: kernel, programs, tracepoints, USDT",
    (common.PID, common.INTERVAL, common.DURATION, common.TIMESTAMP, common.REGEXP, common.CPU, common.PATTERN),
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
    pattern = counted_pattern(options, kernel)
    interval = options.number("interval")
    folded = options.flag("folded")
    if folded and interval:
        hints = ("leave -i out, or use --save-every, which saves what later becomes flame graphs",)
        raise TraceError("--folded writes the stacks of the whole run, -i wants parts of it", hints=hints)
    process, stacks = _process(options), _stacks(options, pattern.target, folded=folded)
    key = ", ".join([*process, *stacks] if folded else [*stacks, *process])
    count = probe([pattern.point], [f"@stacks[{key}] = count();"], [options.cpu_condition()])
    stamps = stamp(wanted=options.flag("timestamp"))
    show = outputs(interval, options.number("duration"), [*stamps, "print_clear(@stacks);"]) if interval else ""
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
        common.PID, common.CPU, common.INTERVAL,
        ScriptOption(("D", "duration"), 0, "stop after SECONDS", "SECONDS", type="interval"),
        common.TIMESTAMP, common.REGEXP,
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
        common.PATTERN,
    ),
    """\
pytrace stackcount submit_bio                    kernel and user stacks that lead to block I/O, until Ctrl-C
pytrace stackcount -p 185 c:malloc               user stacks of one process
pytrace stackcount -P -K 't:sched:sched_switch'  kernel stacks by process
pytrace stackcount --python -U -p 185 t:syscalls:sys_enter_openat  Python's lines that open files
pytrace stackcount --folded -D 10 c:malloc       for flame graphs, ten seconds""",
    _stackcount,
)  # fmt: skip
