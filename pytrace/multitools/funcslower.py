"""``funcslower``: calls of functions that take longer than a limit, with result and arguments."""

from __future__ import annotations

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options.script_options import ScriptOption
from pytrace.multitools import common_options as common
from pytrace.multitools.script_parts import FRAMES, HEAD, enter, forget, leave, probe, script
from pytrace.multitools.specs import trace_targets
from pytrace.multitools.specs.problems import SpecText
from pytrace.multitools.specs.trace_targets import TraceTarget
from pytrace.multitools.translation import Options, Translation

_MOST_ARGUMENTS = 6

OPTIONS: tuple[ScriptOption, ...] = (
    common.PID,
    ScriptOption(("m", "min-ms"), 0, "only calls of at least MS milliseconds (1 without -m and -u)", "MS",
                 type="0.."),
    ScriptOption(("u", "min-us"), 0, "only calls of at least US microseconds; latencies are in microseconds", "US",
                 type="0.."),
    ScriptOption(("a", "arguments"), 0, "show the first N arguments (at most 6)", "N", type=f"0..{_MOST_ARGUMENTS}"),
    ScriptOption(("T", "time"), False, "the time of day"),
    ScriptOption(("t", "timestamp"), False, "seconds since the start"),
    ScriptOption(("folded",), False, "stacks of slow calls with their microseconds, for flame graphs"),
    ScriptOption(("U", "user-stack"), False, "the user stack after each call"),
    ScriptOption(("K", "kernel-stack"), False, "the kernel stack after each call"),
    ScriptOption(("d", "duration"), 0, "stop after SECONDS", "SECONDS", type="interval"),
    ScriptOption(("function",), "", "functions: vfs_write, c:open, /path/program:FUNCTION", "FUNCTION",
                 operand=True, required=True, repeat=True),
)  # fmt: skip

EXAMPLES = """\
funcslower vfs_write                 kernel function, calls of a millisecond and more
funcslower -m 10 -a 2 c:open         open() of libc from 10 ms, with two arguments
funcslower -u 10 c:malloc c:realloc  two functions, from 10 microseconds
funcslower -UK -p 185 c:fsync        with stacks, one process"""



def translate(options: Options, kernel: KernelInfo) -> Translation:
    """The script that shows slow calls."""
    arguments = options.number("arguments")
    probes: list[str] = []
    pid = common.only_pid(options)
    unresolved = [trace_targets.parse(SpecText.of(text)) for text in options.many("function")]
    parsed = [trace_targets.resolve(target, kernel, pid) for target in unresolved]
    for target in parsed:
        if target.family != parsed[0].family:
            hints = ("run funcslower once for each of them",)
            raise target.spec.error("functions of the kernel and of programs do not go together", hints=hints)
        probes += _probes(target, arguments, options, kernel)
    words = common.run_arguments(options) + (("--format", "folded") if options.flag("folded") else ())
    head = "" if options.flag("folded") else HEAD
    if not head:
        probes.append(probe(["end"], ["clear(@frame);\nclear(@depth);"]))
    return Translation(script(head, FRAMES, *probes, forget()), words)


def _probes(target: TraceTarget, arguments: int, options: Options, kernel: KernelInfo) -> list[str]:
    spec = target.spec
    attachment = trace_targets.attach(target, kernel, common.only_pid(options))
    if not attachment.leave:
        raise spec.error("a function is expected: events have no duration", hints=(trace_targets.SHAPES,))
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
    stacks = [name for flag, name in (("kernel-stack", "kstack"), ("user-stack", "ustack")) if options.flag(flag)]
    if options.flag("folded"):
        stacks = stacks or ["kstack" if target.family == trace_targets.KERNEL else "ustack"]
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
