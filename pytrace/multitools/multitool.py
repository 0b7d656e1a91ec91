"""Multi-purpose tools: the class of their rows, options that several share, parts of scripts, patterns of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from pytrace.core import script_options
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.script_options import ScriptOption, Value, default
from pytrace.multitools import targets
from pytrace.multitools.expressions import SpecText
from pytrace.multitools.targets import KERNEL, Attachment, TraceTarget

MULTI_PURPOSE, LANGUAGES = "multi-purpose", "languages"
"""The groups under which ``--tools`` lists them."""

PID = ScriptOption(("p", "pid"), "", "only process PID (several: -p again, or separated by commas)", "PID", repeat=True,
                   type="pid", listed=True)
INTERVAL = ScriptOption(("i", "interval"), 0, "print every SECONDS", "SECONDS", type="interval")
DURATION = ScriptOption(("d", "duration"), 0, "stop after SECONDS", "SECONDS", type="interval")
TIMESTAMP = ScriptOption(("T", "timestamp"), False, "print the time of day with each output")
REGEXP = ScriptOption(("r", "regexp"), False, "the pattern is a regular expression, from the beginning of names")
CPU = ScriptOption(("cpu",), -1, "only on this CPU", "CPU", type="cpu")
PATTERN = ScriptOption(("pattern",), "", "functions or events: vfs_*, c:malloc, t:sched:*, u:LIB:PROBE, kprobe:…",
                       "PATTERN", operand=True, required=True)


class Translation(msgspec.Struct, frozen=True):
    """The translation of one command line of a tool.

    Attributes:
        text: the script; empty for a tool that needs only *arguments* (``tplist``).
        arguments: further words for pytrace's own command line (``-p 12``, ``--duration 5``).
        notes: remarks for the user about options that have no effect here, one line each.
    """

    text: str
    arguments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Options:
    """Values of a tool's options with their types, for translations."""

    __slots__ = ("_defaults", "_values")

    def __init__(self, options: tuple[ScriptOption, ...], values: Mapping[str, Value]) -> None:
        self._defaults = {option.name: default(option) for option in options}
        self._values = values

    def _value(self, name: str) -> Value:
        return self._values.get(name, self._defaults[name])

    def flag(self, name: str) -> bool:
        """Whether a flag was given."""
        return bool(self._value(name))

    def number(self, name: str) -> int:
        """Value of an integer option."""
        return int(self._value(name))

    def text(self, name: str) -> str:
        """Value of a text option."""
        return str(self._value(name))

    def many(self, name: str) -> tuple[str, ...]:
        """Values of an option that may be repeated."""
        return tuple(part for part in self.text(name).split("\n") if part)

    def pids(self) -> tuple[int, ...]:
        """The processes of ``-p``."""
        return tuple(int(part) for text in self.many("pid") for part in text.split(","))

    def only_pid(self) -> int | None:
        """The process whose view of files is used: that of ``-p``, if it is a single one."""
        selected = self.pids()
        return selected[0] if len(selected) == 1 else None

    def run_arguments(self, filter_: str = "") -> tuple[str, ...]:
        """Words for pytrace's command line: processes, duration, probe filter."""
        words: list[str] = []
        if selected := self.pids():
            words += ["--pid", ",".join(map(str, selected))]
        if duration := self.number("duration"):
            words += ["--duration", f"{duration / script_options.NANOSECONDS:.9g}"]
        if filter_:
            words += ["--probe-filter", filter_]
        return tuple(words)

    def cpu_condition(self) -> str:
        """The predicate of ``--cpu``, empty without it."""
        number = self.number("cpu")
        return f"cpu == {number}" if number >= 0 else ""


class MultiTool(msgspec.Struct, frozen=True):
    """A tool whose command line becomes a script.

    Attributes:
        name: the word that users type.
        group: its section in the list of tools.
        summary: one-sentence summary.
        options: options and operands, in the order of the usage.
        examples: command lines with descriptions, one per line.
        make: the translation, which takes the options and facts about the machine.
    """

    name: str
    group: str
    summary: str
    options: tuple[ScriptOption, ...]
    examples: str
    make: Callable[[Options, KernelInfo], Translation]

    def translate(self, values: Mapping[str, Value], kernel: KernelInfo) -> Translation:
        """The script for the *values* of options, by :attr:`ScriptOption.name`; others have their defaults.

        Raises:
            TraceError: the command line is invalid, or this kernel does not support it.
        """
        return self.make(Options(self.options, values), kernel)


# ---------------------------------------------------------------------------------------------- parts of scripts


_OWN_OUTPUT, _WHOLE_STACKS = "print_maps_on_exit = false", "stack_unwinding = auto"
HEAD = f"config = {{ {_OWN_OUTPUT} }}"
"""For scripts that print their maps themselves."""


def config(*, own_output: bool, user_stacks: bool) -> str:
    """The config block of a script that prints its maps itself, or takes stacks of processes; may be empty."""
    settings = [*([_OWN_OUTPUT] if own_output else []), *([_WHOLE_STACKS] if user_stacks else [])]
    return f"config = {{ {'; '.join(settings)} }}" if settings else ""


def block(head: str, lines: Iterable[str]) -> str:
    """``head { lines }``."""
    inner = "".join(f"    {line}\n" for text in lines for line in text.split("\n"))
    return f"{head} {{\n{inner}}}"


def probe(points: Iterable[str], lines: Iterable[str], conditions: Iterable[str] = ()) -> str:
    """A probe, with a predicate if there are conditions."""
    texts = [condition for condition in conditions if condition]
    joined = " && ".join(f"({text})" if "||" in text or "?" in text else text for text in texts)
    return block(", ".join(points) + (f" /{joined}/" if joined else ""), lines)


def unless(predicate: str) -> str:
    """The statement that leaves a probe unless a predicate holds."""
    if predicate.startswith("(") and predicate.endswith(")") and predicate.count("(") == 1:
        predicate = predicate[1:-1]
    return f"if (!({predicate})) {{ return; }}"


def script(*parts: str) -> str:
    """The parts of a script, separated by empty lines."""
    return "\n\n".join(part for part in parts if part) + "\n"


def literal(text: str) -> str:
    """A string literal of the script language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


# ---------------------------------------------------------------------------------------------- names of functions


class Naming(msgspec.Struct, frozen=True):
    """How a script stores and shows the name of the probed function or event.

    Attributes:
        key: the expression in a probe: ``func`` in the kernel, else the name of the probe, as an address in user
            space is different in each process.
        prefix: number of characters of it that are not shown.
    """

    key: str
    prefix: int = 0

    @classmethod
    def of(cls, target: TraceTarget, attachment: Attachment) -> Naming:
        """The naming for a target."""
        if target.family == KERNEL:
            return cls("func")
        return cls("probe", attachment.prefix)

    @property
    def of_call(self) -> Naming:
        """The naming in a probe of whole calls: the name of the probe has ``call`` in place of ``uprobe``."""
        return Naming(self.key, self.prefix - len("uprobe") + len("call")) if self.prefix else self

    def shown(self, variable: str) -> str:
        """The displayed name, as an expression; *variable* contains the key."""
        return f"str((int8 *)&{variable} + {self.prefix}, 128)" if self.prefix else variable


# ---------------------------------------------------------------------------------------------- intervals


def timer(interval: int) -> str:
    """The attach point of a timer that fires every *interval* nanoseconds."""
    unit, size = next((unit, size) for unit, size in _UNITS if interval % size == 0 or unit == "us")
    return f"interval:{unit}:{interval // size}"


_UNITS = (("s", 10**9), ("ms", 10**6), ("us", 10**3))


def outputs(interval: int, duration: int, lines: list[str]) -> str:
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


def fitting(interval: int, duration: int) -> int:
    """Number of intervals that fill the duration; 0 without a duration, or if a part is left."""
    return 0 if duration % interval else duration // interval


def stamp(*, wanted: bool) -> list[str]:
    """The statement that prints the time of day."""
    return ['time("%H:%M:%S\\n");'] if wanted else []


# ---------------------------------------------------------------------------------------------- patterns


class Pattern(msgspec.Struct, frozen=True):
    """A pattern as attach points.

    *naming* distinguishes its functions in the output, *filter* is for ``--probe-filter``.
    """

    target: TraceTarget
    attachment: Attachment
    naming: Naming
    filter: str = ""

    @property
    def point(self) -> str:
        """The attach point of the requested event."""
        return self.attachment.leave if self.target.returns and self.attachment.leave else self.attachment.entry


def counted_pattern(options: Options, kernel: KernelInfo) -> Pattern:
    """The pattern of a command line, with ``-r`` as a regular expression.

    Raises:
        TraceError: the pattern is invalid, or this kernel cannot trace its functions or events.
    """
    regexp = options.flag("regexp")
    target = targets.parse(SpecText.of(options.text("pattern")), regexp=regexp)
    filter_ = ""
    if regexp:
        target, filter_ = targets.by_regexp(target)
    target = targets.resolve(target, kernel, options.only_pid())
    attachment = targets.attach(target, kernel, options.only_pid())
    naming = Naming.of(target, attachment)
    if not target.wild and not target.mangled and target.family != targets.KERNEL:
        naming = Naming(literal(target.name))
    return Pattern(target, attachment, naming, filter_)


def function_pattern(options: Options, kernel: KernelInfo) -> Pattern:
    """As :func:`parse`, for tools that need functions with an entry and a return.

    Raises:
        TraceError: also if the pattern names events.
    """
    pattern = counted_pattern(options, kernel)
    if not pattern.attachment.leave:
        what = "tracepoints" if pattern.target.family == targets.TRACEPOINT else "events"
        hints = ("name functions: vfs_read, c:malloc, /path/program:FUNCTION", "funccount counts events")
        raise pattern.target.spec.error(f"functions have a latency, {what} have none", hints=hints)
    if "+" in pattern.target.name and pattern.target.name != "*":
        raise pattern.target.spec.error("a latency is that of whole functions: leave the offset out")
    return pattern
