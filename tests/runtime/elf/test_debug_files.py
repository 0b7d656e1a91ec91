"""pytrace.runtime.elf.debug_files: which file has the symbols and DWARF of a stripped binary."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.cli import options, request
from pytrace.runtime.binaries.user_binary import UserBinaries
from pytrace.runtime.elf import debug_files
from pytrace.runtime.elf.file import ElfFile
from tests.support.compile import tool
from tests.support.small_program import addresses, another_build, built, split


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("elf"))


def test_debug_link_beside_the_binary(program: Path, tmp_path: Path) -> None:
    stripped, debug = split(program, tmp_path)
    binary = UserBinaries().binary(str(stripped))
    assert binary.elf.debug_link is not None
    assert binary.elf.debug_link[0] == "stripped.debug"
    assert binary.debug_path == str(debug)
    assert [symbol.address for symbol in binary.functions("hidden")] == [addresses(program)["hidden"]]
    assert binary.debug is not None


def test_debug_file_by_build_id(program: Path, tmp_path: Path) -> None:
    stripped, debug = split(program, tmp_path)
    store = tmp_path / "store"
    build_id = ElfFile.open(str(program)).build_id
    place = store / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    place.parent.mkdir(parents=True)
    debug.rename(place)
    assert UserBinaries().binary(str(stripped)).functions("hidden") == []
    assert UserBinaries((f"{tmp_path}/nothing:{store}",)).binary(str(stripped)).debug_path == str(place)


def test_debug_file_of_another_build_is_refused(program: Path, tmp_path: Path) -> None:
    stripped, debug = split(program, tmp_path)
    other = another_build(tmp_path)
    tool("objcopy", "--only-keep-debug", other, debug)
    assert debug_files.find(ElfFile.open(str(stripped)), debug_files.DEFAULT_DIRECTORIES) is None


def test_checksum_is_enough_when_asked_for(program: Path, tmp_path: Path) -> None:
    bare = built(tmp_path, "bare", build_id=False)
    stripped, debug = split(bare, tmp_path)
    assert debug_files.find(ElfFile.open(str(stripped)), ("+",)) == str(debug)
    debug.write_bytes(debug.read_bytes() + b"\0")
    assert debug_files.find(ElfFile.open(str(stripped)), ("+",)) is None


def _named_folders(*words: str) -> tuple[str, ...]:
    return request.run_options(options.read([*words, "-e", "begin {}"])).debuginfo


def test_folders_are_relative_to_the_binary_and_to_the_working_directory(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stripped, debug = split(program, tmp_path)
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
    stripped, debug = split(program, tmp_path)
    if not linked:
        tool("objcopy", "--remove-section=.gnu_debuglink", stripped)
    store = tmp_path / "store"
    store.mkdir()
    place = debug.rename(store / f"{stripped.name}.debug")
    assert UserBinaries((str(store),)).binary(str(stripped)).debug_path == str(place)
    place.write_bytes(program.read_bytes()[:-1] + b"\1")
    assert UserBinaries((str(store),)).binary(str(stripped)).debug_path == str(place), "its build id is the same"
    other = another_build(tmp_path)
    tool("objcopy", "--only-keep-debug", other, place)
    assert UserBinaries((str(store),)).binary(str(stripped)).debug_path is None, "it is of another build"


def test_a_store_of_build_ids_relative_to_the_binary(program: Path, tmp_path: Path) -> None:
    stripped, debug = split(program, tmp_path)
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
