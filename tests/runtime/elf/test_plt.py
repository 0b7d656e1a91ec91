"""pytrace.runtime.elf.plt: which function each stub of a linkage table jumps to."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.runtime.elf import plt
from pytrace.runtime.elf.file import EM_AARCH64, EM_X86_64, ElfFile, Section
from pytrace.runtime.elf.symbol_table import Symbol
from tests.support.small_program import built


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("elf"))


def test_stubs_are_named(program: Path) -> None:
    names = [stub.name for stub in plt.stubs(ElfFile.open(str(program)))]
    assert names == ["atoi@plt"]
    stub = plt.stubs(ElfFile.open(str(program)))[0]
    dump = subprocess.run(["objdump", "-d", str(program)], capture_output=True, text=True, check=True).stdout
    assert f"{stub.address:016x} <atoi@plt>:" in dump


def linked(machine: int, table: str, *numbers: int, wide: bool = True, size: int = 16) -> Any:
    """A file with relocations for some symbols (``one``, ``two``), and a linkage table at 0x1000."""
    sections = {
        table: Section(table, 1, 0, 0x1000, 0, 32 + size * len(numbers), 0),
        ".rela.plt": Section(".rela.plt", 4, 0, 0, 0, 0, 0),
        ".dynsym": Section(".dynsym", 11, 0, 0, 0, 0, 0),
    }
    data = {
        ".rela.plt": b"".join(struct.pack("<QQq", 0, number << 32 | 7, 0) for number in numbers) + b"tail",
        ".dynsym": b"".join(struct.pack("<I20x", at) for at in (0, 1, 5)),
        ".dynstr": b"\0one\0two\0",
    }
    return SimpleNamespace(
        machine=machine,
        wide=wide,
        section=sections.get,
        linked=lambda _: Section(".dynstr", 3, 0, 0, 0, 0, 0),
        contents=lambda section: memoryview(data[section.name]),
    )


@pytest.mark.parametrize(
    ("machine", "table", "first"),
    [(EM_X86_64, ".plt", 0x1010), (EM_X86_64, ".plt.sec", 0x1000), (EM_AARCH64, ".plt", 0x1020)],
)
def test_the_first_stub_follows_the_header(machine: int, table: str, first: int) -> None:
    assert plt.stubs(linked(machine, table, 1, 2)) == [
        Symbol("one@plt", first, 16), Symbol("two@plt", first + 16, 16),
    ]  # fmt: skip


def test_the_order_is_that_of_the_relocations() -> None:
    """Some have no symbol (of functions that are chosen at run time), or one that is not there."""
    found = plt.stubs(linked(EM_X86_64, ".plt", 2, 0, 9, 1))
    assert [(stub.name, stub.address) for stub in found] == [("two@plt", 0x1010), ("one@plt", 0x1040)]


def test_no_stub_is_outside_the_table() -> None:
    assert [stub.name for stub in plt.stubs(linked(EM_AARCH64, ".plt", 1, 2, size=8))] == ["one@plt"]


@pytest.mark.parametrize(
    "file",
    [
        linked(243, ".plt", 1),
        linked(243, ".plt.sec", 1),
        linked(EM_X86_64, ".plt", 1, wide=False),
        linked(EM_X86_64, ".other", 1),
    ],
    ids=["machine", "machine with landing pads", "32 bits", "no table"],
)
def test_other_forms_have_no_stubs(file: Any) -> None:
    assert plt.stubs(file) == []
