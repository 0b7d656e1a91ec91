"""BTF: what LLVM makes of the debug metadata."""

from __future__ import annotations

import re

import pytest

from pytrace.codegen.ir.module import quoted
from pytrace.codegen.lower import generator
from pytrace.core.options import CompileOptions
from tests.codegen.running import compiled
from tests.support.front import analyse
from tests.support.recorded import Facts


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("plain", '"plain"'),
        ('a"b', '"a\\22b"'),
        ("a\\b", '"a\\5Cb"'),
        ("é", '"\\C3\\A9"'),
        ("a\nb", '"a\\0Ab"'),
        ("\udcff", '"\\FF"'),
    ],
)
def test_strings(text: str, wanted: str) -> None:
    assert quoted(text) == wanted


def ir(script: str) -> str:
    text, _ = generator.generate(analyse(script).checked(), Facts(), CompileOptions())
    return text


def test_each_instruction_has_its_place_in_the_script() -> None:
    text = ir("begin {\n  @a[1] = 5;\n    print(pid);\n}")
    places = set(re.findall(r"!DILocation\(line: (\d+), column: (\d+)", text))
    assert {("2", "3"), ("3", "5")} <= places


def test_the_verifiers_log_shows_the_scripts_lines() -> None:
    assert b"print(pid);" in compiled("begin {\n    print(pid);\n}").elf


def test_code_of_macros_names_its_own_file() -> None:
    assert len(set(re.findall(r"!DIFile\(filename: (\S+),", ir('begin { assert(pid == 0, "x"); }')))) == 2


def test_equal_nodes_are_shared() -> None:
    text = ir("begin { @a[1] = 1; @b[1] = 1; @c[1] = 1; }")
    assert len(re.findall(r'!DIBasicType\(name: "int",', text)) == 1


def test_columns_have_ten_bits() -> None:
    found = re.findall(r"column: (\d+)", ir("begin {" + " " * 3000 + "print(pid); }"))
    assert max(map(int, found)) == 1023


@pytest.mark.parametrize(
    "script",
    [
        "begin { @a[1] = 1; }",
        "begin { for ($i : 0..2) { @ = $i; } }",
        "fn f($a: int64): int64 { return $a; } begin { print(f(1)); }",
    ],
)
def test_functions_and_maps_have_types(script: str) -> None:
    """The kernel wants the name of each parameter."""
    text = ir(script)
    functions = re.findall(r"^define (?:dso_local |internal )*\w+ @(\w+)\(", text, re.MULTILINE)
    described = set(re.findall(r'!DISubprogram\(name: "(\w+)"', text))
    assert functions
    assert set(functions) <= described
