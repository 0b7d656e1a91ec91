"""pytrace.runtime.elf.file, debug_files, plt: symbols, addresses, debug files of compiled programs."""

from __future__ import annotations

import lzma
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

from pytrace.cli import options, request
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries.user_binary import Binary, UserBinaries
from pytrace.runtime.elf import debug_files, plt
from pytrace.runtime.elf.file import ElfFile, archive_member, attach_path, is_elf
from pytrace.runtime.live_kernel import LiveKernel
from tests.support.compile import compiled, tool
from tests.support.pace import unit

PROGRAM = """
#include <stdlib.h>
int counter = 7;
__attribute__((noinline)) int helper(int n) { return n + counter; }
__attribute__((noinline)) int help(int n) { return helper(n) * 2; }
static __attribute__((noinline)) int hidden(int n) { return n - 1; }
int main(int argc, char **argv) { (void)argv; return help(hidden(argc)) + atoi("3"); }
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    return compiled(folder, "program", PROGRAM, "-g", "-O1", "-fno-inline", "-Wl,--build-id")


def _nm(path: Path) -> dict[str, int]:
    text = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout
    return {row.split()[-1]: int(row.split()[0], 16) for row in text.splitlines() if len(row.split()) == 3}


def test_functions_have_the_addresses_of_nm(program: Path) -> None:
    known = _nm(program)
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


def test_stubs_are_named(program: Path) -> None:
    names = [stub.name for stub in plt.stubs(ElfFile.open(str(program)))]
    assert names == ["atoi@plt"]
    stub = plt.stubs(ElfFile.open(str(program)))[0]
    dump = subprocess.run(["objdump", "-d", str(program)], capture_output=True, text=True, check=True).stdout
    assert f"{stub.address:016x} <atoi@plt>:" in dump


def test_build_id(program: Path) -> None:
    notes = subprocess.run(["readelf", "-n", str(program)], capture_output=True, text=True, check=True).stdout
    assert f"Build ID: {ElfFile.open(str(program)).build_id}" in notes


def _split(program: Path, folder: Path) -> tuple[Path, Path]:
    """A stripped copy with a debug link, and its debug file beside it."""
    stripped, debug = folder / "stripped", folder / "stripped.debug"
    tool("objcopy", "--only-keep-debug", program, debug)
    tool("objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", program, stripped)
    return stripped, debug


def test_debug_link_beside_the_binary(program: Path, tmp_path: Path) -> None:
    stripped, debug = _split(program, tmp_path)
    binary = UserBinaries().binary(str(stripped))
    assert binary.elf.debug_link is not None
    assert binary.elf.debug_link[0] == "stripped.debug"
    assert binary.debug_path == str(debug)
    assert [symbol.address for symbol in binary.functions("hidden")] == [_nm(program)["hidden"]]
    assert binary.debug is not None


def test_debug_file_by_build_id(program: Path, tmp_path: Path) -> None:
    stripped, debug = _split(program, tmp_path)
    store = tmp_path / "store"
    build_id = ElfFile.open(str(program)).build_id
    place = store / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    place.parent.mkdir(parents=True)
    debug.rename(place)
    assert UserBinaries().binary(str(stripped)).functions("hidden") == []
    assert UserBinaries((f"{tmp_path}/nothing:{store}",)).binary(str(stripped)).debug_path == str(place)


def test_debug_file_of_another_build_is_refused(program: Path, tmp_path: Path) -> None:
    stripped, debug = _split(program, tmp_path)
    other = compiled(tmp_path, "other", PROGRAM.replace("n - 1", "n - 2"), "-g", "-O1", "-Wl,--build-id")
    tool("objcopy", "--only-keep-debug", other, debug)
    assert debug_files.find(ElfFile.open(str(stripped)), debug_files.DEFAULT_DIRECTORIES) is None


def test_checksum_is_enough_when_asked_for(program: Path, tmp_path: Path) -> None:
    bare = compiled(tmp_path, "bare", PROGRAM, "-g", "-O1", "-Wl,--build-id=none")
    stripped, debug = _split(bare, tmp_path)
    assert debug_files.find(ElfFile.open(str(stripped)), ("+",)) == str(debug)
    debug.write_bytes(debug.read_bytes() + b"\0")
    assert debug_files.find(ElfFile.open(str(stripped)), ("+",)) is None


def test_mini_debug_info(program: Path, tmp_path: Path) -> None:
    stripped, mini, packed = tmp_path / "mini-program", tmp_path / "mini", tmp_path / "mini.xz"
    tool("objcopy", "--only-keep-debug", "--keep-symbol=hidden", "--strip-debug", program, mini)
    packed.write_bytes(lzma.compress(mini.read_bytes()))
    tool("objcopy", "--strip-all", f"--add-section=.gnu_debugdata={packed}", program, stripped)
    binary = UserBinaries((str(tmp_path / "none"),)).binary(str(stripped))
    assert [symbol.address for symbol in binary.functions("hidden")] == [_nm(program)["hidden"]]


def test_library_in_an_archive(tmp_path: Path) -> None:
    library = compiled(tmp_path, "libthing.so", "int thing(int n) { return n + 1; }\n", "-shared", "-fPIC")
    archive = tmp_path / "base.apk"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as made:
        made.writestr("AndroidManifest.xml", "x" * 100)
        made.write(library, "lib/x86_64/libthing.so")
    path = f"{archive}!/lib/x86_64/libthing.so"
    (symbol,) = UserBinaries().symbols(path, "thing")
    plain = UserBinaries().symbols(str(library), "thing")[0]
    start, size = archive_member(str(archive), "lib/x86_64/libthing.so")
    assert size == library.stat().st_size
    assert symbol.offset == plain.offset + start
    assert (
        archive.read_bytes()[symbol.offset : symbol.offset + 4] == library.read_bytes()[plain.offset : plain.offset + 4]
    )
    assert attach_path(path) == str(archive)
    assert UserBinaries().binary(path).elf.address_at(symbol.offset) == plain.address
    # What is asked about offsets inside of functions: whether an instruction starts there.
    assert LiveKernel().user_code(path, symbol.offset, symbol.size) == LiveKernel().user_code(
        str(library), plain.offset, plain.size
    )


def test_compressed_member_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "base.apk"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("lib/libx.so", b"\x7fELF" * 100)
    with pytest.raises(TraceError, match="compressed"):
        archive_member(str(archive), "lib/libx.so")
    with pytest.raises(TraceError, match="no member"):
        archive_member(str(archive), "lib/liby.so")


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 80])
def test_what_is_no_elf_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing"
    path.write_bytes(content)
    with pytest.raises(TraceError):
        UserBinaries().symbols(str(path), "*")


def test_is_elf(program: Path, tmp_path: Path) -> None:
    assert is_elf(str(program))
    assert not is_elf(__file__)
    assert not is_elf(str(tmp_path / "missing"))


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


# ---------------------------------------------------------------------------------------------- --debuginfo


def _named_folders(*words: str) -> tuple[str, ...]:
    return request.run_options(options.read([*words, "-e", "begin {}"])).debuginfo


def test_folders_are_relative_to_the_binary_and_to_the_working_directory(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stripped, debug = _split(program, tmp_path)
    elsewhere = tmp_path / "elsewhere"
    for folder in (tmp_path / "symbols", elsewhere / "symbols"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    for place in (tmp_path / "symbols" / debug.name, elsewhere / "symbols" / debug.name):
        debug = debug.rename(place)
        found = UserBinaries(_named_folders("--debuginfo=symbols")).binary(str(stripped)).debug_path
        assert found == str(place)


@pytest.mark.parametrize("linked", [True, False])
def test_a_debug_file_by_the_name_of_its_binary(linked: bool, program: Path, tmp_path: Path) -> None:
    stripped, debug = _split(program, tmp_path)
    if not linked:
        tool("objcopy", "--remove-section=.gnu_debuglink", stripped)
    store = tmp_path / "store"
    store.mkdir()
    place = debug.rename(store / f"{stripped.name}.debug")
    assert UserBinaries((str(store),)).binary(str(stripped)).debug_path == str(place)
    place.write_bytes(program.read_bytes()[:-1] + b"\1")
    assert UserBinaries((str(store),)).binary(str(stripped)).debug_path == str(place), "its build id is the same"
    other = compiled(tmp_path, "other", PROGRAM.replace("n - 1", "n - 2"), "-g", "-O1", "-Wl,--build-id")
    tool("objcopy", "--only-keep-debug", other, place)
    assert UserBinaries((str(store),)).binary(str(stripped)).debug_path is None, "it is of another build"


def test_a_store_of_build_ids_relative_to_the_binary(program: Path, tmp_path: Path) -> None:
    stripped, debug = _split(program, tmp_path)
    build_id = ElfFile.open(str(program)).build_id
    place = tmp_path / "store" / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    place.parent.mkdir(parents=True)
    debug.rename(place)
    assert UserBinaries(("store",)).binary(str(stripped)).debug_path == str(place)


def test_folders_are_part_of_what_compiled_scripts_are_kept_by() -> None:
    line = options.read(["--debuginfo=a:+b:/c", "-e", "begin {}"])
    run = request.run_options(line)
    assert run.debuginfo == ("a", f"{Path.cwd()}/a", "+b", f"+{Path.cwd()}/b", "/c")
    assert request.compile_options(line, run, None).debuginfo == run.debuginfo
