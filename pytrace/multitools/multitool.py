"""Multi-purpose tools: the class of their rows, the options that several share, and what the values of options mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options import option_values
from pytrace.core.options.option_values import default
from pytrace.core.options.script_options import ScriptOption, Value

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
            words += ["--duration", f"{duration / option_values.NANOSECONDS:.9g}"]
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
