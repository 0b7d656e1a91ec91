"""``argdist``: counts and histograms of arguments, results and latencies."""

from __future__ import annotations

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options.script_options import ScriptOption
from pytrace.multitools import common_options as common
from pytrace.multitools.script_parts import HEAD, fitting, literal, probe, script, timer, unless
from pytrace.multitools.specs import distribution
from pytrace.multitools.specs.distribution import Distribution
from pytrace.multitools.specs.problems import SpecText
from pytrace.multitools.specs.scope import Scope
from pytrace.multitools.translation import Options, Translation

OPTIONS: tuple[ScriptOption, ...] = (
    common.PID,
    ScriptOption(("t", "tid"), 0, "only thread TID", "TID", type="pid"),
    ScriptOption(("z", "string-size"), 80, "bytes of texts", "SIZE", type="1.."),
    ScriptOption(("i", "interval"), 1, "print every SECONDS", "SECONDS", type="interval"),
    common.DURATION,
    ScriptOption(("n", "number"), 0, "how many outputs", "COUNT", type="0.."),
    ScriptOption(("cumulative",), False, "do not clear between outputs"),
    ScriptOption(("T", "top"), 0, "only the TOP largest counts", "TOP", type="0.."),
    ScriptOption(("H", "histogram"), "", "a histogram of the expression", "SPEC", repeat=True),
    ScriptOption(("C", "count"), "", "counts by the values of expressions", "SPEC", repeat=True),
    ScriptOption(("I", "include"), "", "C header with types", "HEADER", repeat=True),
)  # fmt: skip

EXAMPLES = """\
argdist -H 'p::tcp_sendmsg(struct sock *sk, struct msghdr *msg, size_t size):u32:size'   sizes of TCP sends
argdist -p 185 -C 'p:c:fopen(char *path):char*:path#opened files'                      file names, with a title
argdist -C 'r:c:malloc(size_t size):size_t:$entry(size):$retval == 0'                  sizes that failed
argdist -H 'r::vfs_read():u64:$latency/1000#us'                                        latencies in microseconds
argdist -i 5 -n 2 -C 't:syscalls:sys_enter_openat():int:args->flags'                   two outputs, five seconds each
argdist -C 'u:/usr/bin/python3:import__find__load__start():char*:arg1' -T 10           ten Python modules"""


def translate(options: Options, kernel: KernelInfo) -> Translation:
    """The script that counts values."""
    specs = [(True, text) for text in options.many("histogram")] + [(False, text) for text in options.many("count")]
    if not specs:
        hints = ("argdist -C 'p:c:malloc(size_t size):size_t:size'", "argdist -h has more examples")
        raise TraceError("argdist needs a specification: -H for a histogram, -C for counts", hints=hints)
    size, pid = options.number("string-size"), common.only_pid(options)
    probes: list[str] = []
    shows: list[str] = []
    for number, (histogram, text) in enumerate(specs, 1):
        parsed = distribution.parse(SpecText.of(text), kernel, pid, size=size, histogram=histogram)
        names = _Names.of(number if len(specs) > 1 else 0)
        probes += _probes(parsed, names, options, histogram=histogram)
        shows += _show(parsed, names, options, histogram=histogram)
    words = [*common.run_arguments(options)]
    for header in options.many("include"):
        words += ["--include", header]
    text = script(HEAD, *probes, _interval(shows, options))
    return Translation(text, tuple(words))


class _Names:
    """Map names of one specification, numbered if there are several specifications."""

    def __init__(self, suffix: str) -> None:
        self.values, self.depth, self.start = f"@values{suffix}", f"@depth{suffix}", f"@start{suffix}"
        self.suffix = suffix

    @classmethod
    def of(cls, number: int) -> _Names:
        return cls(str(number) if number else "")

    def entry(self, name: str) -> str:
        """The map for an argument that the entry probe stores."""
        return f"@entry_{name}{self.suffix}"


def _probes(parsed: Distribution, names: _Names, options: Options, *, histogram: bool) -> list[str]:
    tid = options.number("tid")
    only = [f"tid == {tid}"] if tid else []
    value = ", ".join(parsed.values)
    if histogram:
        store = f"{names.values} = hist({value});"
    else:
        store = f"{names.values}[{value}] = count();" if value else f"{names.values} = count();"
    lines = parsed.scope.variables(parsed.predicate, *parsed.values)
    if parsed.predicate:
        lines.append(unless(parsed.predicate))
    lines.append(store)
    if not (parsed.entries or parsed.latency):
        return [probe([parsed.probe.point], lines, only)]
    return _paired(parsed, names, lines, only)


def _paired(parsed: Distribution, names: _Names, lines: list[str], only: list[str]) -> list[str]:
    """Entry and return probes: the entry's values are stored by thread and depth, to support recursion."""
    attachment, level = parsed.probe.attachment, "[tid, $level]"
    inputs = parsed.probe.parameters
    entry = [f"$level = {names.depth}[tid];", f"{names.depth}[tid] = $level + 1;"]
    used = [value for _, value in parsed.entries]
    entry += Scope(attachment.arguments, parameters=inputs).variables(*used)
    entry += [f"{names.entry(name)}{level} = {value};" for name, value in parsed.entries]
    if parsed.latency:
        entry.append(f"{names.start}{level} = nsecs;")
    leave = ["$now = nsecs;"] if parsed.latency else []
    leave.append(f"$level = {names.depth}[tid] - 1;")
    leave.append(f"if ($level > 0) {{ {names.depth}[tid] = $level; }} else {{ delete({names.depth}, tid); }}")
    if parsed.latency:
        leave += [f"$latency = $now - {names.start}{level};", f"delete({names.start}, (tid, $level));"]
    for name, _ in parsed.entries:
        leave += [f"$entry_{name} = {names.entry(name)}{level};", f"delete({names.entry(name)}, (tid, $level));"]
    gone = f"tracepoint:sched:sched_process_exit /has_key({names.depth}, tid)/ {{ delete({names.depth}, tid); }}"
    return [
        probe([attachment.entry], entry, only),
        probe([attachment.leave], [*leave, *lines], [*only, f"{names.depth}[tid]"]),
        gone,
    ]


# ---------------------------------------------------------------------------------------------- output


def _show(parsed: Distribution, names: _Names, options: Options, *, histogram: bool) -> list[str]:
    top = options.number("top")
    limit = f", {top}" if top and not histogram and parsed.values else ""
    verb = "print" if options.flag("cumulative") else "print_clear"
    title = literal(parsed.label + "\n").replace("%", "%%")
    return [f"printf({title});", f"{verb}({names.values}{limit});"]


def _interval(shows: list[str], options: Options) -> str:
    interval = common.interval(options)
    each, most = timer(interval), options.number("number") or fitting(interval, common.duration(options))
    lines = ['time("[%H:%M:%S]\\n");', *shows]
    if not most:
        return probe([each, "end"], lines)
    counted = [*lines, "@outputs++;", f"if (@outputs >= {most}) {{ exit(); }}"]
    # If the run ends before all outputs, the values since the last output are shown as well.
    return probe([each], counted) + "\n" + probe(["end"], lines, [f"@outputs < {most}"])
