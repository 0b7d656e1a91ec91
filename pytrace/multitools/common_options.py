"""Options that several multi-purpose tools have, and what they mean for the run."""

from __future__ import annotations

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options import option_types
from pytrace.core.options.script_options import ScriptOption
from pytrace.multitools.translation import Options

PID = ScriptOption(("p", "pid"), "", "only process PID (several: -p again, or separated by commas)", "PID", repeat=True,
                   type="pid", listed=True)
INTERVAL = ScriptOption(("i", "interval"), 0, "print every SECONDS", "SECONDS", type="interval")
DURATION = ScriptOption(("d", "duration"), 0, "stop after SECONDS", "SECONDS", type="interval")
TIMESTAMP = ScriptOption(("T", "timestamp"), False, "print the time of day with each output")
REGEXP = ScriptOption(("r", "regexp"), False, "the pattern is a regular expression, from the beginning of names")
CPU = ScriptOption(("c", "cpu"), "", "only on this CPU; what is no number is a command to run (--cmd)", "CPU")
VERBOSE = ScriptOption(("v", "verbose"), False, "accepted; --show-script prints the script")
PATTERN = ScriptOption(("pattern",), "", "functions or events: vfs_*, c:malloc, t:sched:*, u:LIB:PROBE, kprobe:…",
                       "PATTERN", operand=True, required=True)


def pids(options: Options) -> tuple[int, ...]:
    """The processes of ``-p``."""
    return tuple(int(part) for text in options.many("pid") for part in text.split(","))


def only_pid(options: Options) -> int | None:
    """The process whose view of files counts: that of ``-p``, when it is one."""
    known = pids(options)
    return known[0] if len(known) == 1 else None


def run_arguments(options: Options, filter_: str = "") -> tuple[str, ...]:
    """Words for pytrace's command line: processes, duration, the filter of names."""
    words: list[str] = []
    if known := pids(options):
        words += ["--pid", ",".join(map(str, known))]
    if duration := options.number("duration"):
        words += ["--duration", f"{duration / option_types.NANOSECONDS:.9g}"]
    if filter_:
        words += ["--probe-filter", filter_]
    return tuple(words)


def interval(options: Options) -> int:
    """Nanoseconds between outputs, 0 for one output at the end."""
    return options.number("interval")


def duration(options: Options) -> int:
    """Nanoseconds of the run, 0 without an end."""
    return options.number("duration")


def notes(options: Options) -> tuple[str, ...]:
    """Remarks about options without effect."""
    return ("-v has no effect here: --show-script prints the script",) if options.flag("verbose") else ()


def cpu_condition(options: Options, kernel: KernelInfo) -> str:
    """The predicate of ``-c`` with a number, empty without it.

    Raises:
        TraceError: there is no such CPU.
    """
    text = options.text("cpu")
    if not (text.isascii() and text.isdigit()):
        return ""
    last = kernel.possible_cpus - 1
    if int(text) > last:
        raise TraceError(f"option -c: there is no CPU {text}", hints=(f"CPUs of this machine are 0-{last}",))
    return f"cpu == {int(text)}"


def command(options: Options) -> tuple[str, ...]:
    """Words for pytrace's command line for ``-c`` with a command, as all other tools have it."""
    text = options.text("cpu")
    return ("--cmd", text) if text and not (text.isascii() and text.isdigit()) else ()
