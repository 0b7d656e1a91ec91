"""Type inference from removed code, and errors when a type cannot be inferred."""

from __future__ import annotations

import pytest

from pytrace.core.options import CompileOptions
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from tests.support.front import Result, analyse
from tests.support.rows import each_row

LEFT_OUT = 'config = { missing_probes = "ignore" }\n'


def map_types(found: Result, name: str = "@f") -> tuple[str | None, str]:
    info = found.checked().maps[name]
    return (None if info.key is None else str(info.key), str(info.value))


@each_row(
    "body",
    [
        "if (false) { @f[1, comm] = count(); }",
        "if (true) { $a = 1; } else { @f[1, comm] = count(); }",
        "if (1 == 2) { $a = 1; } else if (2 == 2) { $a = 2; } else { @f[1, comm] = count(); }",
        "false ? { @f[1, comm] = count(); } : { $a = 1; }",
        "if (cpid == 0) { return; @f[1, comm] = count(); }",
        "for ($i : 0..3) { break; @f[1, comm] = count(); }",
        "unroll(2) { if (0) { @f[1, comm] = count(); } }",
        "if comptime (false) { @f[1, comm] = count(); }",
        "if comptime (false) { if (true) { @f[1, comm] = count(); } }",
        "if (true || { @f[1, comm] = count(); true }) { $a = 1; }",
    ],
)
@each_row(
    "use",
    [
        "clear(@f)", "zero(@f)", "print(@f)", "print_clear(@f)", "_ = delete(@f, (1, comm))", "$n = len(@f)",
        "$h = has_key(@f, (1, comm))", "for ($kv : @f) { print($kv.0.1); }", "print(@f[1, comm])",
        "$x = (int64)@f[2, comm]",
    ],
)  # fmt: skip
def test_maps_that_only_removed_code_fills(body: str, use: str) -> None:
    assert map_types(analyse(f"begin {{ {body} }} end {{ {use}; }}")) == ("(int8,string[16])", "count_t")


@pytest.mark.parametrize("declared", ["", "let @f = hash(10); "])
def test_predicates_that_never_hold(declared: str) -> None:
    found = analyse(declared + "begin /has_cpid/ { @f[1] = 1; } end { clear(@f); }")
    assert map_types(found) == ("int8", "int8")
    assert not found.warnings


def test_types_do_not_depend_on_what_runs() -> None:
    script = 'begin { if (has_cpid) { @f["longer key"] = (uint8)1; } @f["k"] = (uint32)7; }'
    assert (
        map_types(analyse(script)) == map_types(analyse(script, CompileOptions(child=True))) == ("string[11]", "uint32")
    )


@pytest.mark.parametrize(
    "script",
    [
        'begin { @f = 1; if (false) { @f = "text"; } }',
        'begin { if (false) { @f = "text"; } @f = 1; }',
        "begin { if (false) { @f[1] = 1; } @f = 1; }",
        "begin { @f = 1; exit(); @f[2] = 1; }",
        "begin { if (false) { @f = (@f, 1); } @f = 1; }",
        "begin { if (false) { @f = nosuch + args.x; @f = sum(1); } @f = 1; }",
        "begin { if (false) { $s = sizeof(@f); @f = (int8)$s; } @f = 1; }",
    ],
)
def test_code_that_runs_decides(script: str) -> None:
    assert map_types(analyse(script)) == (None, "int8")


def test_nothing_of_it_reaches_the_generator() -> None:
    found = analyse('begin { if (false) { printf("%d", nosuch()); @only = 1; } @f = 1; exit(); print(@f); }').checked()
    assert [item.kind for item in found.event_list] == ["exit"]
    assert set(found.maps) == {"@f"}
    typed = {node for node in found.types if isinstance(node, nodes.Expr)}
    removed = [node for node in walk(found.units[0].body) if isinstance(node, nodes.StringLiteral)]
    assert removed
    assert not typed.intersection(removed)


def test_variables_take_their_types_from_it() -> None:
    found = analyse('begin { let $x; if (false) { $x = "text"; } printf("%s", $x); }')
    assert [str(info.type) for info in found.checked().variables.values()] == ["string[5]"] * 2
    assert not found.warnings


@pytest.mark.parametrize(
    ("declared", "types"),
    [("hash(5)", ("int64", "int64")), ("percpuhash(5)", ("int64", "count_t")), ("lruhash(5)", ("int64", "int64"))],
)
def test_a_declared_map_exists(declared: str, types: tuple[str, str]) -> None:
    found = analyse(f"let @f = {declared}; begin {{ clear(@f); print(@f); $n = len(@f); }}")
    assert map_types(found) == types
    assert found.checked().maps["@f"].kind == declared.partition("(")[0]


def test_a_declared_map_takes_the_key_that_it_is_asked_for() -> None:
    assert map_types(analyse("let @f = hash(5); begin { if (has_key(@f, comm)) { clear(@f); } }")) == (
        "string[16]",
        "int64",
    )


def test_a_declared_map_of_removed_code_is_used() -> None:
    assert not analyse("let @f = hash(5); begin { if (false) { @f[1] = 2; } }").warnings
    assert "never used" in analyse("let @f = hash(5); begin { }").warnings[0][1]


def test_probes_that_are_left_out_say_what_they_store() -> None:
    assert map_types(analyse(LEFT_OUT + "kprobe:nosuch { @f[arg0, comm] = count(); } begin { clear(@f); }")) == (
        "(uint64,string[16])",
        "count_t",
    )


def test_probes_that_the_filter_takes_out_say_what_they_store() -> None:
    script = "tracepoint:syscalls:sys_enter_openat { @f[args.dfd] = 1; } interval:s:1 { clear(@f); }"
    assert map_types(analyse(script, CompileOptions(probe_filter="interval"))) == map_types(analyse(script))


@pytest.mark.parametrize(
    ("script", "message", "note", "place"),
    [
        ("begin { clear(@f); }", "nothing is ever stored", "", ""),
        (LEFT_OUT + "tracepoint:no:such { @f[args.x] = 1; } begin { clear(@f); }", "only removed code",
         "this probe was skipped", "tracepoint:no:such"),
        (LEFT_OUT + "begin { print(@f[1]); } tracepoint:no:such { @f[1] = args.x; }", "only removed code",
         "this probe was skipped", "tracepoint:no:such"),
        ("begin { if (false) { @f = nosuch; } print(@f); }", "only removed code", "unreachable code",
         "@f = nosuch"),
        ("begin { if comptime (false) { @f = nosuch; } print(@f); }", "only removed code", "removed by if comptime",
         "@f = nosuch"),
    ],
)  # fmt: skip
def test_types_that_nothing_tells(script: str, message: str, note: str, place: str) -> None:
    found = analyse(script)
    (error,) = found.diagnostics.errors
    assert message in error.message
    assert [(item.message, item.span.text) for item in error.notes] == ([(note, place)] if note else [])


def test_hints_declare_what_the_removed_code_stores() -> None:
    found = analyse(LEFT_OUT + "tracepoint:no:such { @f[args.x] = count(); } begin { clear(@f); }")
    assert "let @f = percpuhash(" in found.diagnostics.errors[0].hints[0]


def test_ahead_of_time_files_do_not_need_what_is_left_out() -> None:
    assert not analyse("begin { if (false) { @f[1] = 1; } clear(@f); }", CompileOptions(ahead=True)).errors
