"""pytrace.runtime.elf.plt: which function each stub of a linkage table jumps to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytrace.runtime.elf import plt
from pytrace.runtime.elf.file import ElfFile
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
