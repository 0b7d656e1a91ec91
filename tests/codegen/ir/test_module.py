"""The module: sections, maps, constants, late operands."""

from __future__ import annotations

import io

import pytest
from elftools.elf.elffile import ELFFile

from pytrace.codegen.ir import target
from pytrace.codegen.ir.module import Module, program_section
from pytrace.core.manifest import CompiledScript
from tests.codegen.running import compiled, printed


def section(script: CompiledScript, name: str) -> bytes | None:
    found = ELFFile(io.BytesIO(script.elf)).get_section_by_name(name)
    return None if found is None else found.data()


@pytest.mark.parametrize("licence", ["GPL", "Dual MIT/GPL"])
def test_the_licence(licence: str) -> None:
    script = compiled(f'config = {{ license = "{licence}" }} begin {{ }}')
    assert section(script, "license") == licence.encode() + b"\0"


def test_each_program_has_its_section() -> None:
    script = compiled("begin { } end { } interval:s:1 { }")
    for program in script.manifest.programs:
        assert program_section(program.symbol) == f"pytrace/{program.symbol}"
        assert section(script, f"pytrace/{program.symbol}")


def test_constants_are_there_once() -> None:
    script = compiled('begin { $a = "a rather long text"; print($a); $b = "a rather long text"; print($b); }')
    data = b"".join(
        item.data() for item in ELFFile(io.BytesIO(script.elf)).iter_sections() if item.name.startswith(".rodata")
    )
    assert data.count(b"a rather long text") <= 1


def test_numbers_of_the_layout_may_be_asked_for_before_they_are_known() -> None:
    """The stride of a CPU's block depends on what the last program counts."""
    assert printed("@a = count(); @b[1] = 1; @h = hist(5); $x = (int64)@a; print($x);") == [1]


def test_an_empty_module_compiles() -> None:
    module = Module(None, "GPL")
    assert target.elf(target.parse(module.text(0, 0), verify=True))
