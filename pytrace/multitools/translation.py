"""Multi-purpose tools: their options, and the translation of option values into a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from pytrace.core.options.option_values import default
from pytrace.core.options.script_options import ScriptOption, Value

if TYPE_CHECKING:
    from pytrace.core.kernel_info import KernelInfo

Values = Mapping[str, Value]
"""Values of a tool's options by :attr:`ScriptOption.name`; a missing option has its default."""


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

    def __init__(self, options: tuple[ScriptOption, ...], values: Values) -> None:
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


class MultiTool(Protocol):
    """One tool."""

    @property
    def summary(self) -> str:
        """One-sentence summary."""

    @property
    def group(self) -> str:
        """The group under which ``--tools`` lists it."""

    @property
    def options(self) -> tuple[ScriptOption, ...]:
        """Its options and operands."""

    @property
    def examples(self) -> str:
        """Example command lines with descriptions, for its usage."""

    def translate(self, values: Values) -> Translation:
        """The script for the *values* of all options, by :attr:`ScriptOption.name`."""


Translate = Callable[[Options, "KernelInfo"], Translation]


class TranslatedTool(msgspec.Struct, frozen=True):
    """A tool whose command line becomes a script.

    Attributes:
        name: the word that users type.
        summary: one-sentence summary.
        group: its section in the list of tools.
        options: options and operands, in the order of the usage.
        examples: command lines with descriptions, one per line.
        make: the translation, which takes the options and facts about the machine.
    """

    name: str
    summary: str
    group: str
    options: tuple[ScriptOption, ...]
    examples: str
    make: Translate

    def translate(self, values: Values, kernel: KernelInfo | None = None) -> Translation:
        """The script of one command line; *kernel* defaults to this machine's.

        Raises:
            TraceError: the command line is invalid, or this kernel does not support it.
        """
        if kernel is None:
            from pytrace.runtime.live_kernel import LiveKernel

            kernel = LiveKernel()
        return self.make(Options(self.options, values), kernel)
