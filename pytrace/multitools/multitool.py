"""Multi-purpose tools: the class of their rows, options that several share, parts of scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from pytrace.core.kernel_info import KernelInfo
from pytrace.core.script_options import ScriptOption, Value, default
from pytrace.core.text import NANOSECONDS

MULTI_PURPOSE, LANGUAGES = "multi-purpose", "languages"
"""The groups under which ``--tools`` lists them."""

PID = ScriptOption(("p", "pid"), "", "only process PID (several: -p again, or separated by commas)", "PID", repeat=True,
                   type="pid", listed=True)
DURATION = ScriptOption(("d", "duration"), 0, "stop after SECONDS", "SECONDS", type="interval")


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
            words += ["--duration", f"{duration / NANOSECONDS:.9g}"]
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


# ---------------------------------------------------------------------------------------------- intervals


def timer(interval: int) -> str:
    """The attach point of a timer that fires every *interval* nanoseconds."""
    unit, size = next((unit, size) for unit, size in _UNITS if interval % size == 0 or unit == "us")
    return f"interval:{unit}:{interval // size}"


_UNITS = (("s", 10**9), ("ms", 10**6), ("us", 10**3))


def fitting(interval: int, duration: int) -> int:
    """Number of intervals that fill the duration; 0 without a duration, or if a part is left."""
    return 0 if duration % interval else duration // interval
