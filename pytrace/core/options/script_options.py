"""Options of a script or tool, declared by ``getopt`` and read from the command line."""

from __future__ import annotations

import msgspec

Value = bool | int | str
"""Value of an option: a flag, an integer, or text."""


class ScriptOption(msgspec.Struct, frozen=True):
    """One option or operand of a script.

    Attributes:
        names: spellings without dashes, letters and words in the order of their declaration; an operand has one.
        default: value without the option; its type is the option's.
        help: description for the usage.
        argument: name of its argument in the usage; empty for a flag.
        choices: texts that are accepted; empty for all.
        operand: whether it is given by position instead of by name. An operand that stands for an option of pytrace
            has that option's name, with dashes: ``--pid``.
        required: whether it must be given.
        repeat: whether it may be given several times (an operand: takes all remaining words); values are then joined
            by newlines.
        type: the name of its type (``option_values``); empty for any integer or text.
        listed: whether it takes a comma-separated list of entries (of its type, of its choices); the value is then
            that text.
    """

    names: tuple[str, ...]
    default: Value
    help: str = ""
    argument: str = ""
    choices: tuple[str, ...] = ()
    operand: bool = False
    required: bool = False
    repeat: bool = False
    type: str = ""
    listed: bool = False

    @property
    def name(self) -> str:
        """The name that scripts use: the first that is not a single letter, else the letter."""
        return next((name for name in self.names if len(name) > 1), self.names[0])

    @property
    def general(self) -> str:
        """The option of pytrace that an operand stands for; empty for the script's own operands."""
        return self.name[2:] if self.name.startswith("--") else ""

    @property
    def letters(self) -> tuple[str, ...]:
        """The names of one letter, written with one dash."""
        return tuple(name for name in self.names if len(name) == 1)

    @property
    def words(self) -> tuple[str, ...]:
        """The names of more than one letter, written with two dashes."""
        return tuple(name for name in self.names if len(name) > 1)
