"""Options that several multi-purpose tools share, and their translation to options of the run."""

from __future__ import annotations

from pytrace.core.options import option_types
from pytrace.core.options.script_options import ScriptOption
from pytrace.multitools.translation import Options

PID = ScriptOption(("p", "pid"), "", "only process PID (several: -p again, or separated by commas)", "PID", repeat=True,
                   type="pid", listed=True)
INTERVAL = ScriptOption(("i", "interval"), 0, "print every SECONDS", "SECONDS", type="interval")
DURATION = ScriptOption(("d", "duration"), 0, "stop after SECONDS", "SECONDS", type="interval")
TIMESTAMP = ScriptOption(("T", "timestamp"), False, "print the time of day with each output")
REGEXP = ScriptOption(("r", "regexp"), False, "the pattern is a regular expression, from the beginning of names")
CPU = ScriptOption(("cpu",), -1, "only on this CPU", "CPU", type="cpu")
PATTERN = ScriptOption(("pattern",), "", "functions or events: vfs_*, c:malloc, t:sched:*, u:LIB:PROBE, kprobe:…",
                       "PATTERN", operand=True, required=True)


def pids(options: Options) -> tuple[int, ...]:
    """The processes of ``-p``."""
    return tuple(int(part) for text in options.many("pid") for part in text.split(","))


def only_pid(options: Options) -> int | None:
    """The process whose view of files is used: that of ``-p``, if it is a single one."""
    selected = pids(options)
    return selected[0] if len(selected) == 1 else None


def run_arguments(options: Options, filter_: str = "") -> tuple[str, ...]:
    """Words for pytrace's command line: processes, duration, probe filter."""
    words: list[str] = []
    if selected := pids(options):
        words += ["--pid", ",".join(map(str, selected))]
    if duration := options.number("duration"):
        words += ["--duration", f"{duration / option_types.NANOSECONDS:.9g}"]
    if filter_:
        words += ["--probe-filter", filter_]
    return tuple(words)


def interval(options: Options) -> int:
    """Nanoseconds between outputs, 0 for one output at the end."""
    return options.number("interval")


def duration(options: Options) -> int:
    """Duration of the run in nanoseconds, 0 without an end."""
    return options.number("duration")


def cpu_condition(options: Options) -> str:
    """The predicate of ``--cpu``, empty without it."""
    number = options.number("cpu")
    return f"cpu == {number}" if number >= 0 else ""
