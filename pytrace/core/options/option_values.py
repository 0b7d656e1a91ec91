"""Conversion of option texts to values, for the command line and for the compiler."""

from __future__ import annotations

from pytrace.core.diagnostics import did_you_mean
from pytrace.core.numbers import parse_flag, parse_integer
from pytrace.core.options.script_options import ScriptOption, Value

JOINT = "\n"
"""Separator of the values of a repeated option."""


class WrongValueError(ValueError):
    """A text that an option does not accept; the message says what it expects.

    Attributes:
        entry: the invalid part of the text; None for the whole text.
        hints: similar names that are allowed.
    """

    def __init__(self, needs: str, entry: str | None = None, hints: tuple[str, ...] = ()) -> None:
        super().__init__(needs)
        self.entry, self.hints = entry, hints

    def shown(self, text: str | None) -> str:
        """Expected and actual value, for messages."""
        if text is None:
            return str(self)
        text = text.replace(JOINT, " ")
        if self.entry is None or self.entry == text:
            return f"{self}, not {text!r}"
        return f"{self}, not {self.entry!r} (of {text!r})"


def convert(option: ScriptOption, text: str | None) -> Value:
    """Convert *text* to the option's value; None is an option without a value.

    Raises:
        WrongValueError: the option does not accept *text*.
    """
    if isinstance(option.default, bool):
        return _flag(text)
    if text is None:
        raise WrongValueError(f"an argument: {option.argument}")
    if option.type:
        return _typed(option, text)
    if isinstance(option.default, int):
        return _integer(text)
    if not option.choices and not option.listed:
        return text
    values = entries(option, text)
    for item in values:
        if option.choices and item not in option.choices:
            several = "some of" if option.listed else "one of"
            needs = f"{several} {', '.join(option.choices)}"
            raise WrongValueError(needs, item, did_you_mean(item, option.choices))
    return (",".join if option.listed else JOINT.join)(values)


def default(option: ScriptOption) -> Value:
    """The value of an option that was not given."""
    if not option.type or not isinstance(option.default, int):
        return option.default
    from pytrace.core.options import option_types  # few runs need it

    return option_types.default(option.type, option.default)


def entries(option: ScriptOption, text: str) -> list[str]:
    """The entries of the text of an option."""
    texts = text.split(JOINT) if option.repeat else [text]
    return [part.strip() for item in texts for part in (item.split(",") if option.listed else (item,))]


def _typed(option: ScriptOption, text: str) -> Value:
    from pytrace.core.options import option_types  # few runs need it

    type_ = option_types.find(option.type)
    assert type_ is not None, option.type
    values: list[int | str] = []
    for entry in entries(option, text):
        value = type_.entry(entry)
        if value is None:
            needs = type_.several if option.listed else type_.one
            raise WrongValueError(needs, entry, option_types.suggestions(type_, entry))
        values.append(value)
    if not option.listed and not option.repeat:
        return values[0]
    return (",".join if option.listed else JOINT.join)(map(str, values))


def _flag(text: str | None) -> bool:
    if text is None:
        return True
    value = parse_flag(text)
    if value is None:
        raise WrongValueError("true or false")
    return value


def _integer(text: str) -> int:
    value = parse_integer(text)
    if value is None:
        raise WrongValueError("an integer")
    if not -(2**63) <= value < 2**64:
        raise WrongValueError("an integer of 64 bits")
    return value
