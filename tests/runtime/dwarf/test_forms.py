"""pytrace.runtime.dwarf.forms and dwarf_units: the ways past entries lead where pyelftools gets by reading them all."""

from __future__ import annotations

from pathlib import Path

import pytest
from elftools.common.exceptions import DWARFError

from pytrace.runtime.dwarf.sections import FileSections
from pytrace.runtime.dwarf.units import Die, UnitTable
from pytrace.runtime.elf.file import ElfFile
from tests.support.compile import compiled, tool

TEXT = """
#include <string>
#include <map>
namespace zoo { struct Cat { std::string name; const int legs = 4; int walk(int n) const; }; }
int zoo::Cat::walk(int n) const { static const char *says = "miau"; return n * legs + says[n % 4]; }
int main(int argc, char **argv) {
    std::map<std::string, zoo::Cat> cats;
    for (int number = 0; number < argc; number++) { cats[argv[number]].walk(number); }
    return (int)cats.size();
}
"""
FORMS = [
    "-gdwarf-2 -gstrict-dwarf",
    "-gdwarf-4",
    "-gdwarf-5",
    "-gdwarf-5 -fdebug-types-section",
    "-gdwarf-4 -gsplit-dwarf",
]


@pytest.mark.parametrize(("form", "compiler", "level"), [
    (form, compiler, level)
    for number, form in enumerate(FORMS)
    for compiler, level in zip(("g++", "clang++"), ("-O0", "-O2") if number % 2 else ("-O2", "-O0"), strict=True)
])  # fmt: skip
def test_entries_are_those_that_pyelftools_reads(form: str, level: str, compiler: str, tmp_path: Path) -> None:
    path = compiled(tmp_path, "cats", TEXT, level, *form.split(), "-c", language="c++", compiler=compiler)
    split = "split" in form
    if split:
        path = path.with_suffix(".dwo")
    table = UnitTable(FileSections(ElfFile.open(str(path)), split=split))
    checked = 0
    for unit in table:
        waiting = [unit.top]
        while waiting:
            die = waiting.pop()
            mine = [child.offset for child in die.children()]
            assert mine == [child.offset for child in die.iter_children()]
            checked += len(mine)
            waiting += die.children()
    assert checked > 1000
    assert {die.tag for die in _subprograms(table)} == {"DW_TAG_subprogram"}


def _subprograms(table: UnitTable) -> list[Die]:
    return [die for unit in table for die in unit.top.children(lambda shape: shape.tag == "DW_TAG_subprogram")]


def test_tables_of_abbreviations_end(tmp_path: Path) -> None:
    path = compiled(tmp_path, "plain", "int main(void) { return 0; }\n", "-g", "-c")
    tool("objcopy", "--update-section", f".debug_abbrev={_file(tmp_path, bytes(64))}", path)
    table = UnitTable(FileSections(ElfFile.open(str(path))))
    with pytest.raises(DWARFError, match="abbreviation 1 is missing"):
        assert next(iter(table)).top


def _file(folder: Path, data: bytes) -> Path:
    path = folder / "data"
    path.write_bytes(data)
    return path
