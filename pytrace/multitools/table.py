"""Tools that are translated from their command line into a script (``pytrace NAME``)."""

from __future__ import annotations

from collections.abc import Mapping

from pytrace.base.fast_dataclass import dataclass
from pytrace.base.fast_typing import Protocol
from pytrace.core.options.script_options import ScriptOption, Value


@dataclass(frozen=True, slots=True)
class Translation:
    """A tool's command line as a script: its *text*, and the words of pytrace's own command line that it implies."""

    text: str
    arguments: tuple[str, ...] = ()


class MultiTool(Protocol):
    """One tool."""

    @property
    def summary(self) -> str:
        """What it shows, in one sentence."""

    @property
    def group(self) -> str:
        """The group that ``--tools`` lists it in."""

    @property
    def options(self) -> tuple[ScriptOption, ...]:
        """Its options and operands."""

    @property
    def examples(self) -> str:
        """Command lines and what they do, for its usage."""

    def translate(self, values: Mapping[str, Value]) -> Translation:
        """The script for the *values* of all options, by :attr:`ScriptOption.name`."""


TOOLS: dict[str, MultiTool] = {}
"""The tools by name; ``pytrace.cli.scripts.tools.TRANSLATED`` has the same names."""
