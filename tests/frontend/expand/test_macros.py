"""Macros of the language and of C."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core.options import CompileOptions
from pytrace.frontend.expand import c_definitions, imports, parameters
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from tests.frontend.expand.test_parameters import parse
from tests.support.front import Result, analyse


def values(result: Result) -> list[object]:
    """The constants that print() prints."""
    program = result.checked()
    return [program.constants.get(arguments[0]) for arguments in program.event_arguments.values() if arguments]


def test_arguments_are_expressions_also_inside_others() -> None:
    assert values(analyse("macro sq(x) { x * x } begin { print(sq(1 + 2)); }")) == [9]
    assert values(analyse("macro one() { 1 } begin { print(one); print(one()); }")) == [1, 1]
    assert values(analyse("macro a(x) { x + 1 } macro b(x) { a(a(x)) } begin { print(b(1)); }")) == [3]
    result = analyse(
        "macro size(t) { sizeof(t) } macro to(t, x) { (t)x } begin { print(size(uint32)); print(to(uint8, 300)); }"
    )
    assert values(result) == [4, 44]


def test_variables_of_macros_are_their_own() -> None:
    program = analyse(
        "macro inc($v, @m) { $v += 1; @m += 1; } begin { $a = 1; @c = 5; inc($a, @c); print($a); }"
    ).checked()
    assert set(program.maps) == {"@c"}
    result = analyse('macro m(x) { $t = x; $t + 1 } begin { $t = "text"; print(m(5)); print($t); }')
    program = result.checked()
    assert sorted(str(info.type) for info in set(program.variables.values())) == ["int8", "string[5]"]
    result = analyse("macro m() { print($a); } begin { $a = 1; m(); }")
    assert result.errors == [("1:19-21", "undefined variable $a")]
    assert [note.message for note in result.diagnostics.errors[0].notes] == ["expanded from here"]


def test_overloads_by_number_and_kind() -> None:
    text = "macro m() { 0 } macro m(a) { 1 } macro m($a) { 2 } macro m(@a) { 3 } macro m(a, b) { 4 }"
    result = analyse(
        text + " begin { $v = 1; @x = 1; print(m()); print(m(5)); print(m($v)); print(m(@x)); print(m(1, 2)); }"
    )
    assert values(result) == [0, 1, 2, 3, 4]


def test_container_of() -> None:
    program = analyse(
        "begin { $p = (int8 *)100; $t = container_of($p, struct task_struct, comm); print($t->pid); }"
    ).checked()
    assert "struct task_struct *" in {str(info.type) for info in program.variables.values()}
    offsets = [node for node in walk(program.units[0].body) if isinstance(node, nodes.Offsetof)]
    assert [program.constants[node] for node in offsets] == [8]


def test_own_macro_beats_the_library() -> None:
    assert values(analyse("macro assert(a, b) { print(a) } begin { assert(5, 6); }")) == [5]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("macro m(a) { a } begin { print(m(1, 2)); }", ["1:32-39", "1:1-8"]),
        ("macro m() { @x = 1; } begin { m(); }", ["1:13-15", "1:31-34"]),
        ("macro m() { m() } begin { m(); }", ["1:13-16", "1:27-30"]),
        ("macro m() { 1 } macro m() { 2 } begin { m(); }", ["1:17-24", "1:1-8"]),
        ("macro m($v) { $v } begin { print(m(5)); }", ["1:34-38", "1:1-8"]),
        ("macro m(a, a) { a } begin { print(m(1, 2)); }", ["1:12-13"]),
    ],
)
def test_refused(text: str, places: list[str]) -> None:
    from tests.support.front import place

    first = analyse(text).diagnostics.errors[0]
    assert [place(first.span), *(place(note.span) for note in first.notes)] == places


def test_errors_inside_the_library_are_placed_at_the_call() -> None:
    result = analyse('begin { for ($i : 0..5) { assert($i < 3, "no"); } }')
    assert result.errors[0][0] == "1:27-47"
    assert result.diagnostics.errors[0].notes[0].span.source.name == "stdlib/assert.bt"


def test_library_files_are_complete() -> None:
    for name, file in imports.LIBRARY_FILES.items():
        assert any(macro.name == name for macro in imports.load_library(file))
    files = {path.name for path in Path(imports.LIBRARY_FOLDER).glob("*.bt")}
    assert files == set(imports.LIBRARY_FILES.values())
    assert {macro.name for file in files for macro in imports.load_library(file)} == set(imports.LIBRARY_FILES)


def test_program_without_macros_is_not_copied() -> None:
    from pytrace.core.diagnostics import Diagnostics
    from pytrace.core.source import Source
    from pytrace.frontend.expand import macros
    from pytrace.frontend.syntax import parser
    from tests.support.recorded import Facts

    class NoMacros(Facts):
        def macro(self, _name: str) -> None:
            return None

    program = parser.parse(Source("x", "begin { print(pid + 1); }"), Diagnostics())
    assert macros.expand(program, NoMacros(), Diagnostics()).items[0] is program.items[0]


def test_members_of_records_that_exist_only_if() -> None:
    text = """
        getopt("t|time", false, "a"); getopt("n|name=NAME", "", "b");
        macro shown(x) { only_if(getopt("name") == "", x) }
        begin { print((time=only_if(getopt("time"), no_such_name), name=shown(1), more=only_if(true, 2), pid=3)); }
    """
    for options, names in (({}, ("name", "more", "pid")), ({"name": "x"}, ("more", "pid"))):
        program = analyse(text, CompileOptions(named=tuple(options.items()))).checked()
        assert [node.names for node in program.types if isinstance(node, nodes.RecordLiteral)] == [names]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("begin { $a = 1; print((x=only_if($a == 1, 2), y=3)); }",
         ("1:34-41", "the condition of only_if() must be known when the script is compiled")),
        ("begin { print((x=only_if(false, 2))); }",
         ("1:15-36", "the record has no member left: all conditions of only_if() are false")),
        ("begin { print(only_if(true, 2)); }", ("1:15-31", "only_if() is the value of a member of a record")),
    ],
)  # fmt: skip
def test_conditions_that_cannot_be_decided(text: str, message: tuple[str, str]) -> None:
    assert message in analyse(text).errors


def _doubling(start: str, step: str) -> str:
    return "\n".join([start, *(step.format(at, at - 1) for at in range(1, 31))])


@pytest.mark.parametrize(
    "text",
    [
        _doubling("macro m0() { 1 }", "macro m{0}() {{ m{1}() + m{1}() }}") + "\nbegin { print(m30()); }",
        _doubling("#define M0 1", "#define M{0} (M{1}+M{1})") + "\nbegin { print(M30); }",
        _doubling("#define M0 $1", "#define M{0} (M{1}+M{1})") + "\nbegin { print(M30); }",
        _doubling("macro m0(@m) { @m++ }", "macro m{0}(@m) {{ m{1}(@m); m{1}(@m); }}") + "\nbegin { m30(@x); }",
    ],
    ids=["macros", "C macros", "parameters", "statements"],
)
def test_macros_that_double_have_a_limit(text: str) -> None:
    """They would become 2^30 parts."""
    found = analyse(text, CompileOptions(positional=("1",)))
    (message,) = [message for _, message in found.errors]
    assert "macros become more than 100,000 parts" in message
    assert "twice" in found.diagnostics.errors[0].hints[0]


# ------------------------------------------------------------------------------------------------------------- c macros

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
    checked = _run("#define N $1\nbegin { print(str(N + 1)); }", "abc").checked()
    assert b"bc" in checked.constants.values()


def test_macros_of_c() -> None:
    checked = _run("struct s { int x; };\n#define N $1+$#\nbegin { print(N); }", "5").checked()
    assert 6 in checked.constants.values()
    checked = _run("#define N $1\nif comptime N == 3 { begin { } } else { end { } }", "3").checked()
    assert [unit.kind.name for unit in checked.units] == ["begin"]
    assert values(analyse("#define N 5\n#define SUM (N + 2)\nbegin { print(N); print(SUM); }")) == [5, 7]


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
