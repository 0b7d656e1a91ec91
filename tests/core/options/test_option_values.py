from __future__ import annotations

import pytest

from pytrace.core.options.option_values import WrongValueError, convert, default
from pytrace.core.options.script_options import ScriptOption, Value
from tests.support.rows import each_row

FLAG = ScriptOption(("x",), False)
NUMBER = ScriptOption(("n",), 0, argument="N")
TEXT = ScriptOption(("t",), "", argument="TEXT")
CHOICE = ScriptOption(("c",), "a", argument="C", choices=("a", "b"))
LIST = ScriptOption(("l",), "a", argument="L", choices=("a", "b"), listed=True)
SEVERAL = ScriptOption(("s",), "", argument="S", choices=("a", "b"), repeat=True)


@each_row(
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
        (LIST, "b, a", "b,a"),
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
        (LIST, "a,c", "some of a, b"),
    ],
)
def test_refused_values(option: ScriptOption, text: str | None, needs: str) -> None:
    with pytest.raises(WrongValueError) as found:
        convert(option, text)
    assert str(found.value) == needs


PORTS = ScriptOption(("p",), "", argument="PORTS", type="port", listed=True)
ERRORS = ScriptOption(("e",), "", argument="E", type="errno", listed=True, repeat=True)
TIME = ScriptOption(("i",), 2, argument="SECONDS", type="seconds")


def test_typed_values() -> None:
    assert convert(PORTS, "80, 443") == "80,443"
    assert convert(ERRORS, "ENOENT,13\n4") == "2,13,4"
    assert convert(TIME, "0.5") == 500_000_000
    assert default(TIME) == 2_000_000_000
    assert default(PORTS) == ""


@pytest.mark.parametrize(
    ("option", "text", "shown"),
    [
        (PORTS, "http", "ports from 1 to 65535, separated by commas (80,443), not 'http'"),
        (PORTS, "80,http", "ports from 1 to 65535, separated by commas (80,443), not 'http' (of '80,http')"),
        (PORTS, "80,,1", "ports from 1 to 65535, separated by commas (80,443), not '' (of '80,,1')"),
        (TIME, "soon", "a time in seconds (2 or 0.5) or with a unit (500ms, 2m), not 'soon'"),
    ],
)
def test_refused_entries_are_named(option: ScriptOption, text: str, shown: str) -> None:
    with pytest.raises(WrongValueError) as found:
        convert(option, text)
    assert found.value.shown(text) == shown


def test_similar_names_are_suggested() -> None:
    with pytest.raises(WrongValueError) as found:
        convert(ERRORS, "ENOENTT")
    assert "'ENOENT'" in found.value.hints[0]
