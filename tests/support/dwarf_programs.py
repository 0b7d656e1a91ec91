"""Compiled programs as units of DWARF, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytrace.runtime.binaries.dwarf_units import Die, FileSections, Unit, UnitTable
from pytrace.runtime.binaries.elf_file import ElfFile
from tests.support.compile import compiled

TEXT = """\
struct point { int x; unsigned flag : 3; char tag[8]; };
extern int rand(void);
static inline __attribute__((always_inline)) int innermost(int v) { return v + rand(); }
static inline __attribute__((always_inline)) int inner(int v) {
    return innermost(v) * 3;
}
__attribute__((noinline)) int work(struct point *p, int n) {
    int r = inner(p->x);
    if (n > 7) { int t = inner(n); r += t; }
    return r;
}
__attribute__((noinline)) int plain(int n) { return n * 5; }
int main(int argc, char **argv) { struct point p = {argc, 1, "t"}; (void)argv; return work(&p, 3) + plain(argc); }
"""
FORMS = ("-O2 -gdwarf-5", "-O2 -gdwarf-4", "-O0 -gdwarf-3 -gstrict-dwarf", "-O2 -g -gdwarf64")


def table(folder: Path, options: str, text: str = TEXT, *, language: str = "c", compiler: str = "") -> UnitTable:
    """The units of a program that is compiled with *options*."""
    path = compiled(folder, "program", text, *options.split(), language=language, compiler=compiler)
    return UnitTable(FileSections(ElfFile.open(str(path))))


def unit(folder: Path, options: str, text: str = TEXT, *, language: str = "c") -> Unit:
    """The unit of the program's own code."""
    return next(item for item in table(folder, options, text, language=language) if below(item.top))


def below(die: Die) -> list[Die]:
    """The functions directly below an entry that have code."""
    return [child for child in die.children() if child.tag == "DW_TAG_subprogram" and "DW_AT_low_pc" in child]


def entries(die: Die) -> Iterator[Die]:
    """An entry and all below it."""
    yield die
    for child in die.children():
        yield from entries(child)
