from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.script_options import ScriptOption, Value
from pytrace.frontend.expand import parameters
from tests.frontend.expand.test_parameters import parse
from tests.support.rows import each_row


def read(text: str) -> tuple[tuple[ScriptOption, ...], Diagnostics]:
    diagnostics = Diagnostics()
    return parameters.read_declarations(parse(text), diagnostics).options, diagnostics


@each_row(
    ("text", "option"),
    [
        ('"x|failed", false, "why"', ScriptOption(("x", "failed"), False, "why")),
        ('"x"', ScriptOption(("x",), False)),
        ('"n|name=NAME"', ScriptOption(("n", "name"), "", argument="NAME")),
        ('"n|name=NAME...", ""', ScriptOption(("n", "name"), "", argument="NAME", repeat=True)),
        ('"d|min-ms", -1', ScriptOption(("d", "min-ms"), -1, argument="N")),
        ('"4|ipv4", true', ScriptOption(("4", "ipv4"), True)),
        ('"s=COLUMN", "a", "", ("a", "b")', ScriptOption(("s",), "a", argument="COLUMN", choices=("a", "b"))),
        ('"[interval]", 0', ScriptOption(("interval",), 0, argument="interval", operand=True)),
        (
            '"<db>", "", "", ("x",)',
            ScriptOption(("db",), "", argument="db", choices=("x",), operand=True, required=True),
        ),
        (
            '"P|port=PORTS:port,...", ""',
            ScriptOption(("P", "port"), "", argument="PORTS", type="port", listed=True),
        ),
        ('"r=N:1..64", 5', ScriptOption(("r",), 5, argument="N", type="1..64")),
        ('"[interval:seconds]", 1', ScriptOption(("interval",), 1, argument="interval", operand=True, type="seconds")),
        (
            '"e=E...:errno,...", ""',
            ScriptOption(("e",), "", argument="E", repeat=True, type="errno", listed=True),
        ),
        (
            '"s=COLUMNS,...", "a,b", "", ("a", "b")',
            ScriptOption(("s",), "a,b", argument="COLUMNS", choices=("a", "b"), listed=True),
        ),
        ('"s=COLUMNS,...", ""', ScriptOption(("s",), "", argument="COLUMNS", listed=True)),
        ('"[pids...]"', ScriptOption(("pids",), "", argument="pids", operand=True, repeat=True)),
        ('"[--pid]"', ScriptOption(("--pid",), "", argument="--pid", operand=True)),
        (
            '"<specs...>", ""',
            ScriptOption(("specs",), "", argument="specs", operand=True, required=True, repeat=True),
        ),
    ],
)
def test_specs(text: str, option: ScriptOption) -> None:
    found, diagnostics = read(f"getopt({text});")
    assert not diagnostics.items
    assert found == (option,)


@each_row(
    ("text", "message", "place"),
    [
        ('getopt("x y");', "does not declare an option", '"x y"'),
        ('getopt("x|");', "does not declare an option", '"x|"'),
        ('getopt("[x");', "does not declare an option", '"[x"'),
        ('getopt("");', "does not declare an option", '""'),
        ("getopt(1);", "must be a string literal", "1"),
        ('getopt("x|x");', "the name 'x' appears twice", '"x|x"'),
        ('getopt("h|help");', "--help is taken", '"h|help"'),
        ('getopt("x=N", true);', "must be an integer or a text", '"x=N"'),
        ('getopt("x", pid);', "must be an integer, boolean or string literal", "pid"),
        ('getopt("x", 1, 2);', "the help text", "2"),
        ('getopt("x=X,...", "b,a", "", ("b", "c"));', "'a' is not among the choices b, c", '"b,a"'),
        ('getopt("x", "a", "", ("b", "c"));', "'a' is not among the choices b, c", '"a"'),
        ('getopt("x", 1, "", ("b", "c"));', "must have a text as default", "1"),
        ('getopt("x=N:prot", 1);', "there is no type 'prot' of options", '"x=N:prot"'),
        ('getopt("x=N:port", "");', "'port' must be an integer", '""'),
        ('getopt("x=N:port,...", 0);', "'port' must be a text", "0"),
        ('getopt("x=N:disk", 0);', "'disk' must be a text", "0"),
        ('getopt("x=N:port,...", "", "", ("a",));', "choices or a type, not both", '"x=N:port,..."'),
        ('getopt("[x>");', "does not declare an option", '"[x>"'),
        ('getopt("x", "a", "", ("a", 1));', "a choice must be a string literal", "1"),
        ('getopt("x", "a", "", ("a", "b"), 5);', "takes names, a default, a help text and choices", "5"),
        ('getopt("[x]", true);', "the default of an operand", "true"),
        ('getopt("x=N...", 1);', "several values must be a text", "1"),
        ('getopt("[x...]"); getopt("[y]");', "no operand can follow 'x'", 'getopt("[y]")'),
        ('getopt("[x]"); getopt("<y>");', "'y' cannot follow the optional one 'x'", 'getopt("<y>")'),
    ],
)
def test_mistakes(text: str, message: str, place: str) -> None:
    _, diagnostics = read(text)
    (error,) = diagnostics.errors
    assert message in error.message
    assert error.span.text == place


@pytest.mark.parametrize("second", ["x|other", "y|failed", "[failed]"])
def test_a_name_is_declared_once(second: str) -> None:
    found, diagnostics = read(f'getopt("x|failed"); getopt("{second}", "");')
    (error,) = diagnostics.errors
    assert "is declared twice" in error.message
    assert error.span.text == f'"{second}"'
    assert error.notes[0].span.text == 'getopt("x|failed")'
    assert [option.name for option in found] == ["failed"]


def values(text: str, *given: tuple[str, str | None]) -> tuple[dict[str, Value], list[str]]:
    diagnostics = Diagnostics()
    declared = parameters.read_declarations(parse(text), diagnostics)
    found = parameters.declared_values(declared, given, diagnostics)
    return found, [error.message for error in diagnostics.errors]


def test_values_by_all_names() -> None:
    text = 'getopt("x|failed"); getopt("[n]", 7);'
    assert values(text) == ({"x": False, "failed": False, "n": 7}, [])
    assert values(text, ("x", None), ("n", "0x10")) == ({"x": True, "failed": True, "n": 16}, [])
    assert values(text, ("failed", "true"))[0]["x"] is True


def test_wrong_values() -> None:
    assert values('getopt("[n]", 7);', ("n", "x"))[1] == ["operand n needs an integer, not 'x'"]
    assert values('getopt("n=N", 7);', ("n", None))[1] == ["option n needs an argument: N, not nothing"]
    assert values('getopt("<db>");')[1] == ["the operand 'db' must be given"]
    assert values('getopt("s", "a", "", ("a", "b"));', ("s", "c"))[1] == ["option s needs one of a, b, not 'c'"]


def test_typed_values() -> None:
    text = 'getopt("i=SECONDS:seconds", 2); getopt("e=E:errno,...", ""); getopt("cpu=CPU:cpu", -1);'
    assert values(text) == ({"i": 2_000_000_000, "e": "", "cpu": -1}, [])
    assert values(text, ("i", "0.5"), ("e", "ENOENT,13"), ("cpu", "3")) == (
        {"i": 500_000_000, "e": "2,13", "cpu": 3}, [],
    )  # fmt: skip
    (message,) = values(text, ("e", "ENOENT,x"))[1]
    assert message.startswith("option e needs names or numbers of errors")
    assert message.endswith(", not 'x' (of 'ENOENT,x')")


def test_names_of_a_root_item() -> None:
    items = parse('getopt("x|failed"); getopt(1); begin { }').items
    assert [parameters.declared_names(item) for item in items] == [("x", "failed"), (), ()]
