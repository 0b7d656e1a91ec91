"""``stackcount``: stacks that lead to a function or event, with counts."""

from __future__ import annotations

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options.script_options import ScriptOption
from pytrace.multitools import common_options as common
from pytrace.multitools import patterns
from pytrace.multitools.script_parts import HEAD, block, outputs, probe, script
from pytrace.multitools.specs import trace_targets
from pytrace.multitools.specs.trace_targets import TraceTarget
from pytrace.multitools.translation import Options, Translation

OPTIONS: tuple[ScriptOption, ...] = (
    common.PID, common.CPU, common.INTERVAL,
    ScriptOption(("D", "duration"), 0, "stop after SECONDS", "SECONDS", type="interval"),
    common.TIMESTAMP, common.REGEXP,
    ScriptOption(("s", "offset"), False, "accepted; offsets are always shown"),
    ScriptOption(("P", "perpid"), False, "by process: the process id and the command are part of the key"),
    ScriptOption(("K", "kernel-stacks-only"), False, "only the kernel's part of stacks"),
    ScriptOption(("U", "user-stacks-only"), False, "only the user part of stacks"),
    ScriptOption(("d", "delimited"), False, "a line -- between the kernel's and the user part"),
    ScriptOption(("folded",), False, "one line for each stack, for flame graphs"),
    common.PATTERN,
)  # fmt: skip

EXAMPLES = """\
stackcount submit_bio                    kernel and user stacks that lead to block I/O, until Ctrl-C
stackcount -p 185 c:malloc               user stacks of one process
stackcount -P -K 't:sched:sched_switch'  kernel stacks by process
stackcount --folded -D 10 c:malloc       for flame graphs, ten seconds"""


def translate(options: Options, kernel: KernelInfo) -> Translation:
    """The script that counts stacks."""
    pattern = patterns.parse(options, kernel)
    interval = common.interval(options)
    folded = options.flag("folded")
    if folded and interval:
        hints = ("leave -i out, or use --save-every, which saves what later becomes flame graphs",)
        raise TraceError("--folded writes the stacks of the whole run, -i wants parts of it", hints=hints)
    key = ", ".join([*_process(options, folded=folded), *_stacks(options, pattern.target, folded=folded)])
    count = probe([pattern.point], [f"@stacks[{key}] = count();"], [common.cpu_condition(options)])
    stamps = ['time("%H:%M:%S\\n");'] if options.flag("timestamp") else []
    show = outputs(interval, common.duration(options), [*stamps, "print_clear(@stacks);"]) if interval else ""
    if stamps and not interval:
        show = block("end", stamps)
    arguments = common.run_arguments(options, pattern.filter) + (("--format", "folded") if folded else ())
    notes = ("-s has no effect here: offsets are always shown",) if options.flag("offset") else ()
    text = script(HEAD, count, show) if interval else script(count, show)
    return Translation(text, arguments, notes)


def _process(options: Options, *, folded: bool) -> list[str]:
    if not options.flag("perpid"):
        return []
    return ["comm", "pid"] if folded else ["pid", "comm"]


def _stacks(options: Options, target: TraceTarget, *, folded: bool) -> list[str]:
    only_kernel, only_user = options.flag("kernel-stacks-only"), options.flag("user-stacks-only")
    if only_kernel and only_user:
        raise TraceError("-K and -U cannot be used together", hints=("without both, both parts are shown",))
    if only_kernel:
        return ["kstack"]
    if only_user or target.family in (trace_targets.USER, trace_targets.USDT):
        return ["ustack"]
    delimiter = ['"--"'] if options.flag("delimited") and not folded else []
    return ["kstack", *delimiter, "ustack"]
