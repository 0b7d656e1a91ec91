from __future__ import annotations

import pytest

from pytrace.core.options.option_values import WrongValueError, convert
from pytrace.core.options.script_options import ScriptOption, Value

FLAG = ScriptOption(("x",), False)
NUMBER = ScriptOption(("n",), 0, argument="N")
TEXT = ScriptOption(("t",), "", argument="TEXT")
CHOICE = ScriptOption(("c",), "a", argument="C", choices=("a", "b"))
SEVERAL = ScriptOption(("s",), "", argument="S", choices=("a", "b"), repeat=True)


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        (FLAG, None, True),
        (FLAG, "false", False),
        (NUMBER, "0", 0),
        (NUMBER, "-5", -5),
        (NUMBER, "0x10", 16),
        (NUMBER, "010", 8),
        (NUMBER, "1ms", 1_000_000),
        (NUMBER, str(2**64 - 1), 2**64 - 1),
        (TEXT, "", ""),
        (TEXT, "a b", "a b"),
        (CHOICE, "b", "b"),
        (SEVERAL, "a\nb", "a\nb"),
    ],
)
def test_values(option: ScriptOption, text: str | None, value: Value) -> None:
    found = convert(option, text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("option", "text", "needs"),
    [
        (FLAG, "maybe", "true or false"),
        (NUMBER, "x", "an integer"),
        (NUMBER, "", "an integer"),
        (NUMBER, "-", "an integer"),
        (NUMBER, str(2**64), "an integer of 64 bits"),
        (NUMBER, None, "an argument: N"),
        (CHOICE, "c", "one of a, b"),
        (SEVERAL, "a\nc", "one of a, b"),
    ],
)
def test_refused_values(option: ScriptOption, text: str | None, needs: str) -> None:
    with pytest.raises(WrongValueError) as found:
        convert(option, text)
    assert str(found.value) == needs
