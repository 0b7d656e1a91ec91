"""Whether handlers are functions: programs of which each has a loop, called as that of CPython."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.runtime.elf.file import ElfFile
from pytrace.runtime.python.handlers import LOOP, HandlerTables, are_functions
from tests.support.compile import compiled, tool

_HANDLERS = 256
FUNCTIONS = 160
"""The least is 150, and some handlers are in several places."""
PIE, FIXED = ("-fPIE", "-pie"), ("-fno-pie", "-no-pie")


def tail_calls(functions: int, start: str) -> str:
    """A loop that calls *start*, which goes to functions, of which there are so many."""
    lines = ["typedef long handler(const unsigned char *, long); handler *table[256];"]
    lines += [
        f"static long f{number}(const unsigned char *at, long n) {{ return table[*at](at + 1, n ^ {number + 3}); }}"
        for number in range(functions)
    ]
    rows = ", ".join(f"f{number % functions}" for number in range(_HANDLERS))
    table = f"handler *table[256] = {{{rows}}};"
    begin = f"{start} static long start_frame(const unsigned char *at) {{ return table[*at](at + 1, 0); }}"
    loop = f"long {LOOP}(const unsigned char *at) {{ volatile long entry = 1; return start_frame(at) + entry; }}"
    return "\n".join([*lines, table, begin, loop, f"int main(void) {{ return {LOOP}((void *)main); }}"])


def _labels() -> str:
    """A loop with computed gotos."""
    rows = ", ".join(f"&&l{number}" for number in range(_HANDLERS))
    labels = "\n".join(f"l{number}: n ^= {number + 3}; goto *table[*at++];" for number in range(_HANDLERS))
    loop = f"long {LOOP}(const unsigned char *at) {{ static void *table[] = {{{rows}}}; long n = 0;\n"
    loop += f"goto *table[*at++];\n{labels}\n}}"
    return f"{loop}\nint main(void) {{ return {LOOP}((void *)main); }}"


def _found(path: Path) -> bool:
    with ElfFile.open(str(path)) as file:
        return are_functions(file)


@pytest.mark.parametrize("start", ["__attribute__((noinline))", "inline __attribute__((always_inline))"])
@pytest.mark.parametrize("options", [PIE, FIXED], ids=["pie", "fixed"])
def test_functions(tmp_path: Path, start: str, options: tuple[str, ...]) -> None:
    program = compiled(tmp_path, "tails", tail_calls(FUNCTIONS, start), "-O2", "-rdynamic", *options)
    assert _found(program)
    tool("strip", program)
    assert _found(program)
    tool("objcopy", "--remove-section=.eh_frame_hdr", program)
    assert not _found(program)


def test_a_few_functions(tmp_path: Path) -> None:
    """A table of a ``switch``, or of what is not instructions."""
    assert not _found(compiled(tmp_path, "few", tail_calls(40, ""), "-O2", "-rdynamic"))


@pytest.mark.parametrize("options", [PIE, FIXED], ids=["pie", "fixed"])
def test_labels(tmp_path: Path, options: tuple[str, ...]) -> None:
    program = compiled(tmp_path, "labels", _labels(), "-O2", "-fno-gcse", "-rdynamic", *options)
    with ElfFile.open(str(program)) as file:
        symbol, tables = file.any_symbol(LOOP), HandlerTables(file)
        assert symbol is not None
        found = list(tables.referred(symbol.address, tables.data(symbol.address, symbol.size)))
        assert any(len(set(table)) == _HANDLERS for table in found)
        assert not are_functions(file)


def test_no_loop() -> None:
    assert not _found(Path("/bin/sh").resolve())
