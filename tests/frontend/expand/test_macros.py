"""Macro expansion: hygiene, overloads, library, C macros."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core.options import CompileOptions
from pytrace.frontend.expand import imports
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from tests.support.front import Result, analyse


def values(result: Result) -> list[object]:
    """The constants that print() prints."""
    program = result.checked()
    return [program.constants.get(arguments[0]) for arguments in program.event_arguments.values() if arguments]


def test_arguments_are_expressions() -> None:
    assert values(analyse("macro sq(x) { x * x } begin { print(sq(1 + 2)); }")) == [9]


def test_plain_name_without_arguments() -> None:
    assert values(analyse("macro one() { 1 } begin { print(one); print(one()); }")) == [1, 1]


def test_variable_and_map_parameters() -> None:
    program = analyse(
        "macro inc($v, @m) { $v += 1; @m += 1; } begin { $a = 1; @c = 5; inc($a, @c); print($a); }"
    ).checked()
    assert set(program.maps) == {"@c"}


def test_variables_of_the_body_are_its_own() -> None:
    result = analyse('macro m(x) { $t = x; $t + 1 } begin { $t = "text"; print(m(5)); print($t); }')
    program = result.checked()
    assert sorted(str(info.type) for info in set(program.variables.values())) == ["int8", "string[5]"]


def test_body_does_not_see_outer_variables() -> None:
    result = analyse("macro m() { print($a); } begin { $a = 1; m(); }")
    assert result.errors == [("1:19-21", "undefined variable $a")]
    assert [note.message for note in result.diagnostics.errors[0].notes] == ["expanded from here"]


def test_overloads_by_number_and_kind() -> None:
    text = "macro m() { 0 } macro m(a) { 1 } macro m($a) { 2 } macro m(@a) { 3 } macro m(a, b) { 4 }"
    result = analyse(
        text + " begin { $v = 1; @x = 1; print(m()); print(m(5)); print(m($v)); print(m(@x)); print(m(1, 2)); }"
    )
    assert values(result) == [0, 1, 2, 3, 4]


def test_expansion_inside_expansion() -> None:
    assert values(analyse("macro a(x) { x + 1 } macro b(x) { a(a(x)) } begin { print(b(1)); }")) == [3]


def test_types_as_arguments() -> None:
    result = analyse(
        "macro size(t) { sizeof(t) } macro to(t, x) { (t)x } begin { print(size(uint32)); print(to(uint8, 300)); }"
    )
    assert values(result) == [4, 44]


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


def test_c_macros() -> None:
    assert values(analyse("#define N 5\n#define SUM (N + 2)\nbegin { print(N); print(SUM); }")) == [5, 7]


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
