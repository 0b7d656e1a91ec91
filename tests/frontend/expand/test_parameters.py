"""Parameters and options that a script declares."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions
from pytrace.core.script_options import ScriptOption, Value
from pytrace.core.source import Source
from pytrace.frontend.expand import parameters
from pytrace.frontend.syntax import nodes, parser
from tests.support.rows import each_row


def parse(text: str) -> nodes.Program:
    diagnostics = Diagnostics()
    program = parser.parse(Source("stdin", text), diagnostics)
    diagnostics.check()
    return program


def literals(
    text: str, *positional: str, named: tuple[tuple[str, str | None], ...] = ()
) -> tuple[list[object], Diagnostics]:
    """The arguments of all print() calls after substitution."""
    diagnostics = Diagnostics()
    options = CompileOptions(positional=positional, named=named)
    program = parameters.substitute(parse(text), options, diagnostics)
    found = []
    for node in nodes.walk(program):
        assert not isinstance(node, nodes.PositionalParam | nodes.ParamCount)
        if isinstance(node, nodes.Call) and node.name == "print":
            argument = node.args[0]
            found.append(getattr(argument, "value", argument))
    return found, diagnostics


def test_texts_of_parameters() -> None:
    found, diagnostics = literals("begin { print($1); print($2); print($3); print($#) }", "42", "0x10", "hello")
    assert found == [42, 16, b"hello", 3]
    assert not diagnostics.items
    found, _ = literals(
        "begin { print(str($1)); print(str($2)); print(str($2 + 1)); print(str(2 + $2)) }", "42", "hello"
    )
    assert found == [b"42", b"hello", b"ello", b"llo"]
    found, _ = literals("begin { print(str($1, $2)) }", "123", "2")
    (call,) = found
    assert isinstance(call, nodes.Call)
    assert [getattr(item, "value", None) for item in call.args] == [b"123", 2]


def test_missing_parameters_warn() -> None:
    found, diagnostics = literals("begin { print(str($1)); print($1) }")
    assert found == [b"", 0]
    (warning,) = diagnostics.warnings
    assert warning.span.start == 30
    found, diagnostics = literals("begin { print(str($1 + 9)) }", "abc")
    assert found == [b""]
    assert [item.span.text for item in diagnostics.warnings] == ["9"]


NAMED = """begin {
  print(getopt("n", 5, "how many")); print(getopt("s", "dflt"));
  print(getopt("f")); print(getopt("g", true))
}"""


def test_named_values_and_defaults() -> None:
    assert literals(NAMED)[0] == [5, b"dflt", False, True]
    given = (("n", "0x20"), ("s", "text"), ("f", None), ("g", "0"))
    found, diagnostics = literals(NAMED, named=given)
    assert not diagnostics.items
    assert found == [32, b"text", True, False]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("n", "x", "an integer"), ("n", None, "an integer"), ("g", "2", "true or false"), ("s", None, "a value")],
)
def test_named_of_the_wrong_type(name: str, value: str | None, expected: str) -> None:
    _, diagnostics = literals(NAMED, named=((name, value),))
    (error,) = diagnostics.errors
    assert expected in error.message


def test_unknown_named_parameter_lists_the_known() -> None:
    _, diagnostics = literals(NAMED, named=(("nn", "1"),))
    (error,) = diagnostics.errors
    assert "--nn" in error.message
    assert any("--n, --s, --f, --g" in hint for hint in error.hints)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("begin { print(getopt()) }", "getopt()"),
        ("begin { print(getopt(1)) }", "1"),
        ('begin { print(getopt("a", pid)) }', "pid"),
        ('begin { print(getopt("a", 1, 2)) }', "2"),
        ('begin { print(getopt("a", 1)); print(getopt("a", 2)) }', 'getopt("a", 2)'),
        ('begin { print(getopt("a", 1)); print(getopt("a", true)) }', 'getopt("a", true)'),
        ('begin { print(getopt("a", 1, "x")); print(getopt("a", 1, "y")) }', 'getopt("a", 1, "y")'),
    ],
)
def test_bad_declarations(text: str, place: str) -> None:
    _, diagnostics = literals(text)
    (error,) = diagnostics.errors
    assert error.span.text == place


@pytest.mark.parametrize(
    ("given", "value"),
    [(None, True), ("true", True), ("True", True), ("TRUE", True), ("1", True), ("False", False), ("fAlSe", False)],
)
def test_flags_in_any_case(given: str | None, value: bool) -> None:
    for default in ("true", "false"):
        found, diagnostics = literals(f'begin {{ print(getopt("x", {default})); }}', named=(("x", given),))
        assert found == [value]
        assert not diagnostics.items


def test_other_words_are_no_flags() -> None:
    for given in ("no", "", "2", "truee"):
        _, diagnostics = literals('begin { print(getopt("x", true)); }', named=(("x", given),))
        assert [item.message for item in diagnostics.errors] == [
            f"parameter --x needs true or false; --x={given} was given"
        ]


DECLARED = """getopt("x|failed", false, "only failures");
getopt("lib=PATH", "/bin/sh");
getopt("[interval]", 0);
"""


def substituted(text: str, **named: str | None) -> tuple[nodes.Program, Diagnostics]:
    diagnostics = Diagnostics()
    options = CompileOptions(named=tuple(named.items()))
    return parameters.substitute(parse(DECLARED + text), options, diagnostics), diagnostics


def test_options_of_the_root_by_their_names() -> None:
    text = DECLARED + 'begin { print(getopt("x")); print(getopt("failed")); print(getopt("lib")); }'
    assert literals(text)[0] == [False, False, b"/bin/sh"]
    assert literals(text, named=(("failed", None), ("lib", "a")))[0] == [True, True, b"a"]
    program, _ = substituted("begin { }")
    assert [type(item).__name__ for item in program.items] == ["Probe"]


def test_names_near_a_declared_option() -> None:
    _, diagnostics = substituted('begin { print(getopt("failed", true)); }')
    (error,) = diagnostics.errors
    assert error.span.text == "true"
    assert error.notes[0].span.text.startswith('getopt("x|failed"')
    _, diagnostics = substituted('begin { print(getopt("faild")); print(getopt("other")); }')
    (error,) = diagnostics.errors
    assert error.span.text == '"faild"'
    assert "did you mean 'failed'?" in error.hints
    _, diagnostics = substituted("begin { }", intervl="3")
    assert "did you mean --interval?" in diagnostics.errors[0].hints


def test_options_switch_probes_off() -> None:
    text = """interval:s:$interval /getopt("interval") > 0 && !getopt("x")/ { }
    begin /getopt("x") || pid > 0/ { } begin /0/ { } begin /getopt("interval") + pid > 0/ { }"""
    program, _ = substituted(text)
    assert [probe.off for probe in program.probes] == [True, False, False, False]
    program, _ = substituted(text, interval="5")
    assert [probe.off for probe in program.probes] == [False] * 4
    program, _ = substituted(text, interval="5", failed=None)
    assert [probe.off for probe in program.probes] == [True, False, False, False]


def test_questions_about_attach_points_name_options_as_attach_points_do() -> None:
    text = """begin { print(probe_exist("uprobe:$lib:f")); print(probe_exist("interval:s:$interval"));
    print(kfunc_exist("$lib")); }"""
    asked = [call.args[0].value for call in literals(DECLARED + text, named=(("lib", "/a b"), ("interval", "7")))[0]]
    assert asked == [b"uprobe:/a b:f", b"interval:s:7", b"$lib"]


def test_ahead_of_time_options_are_fixed() -> None:
    program = parse(DECLARED + 'begin { print(getopt("old", 3)); }')
    described = parameters.describe(program, CompileOptions(named=(("failed", None),), ahead=True))
    assert described.names == ("old",)
    assert described.fixed == (("failed", None), ("lib", "/bin/sh"), ("interval", "0"))


# ----------------------------------------------------------------------------------------------------- named parameters


def test_usage() -> None:
    program = parse(NAMED)
    assert [(item.name, item.default, item.description) for item in parameters.used_parameters(program)] == [
        ("n", 5, "how many"),
        ("s", b"dflt", ""),
        ("f", False, ""),
        ("g", True, ""),
    ]
    text = parameters.help_text(program, "script.bt")
    assert "--n=N" in text
    assert "how many (default: 5)" in text
    assert "--s=TEXT" in text


def test_usage_without_parameters() -> None:
    assert "no named parameters" in parameters.help_text(parse("begin { }"), "x.bt")
    program = parse('getopt("x|failed"); begin { print(getopt("failed")); print(getopt("old", 1)); }')
    assert [item.name for item in parameters.used_parameters(program)] == ["old"]


# -------------------------------------------------------------------------------------------------- option declarations


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
