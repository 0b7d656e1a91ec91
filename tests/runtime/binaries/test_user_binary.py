"""pytrace.runtime.binaries.user_binary: functions, variables and lines of compiled programs."""

from __future__ import annotations

import lzma
import subprocess
import time
from pathlib import Path

import pytest

from pytrace.runtime.binaries.user_binary import Binary, UserBinaries
from tests.support.compile import compiled, tool
from tests.support.pace import unit
from tests.support.small_program import addresses, built


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("elf"))


def test_functions_have_the_addresses_of_nm(program: Path) -> None:
    known = addresses(program)
    binary = Binary.open(str(program))
    for name in ("helper", "help", "hidden", "main"):
        (symbol,) = binary.functions(name)
        assert (symbol.name, symbol.address) == (name, known[name])
        assert symbol.size > 0
    assert binary.functions("counter") == [], "a variable is no function"
    assert binary.functions("atoi") == [], "only what is defined here"
    assert binary.variable_address("counter") == known["counter"]
    assert binary.variable_address("nothing") is None


def test_patterns(program: Path) -> None:
    binary = Binary.open(str(program))
    assert {symbol.name for symbol in binary.functions("hel*")} == {"helper", "help"}
    assert binary.function_lines("h*") == "help\nhelper\nhidden"
    assert binary.functions("elper") == [], "the tail of another name"


def test_code_is_found_by_address(program: Path) -> None:
    binary = Binary.open(str(program))
    (symbol,) = binary.functions("helper")
    assert binary.covering(symbol.address + symbol.size - 1) == symbol
    assert binary.covering(0) is None
    offset = binary.elf.file_offset(symbol.address)
    assert offset is not None
    assert binary.elf.address_at(offset) == symbol.address
    # The code at that offset of the file is that of the function.
    dump = subprocess.run(
        ["objdump", "-d", "--disassemble=helper", str(program)], capture_output=True, text=True, check=True
    )
    first = next(line for line in dump.stdout.splitlines() if f" {symbol.address:x}:" in f" {line.strip()}")
    octets = bytes.fromhex("".join(first.split("\t")[1].split()))
    assert program.read_bytes()[offset : offset + len(octets)] == octets


def test_mini_debug_info(program: Path, tmp_path: Path) -> None:
    stripped, mini, packed = tmp_path / "mini-program", tmp_path / "mini", tmp_path / "mini.xz"
    tool("objcopy", "--only-keep-debug", "--keep-symbol=hidden", "--strip-debug", program, mini)
    packed.write_bytes(lzma.compress(mini.read_bytes()))
    tool("objcopy", "--strip-all", f"--add-section=.gnu_debugdata={packed}", program, stripped)
    binary = UserBinaries((str(tmp_path / "none"),)).binary(str(stripped))
    assert [symbol.address for symbol in binary.functions("hidden")] == [addresses(program)["hidden"]]


def test_a_replaced_binary_is_read_again(tmp_path: Path) -> None:
    path = compiled(tmp_path, "changing", "int one(void) { return 1; } int main(void) { return one(); }\n")
    binaries = UserBinaries()
    assert binaries.symbols(str(path), "one")
    path.unlink()
    compiled(tmp_path, "changing", "int two(void) { return 2; } int main(void) { return two(); }\n")
    assert not binaries.symbols(str(path), "one")
    assert binaries.symbols(str(path), "two")


def test_a_large_library_is_quick() -> None:
    binding = pytest.importorskip("llvmlite.binding.ffi")
    path = str(Path(binding.__file__).parent / "libllvmlite.so")
    start = time.process_time()
    names = UserBinaries().binary(path).function_lines("*").split("\n")
    spent = time.process_time() - start
    assert len(names) > 100_000
    assert names == sorted(set(names))
    assert spent < 500 * unit()
