from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.frontend.expand import parameters
from pytrace.frontend.syntax import nodes, parser


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


def test_numbers_and_texts() -> None:
    found, diagnostics = literals("begin { print($1); print($2); print($3); print($#) }", "42", "0x10", "hello")
    assert found == [42, 16, b"hello", 3]
    assert not diagnostics.items


def test_str_takes_the_text() -> None:
    found, _ = literals(
        "begin { print(str($1)); print(str($2)); print(str($2 + 1)); print(str(2 + $2)) }", "42", "hello"
    )
    assert found == [b"42", b"hello", b"ello", b"llo"]


def test_str_with_length_keeps_the_call() -> None:
    found, _ = literals("begin { print(str($1, $2)) }", "123", "2")
    (call,) = found
    assert isinstance(call, nodes.Call)
    assert [getattr(item, "value", None) for item in call.args] == [b"123", 2]


def test_missing_warns_only_as_a_number() -> None:
    found, diagnostics = literals("begin { print(str($1)); print($1) }")
    assert found == [b"", 0]
    (warning,) = diagnostics.warnings
    assert warning.span.start == 30


def test_skipping_past_the_end_warns() -> None:
    found, diagnostics = literals("begin { print(str($1 + 9)) }", "abc")
    assert found == [b""]
    assert [item.span.text for item in diagnostics.warnings] == ["9"]


NAMED = """begin {
  print(getopt("n", 5, "how many")); print(getopt("s", "dflt"));
  print(getopt("f")); print(getopt("g", true))
}"""


def test_named_defaults() -> None:
    assert literals(NAMED)[0] == [5, b"dflt", False, True]


def test_named_values() -> None:
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


def test_options_of_the_root_are_meant_by_any_of_their_names() -> None:
    text = DECLARED + 'begin { print(getopt("x")); print(getopt("failed")); print(getopt("lib")); }'
    assert literals(text)[0] == [False, False, b"/bin/sh"]
    assert literals(text, named=(("failed", None), ("lib", "a")))[0] == [True, True, b"a"]


def test_declarations_are_gone_after_substitution() -> None:
    program, _ = substituted("begin { }")
    assert [type(item).__name__ for item in program.items] == ["Probe"]


def test_a_declared_option_is_given_by_its_name_only() -> None:
    _, diagnostics = substituted('begin { print(getopt("failed", true)); }')
    (error,) = diagnostics.errors
    assert error.span.text == "true"
    assert error.notes[0].span.text.startswith('getopt("x|failed"')


def test_a_name_near_a_declared_one_is_a_mistake_and_others_are_parameters() -> None:
    _, diagnostics = substituted('begin { print(getopt("faild")); print(getopt("other")); }')
    (error,) = diagnostics.errors
    assert error.span.text == '"faild"'
    assert "did you mean 'failed'?" in error.hints


def test_unknown_parameters_name_the_declared_options() -> None:
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
