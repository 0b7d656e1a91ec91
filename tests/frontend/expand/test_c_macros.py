"""C macros that stand for parameters of the script, and those without a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core.options import CompileOptions
from pytrace.frontend.expand import c_definitions, parameters
from pytrace.frontend.syntax import nodes
from tests.frontend.expand.test_parameters import parse
from tests.support.front import Result, analyse

BEFORE = "#define M $1 + 1\n#define A B\n#define B A\n"


def _run(text: str, *positional: str, **named: str) -> Result:
    return analyse(text, CompileOptions(positional=positional, named=tuple(named.items())))


def _printed(body: str, *positional: str, **named: str) -> object:
    """The constant that a script prints whose ``N`` is *body*."""
    checked = _run(f"{BEFORE}#define N {body}\nbegin {{ print(N); }}", *positional, **named).checked()
    call = next(x for x in nodes.walk(checked.units[0].body) if isinstance(x, nodes.Call) and x.name == "print")
    return checked.constants[call.args[0]]  # type: ignore[index]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("$1", 7),
        ("($1*2)", 14),
        ("$#", 1),
        ("$# + $1", 8),
        ("str($1)", b"7"),
        ("M", 8),
        ('getopt("n", 3)', 3),
        ("/* $1 */ 5 // $1", 5),
        ('"a" "b"', b"ab"),
    ],
)
def test_values(body: str, value: object) -> None:
    assert _printed(body, "7") == value


def test_a_named_parameter_is_given_and_listed() -> None:
    assert _printed('getopt("n", 3)', n="9") == 9
    program = parse('#define N getopt("n", 3, "a number")\nbegin { print(N); }')
    assert [(x.name, x.description) for x in parameters.used_parameters(program)] == [("n", "a number")]


def test_text_of_a_parameter() -> None:
    checked = _run("#define N $1\nbegin { print(str(N + 1)); }", "abc").checked()
    assert b"bc" in checked.constants.values()


def test_with_types_in_the_c_part() -> None:
    checked = _run("struct s { int x; };\n#define N $1+$#\nbegin { print(N); }", "5").checked()
    assert 6 in checked.constants.values()


def test_in_conditions_of_the_root() -> None:
    checked = _run("#define N $1\nif comptime N == 3 { begin { } } else { end { } }", "3").checked()
    assert [unit.kind.name for unit in checked.units] == ["begin"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('"x" 5', "the macro 'N' is not an expression: \"x\" 5"),
        ("$1 $1", "the macro 'N' is not an expression: $1 $1"),
        ("08", "the macro 'N' is not an expression: 08"),
        ("print(5);", "the macro 'N' is not an expression: print(5);"),
        ("", "the macro 'N' is empty; it has no value"),
        ("N+1", "unknown name 'N'"),
        ("A", "unknown name 'A'"),
    ],
)
def test_without_a_value(body: str, message: str) -> None:
    found = _run(f"{BEFORE}#define N {body}\nbegin {{ print(N); }}")
    assert found.errors == [("5:15-16", message)]
    assert not any("did you mean" in hint for hint in found.diagnostics.errors[0].hints)
    assert found.diagnostics.errors[0].notes[0].message == "defined here"


@pytest.mark.parametrize("use", ["F(3)", "F"])
def test_with_parameters(use: str) -> None:
    found = _run(f"#define F(x) x+1\nbegin {{ print({use}); }}")
    assert [message for _, message in found.errors] == ["'F' is a C macro with parameters, which scripts cannot call"]
    assert found.diagnostics.errors[0].hints == ("write it as a macro of the script: macro F(x) { x+1 }",)


def test_names_that_are_no_macros() -> None:
    text = "#define n $1\nmacro f(n) { n } begin { print(f(3)); print(member_exist(struct task_struct, n)); }"
    found = _run(text, "9").checked()
    assert 9 not in found.constants.values()


def test_under_conditions_and_in_headers(tmp_path: Path) -> None:
    (tmp_path / "n.h").write_text('#define N $1\n#define O getopt("n", 3)\n')
    header = f'#include "{tmp_path}/n.h"\nbegin {{ print(N); print(O); }}'
    condition = '#if 1\n#define N $1\n#define O getopt("n", 3)\n#endif\nbegin { print(N); print(O); }'
    for text in (header, condition):
        messages = {message for _, message in _run(text, "5").errors}
        assert messages == {"a C macro that stands for a parameter of the script is not possible here"}


def test_defined_again_and_undefined() -> None:
    program = parse("#define N 1\n#define N 2\n#define M 3\n#undef M\nbegin { }")
    assert {name: item.body for name, item in c_definitions.defined_macros(program).items()} == {"N": "2"}
