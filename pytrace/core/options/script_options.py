"""Options of a script or tool: what ``getopt`` declares, and what the command line reads them by."""

from __future__ import annotations

import msgspec

Value = bool | int | str
"""Value of an option: a flag, an integer, or text."""


class ScriptOption(msgspec.Struct, frozen=True):
    """One option or operand of a script.

    Attributes:
        names: spellings without dashes, letters and words in the order of their declaration; an operand has one.
        default: value when it is not given; its type is that of the option.
        help: what it does, for the usage.
        argument: name of its argument in the usage; empty for a flag.
        choices: texts that are accepted; empty for all.
        operand: whether it is given by its place instead of a name. The name of one that is an option of pytrace
            itself has its dashes: ``--pid``.
        required: whether it must be given.
        repeat: whether it may be given several times (an operand: takes all that follow); values are then joined by
            newlines.
        type: the name of its type (``option_types``); empty for any integer or text.
        listed: whether it takes entries (of its type, of its choices), separated by commas; the value is then such a
            text.
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
        """The name that scripts know it by: the first that is not a letter, else the letter."""
        return next((name for name in self.names if len(name) > 1), self.names[0])

    @property
    def general(self) -> str:
        """The name of the option of pytrace that an operand stands for; empty when it is the script's own."""
        return self.name[2:] if self.name.startswith("--") else ""

    @property
    def letters(self) -> tuple[str, ...]:
        """The names of one letter, written with one dash."""
        return tuple(name for name in self.names if len(name) == 1)

    @property
    def words(self) -> tuple[str, ...]:
        """The names of more than one letter, written with two dashes."""
        return tuple(name for name in self.names if len(name) > 1)


def plain_integer(text: str) -> int | None:
    """The integer of decimal digits alone, which is how most are given."""
    digits = text.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and (digits[0] != "0" or digits == "0") and len(digits) < 20
    return int(text) if plain else None
