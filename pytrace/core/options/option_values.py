"""Values of a script's options from texts, for the command line and for the compiler."""

from __future__ import annotations

from pytrace.core.options.script_options import ScriptOption, Value

JOINT = "\n"
"""Between the values of an option that was given several times."""


class WrongValueError(ValueError):
    """A text that an option does not take; the message is what it needs instead."""


def convert(option: ScriptOption, text: str | None) -> Value:
    """The value that *text* stands for; None is a name without a value.

    Raises:
        WrongValueError: the option needs something else.
    """
    if isinstance(option.default, bool):
        return _flag(text)
    if text is None:
        raise WrongValueError(f"an argument: {option.argument}")
    if isinstance(option.default, int):
        return _integer(text)
    if option.choices:
        for item in text.split(JOINT) if option.repeat else (text,):
            if item not in option.choices:
                raise WrongValueError(f"one of {', '.join(option.choices)}")
    return text


def _flag(text: str | None) -> bool:
    if text is None:
        return True
    from pytrace.core.numbers import parse_flag  # imports re, which a start from the cache does without

    value = parse_flag(text)
    if value is None:
        raise WrongValueError("true or false")
    return value


def _integer(text: str) -> int:
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and (digits[0] != "0" or digits == "0") and len(digits) < 20:
        value: int | None = int(text)
    else:
        from pytrace.core.numbers import parse_integer  # imports re, too

        value = parse_integer(text)
    if value is None:
        raise WrongValueError("an integer")
    if not -(2**63) <= value < 2**64:
        raise WrongValueError("an integer of 64 bits")
    return value
