from __future__ import annotations

from pytrace.multitools import script_parts
from pytrace.multitools.script_parts import Naming


def test_blocks_indent_what_they_hold() -> None:
    inner = script_parts.block("if (1)", ["a;", "b;"])
    assert script_parts.block("end", [inner]) == "end {\n    if (1) {\n        a;\n        b;\n    }\n}"


def test_predicates_are_joined() -> None:
    text = script_parts.probe(["a", "b"], ["x;"], ["", "cpu == 1", "p || q"])
    assert text == "a, b /cpu == 1 && (p || q)/ {\n    x;\n}"
    assert script_parts.probe(["a"], ["x;"]) == "a {\n    x;\n}"


def test_literals_are_escaped() -> None:
    assert script_parts.literal('a"b\\c\nd') == r'"a\"b\\c\nd"'


def test_empty_parts_leave_no_gap() -> None:
    assert script_parts.script("a", "", "b") == "a\n\nb\n"


def test_names_are_shown_without_what_is_the_same_for_all() -> None:
    assert Naming("func").shown("$x") == "$x"
    assert Naming("probe", 12).shown("$x") == "str((int8 *)&$x + 12, 128)"


def test_frames_hold_what_is_needed_only() -> None:
    assert script_parts.enter(None)[-1] == "@frame[tid, $level] = (function=func, start=nsecs);"
    assert script_parts.enter(Naming("func"))[-1] == "@frame[tid, $level] = (function=func, start=nsecs);"
    assert "name=probe, arg1=arg0" in script_parts.enter(Naming("probe"), more=(("arg1", "arg0"),))[-1]
    assert "@callees" not in " ".join(script_parts.enter(None) + script_parts.leave([]))
    assert "@callees" in " ".join(script_parts.leave([], callees=True))


def test_predicates_keep_their_parentheses() -> None:
    assert script_parts.unless("(a == 1)") == "if (!(a == 1)) { return; }"
    assert script_parts.unless("(a) || (b)") == "if (!((a) || (b))) { return; }"


def test_outputs() -> None:
    shown = "{\n    x;\n}"
    assert script_parts.outputs(0, 0, ["x;"]) == f"end {shown}"
    assert script_parts.outputs(5_000_000_000, 0, ["x;"]) == f"interval:s:5, end {shown}"
    assert script_parts.outputs(500_000_000, 700_000_000, ["x;"]) == f"interval:ms:500, end {shown}"
    assert script_parts.outputs(1_500, 0, ["x;"]) == f"interval:us:1, end {shown}"
    assert script_parts.outputs(0, 3_000_000_000, ["x;"]) == f"end {shown}"
    counted = "{\n    x;\n    @outputs++;\n    if (@outputs >= 3) { exit(); }\n}"
    assert script_parts.outputs(10**9, 3 * 10**9, ["x;"]) == f"interval:s:1, end /@outputs < 3/ {counted}"
    assert script_parts.stamp(wanted=False) == []
