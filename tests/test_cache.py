"""Tests of the compile cache."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from msgspec.structs import replace

import pytrace
from pytrace import cache
from pytrace.base import private_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import CompiledScript, Manifest
from pytrace.core.options import CompileOptions, Config, ProcessFilters
from pytrace.core.source import Source
from tests.core.test_manifest import SCRIPT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # Somebody may edit pytrace while its tests run.
    monkeypatch.setattr(cache, "_IMPORTED", time.time_ns() + (1 << 60))
    return tmp_path / "pytrace" / "scripts"


def _script(elf: bytes = b"ELF", facts: tuple[tuple[str, ...], ...] = (("kernel", "1"),)) -> CompiledScript:
    return CompiledScript(elf, Manifest((), (), (), ("a", "b"), Config(max_strlen=1), facts=facts))


def test_what_is_stored_comes_back(folder: Path) -> None:
    cache.store("one", _script())
    assert (folder / "one").exists()
    found = cache.load("one", CompileOptions(), lambda facts: facts == (("kernel", "1"),))
    assert found == _script()


def test_all_sections_of_a_manifest_come_back(folder: Path) -> None:
    cache.store("all", SCRIPT)
    assert cache.load("all", CompileOptions(), lambda facts: True) == SCRIPT


def test_facts_that_changed_make_a_miss(folder: Path) -> None:
    cache.store("one", _script())
    assert cache.load("one", CompileOptions(), lambda facts: False) is None
    assert cache.load("other", CompileOptions(), lambda facts: True) is None


def test_entries_of_another_format_are_misses(folder: Path) -> None:
    cache.store("one", _script())
    data = private_files.read(cache.KIND, "one") or b""
    start = data.index(b"\n") + 1
    size = data[:start] + b"\xff\xff\xff\xff" + data[start + 4 :]
    other = data[: start + 8] + b"i" + data[start + 9 :]
    for broken in (b"", b"junk", data[:20], data[: start + 4], data[: start + 20], size, other):
        private_files.write(cache.KIND, "one", broken)
        assert cache.load("one", CompileOptions(), lambda facts: True) is None


def test_damage_anywhere_in_an_entry_is_a_miss(folder: Path) -> None:
    cache.store("one", _script(b"ELF" * 100))
    data = (folder / "one").read_bytes()
    for at in range(0, len(data), 7):
        (folder / "one").write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        assert cache.load("one", CompileOptions(), lambda facts: True) is None
        assert not (folder / "one").exists()


def test_a_folder_that_others_may_write_to_is_not_trusted(folder: Path) -> None:
    cache.store("one", _script())
    folder.chmod(0o777)
    assert cache.load("one", CompileOptions(), lambda facts: True) is None


def test_old_entries_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "KEEP", 3)
    for number in range(6):
        cache.store(f"entry{number}", _script())
        os.utime(folder / f"entry{number}", ns=(number, number))
    kept = sorted(path.name for path in folder.iterdir())
    assert len(kept) == 3
    assert "entry5" in kept


def test_the_key_depends_on_script_and_options() -> None:
    options = CompileOptions(environment={"PYTRACE_X": "1"})
    keys = {
        cache.key("a", "n", options),
        cache.key("b", "n", options),
        cache.key("a", "m", options),
        cache.key("a", "n", replace(options, filters=ProcessFilters(pids=(4,)))),
        cache.key("a", "n", replace(options, environment={"PYTRACE_X": "2"})),
        cache.key("a", "n", replace(options, no_features=frozenset({"kprobe_multi"}))),
    }
    assert len(keys) == 6
    # What runs is no part of the code.
    assert cache.key("a", "n", replace(options, child_command="ls /")) in keys
    assert cache.key("a\udcff", "n", options) != cache.key("a\udcfe", "n", options)


@pytest.fixture
def checkout(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two modules that this process imported, one that it did not, and a library file."""
    package = tmp_path / "checkout" / "pytrace"
    for path in ("__init__.py", "compiler/deep.py", "compiler/flat.py", "other.py", "stdlib/a.bt"):
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).touch()
        os.utime(package / path, (1, 1))
    (package.parent / "pyproject.toml").touch()
    monkeypatch.setattr("pytrace.__file__", str(package / "__init__.py"))
    modules = {name: ModuleType(name) for name in ("pytrace.compiler.deep", "pytrace.compiler.flat", "elsewhere")}
    for name, module in modules.items():
        module.__file__ = str(package.parent / name.replace(".", "/")) + ".py"
    monkeypatch.setattr(cache, "sys", SimpleNamespace(modules=modules))
    cache.changes.cache_clear()
    return package


def found() -> bool:
    """Whether another process would find the entry."""
    cache.changes.cache_clear()
    return cache.load("one", CompileOptions(), lambda facts: True) is not None


@pytest.mark.parametrize("changed", ["compiler/deep.py", "compiler/flat.py", "stdlib/a.bt"])
def test_a_changed_source_file_makes_misses(checkout: Path, changed: str) -> None:
    cache.store("one", _script())
    assert found()
    os.utime(checkout / changed, (2, 2))
    assert not found()
    os.utime(checkout / changed, (0, 0))
    assert not found(), "older, as after going back to another commit"
    cache.store("one", _script())
    assert found()
    (checkout / changed).unlink()
    assert not found()


def test_a_file_that_no_compilation_read_may_change(checkout: Path) -> None:
    cache.store("one", _script())
    os.utime(checkout / "other.py", (2, 2))
    assert found()


def test_what_older_code_compiled_is_not_kept(
    checkout: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was changed while the process ran is not the code that ran."""
    monkeypatch.setattr(cache, "_IMPORTED", time.time_ns() - (1 << 40))
    (checkout / "compiler/deep.py").touch()
    assert cache.store("one", _script())
    assert not (folder / "one").exists()


def test_a_released_package_does_not_change(checkout: Path) -> None:
    options = CompileOptions()
    of_checkout = cache.key("a", "n", options)
    (checkout.parent / "pyproject.toml").unlink()
    assert cache.key("a", "n", options) != of_checkout
    assert cache.made_by() == b""
    cache.store("one", _script())
    os.utime(checkout / "compiler/deep.py", (2, 2))
    assert found()


def test_data_files_lie_where_the_cache_looks() -> None:
    package = Path(pytrace.__file__).parent
    files = [path for path in package.rglob("*") if path.is_file()]
    folders = {path.parent for path in files if path.suffix not in (".py", ".pyc", ".typed")}
    # Tools, and the script of accounts, are like those of a user: the text is in the key, imports are among the facts.
    folders = {folder for folder in folders if package / "tools" not in folder.parents} - {package / "account"}
    # The viewer of reports has no part in compiling.
    folders = {folder for folder in folders if package / "results" not in folder.parents}
    # Layouts of CPython are read by runs, not by the compiler.
    folders.discard(package / "runtime" / "stacks")
    assert folders == {package / name for name in cache.DATA}


def test_files_of_other_formats_are_refused() -> None:
    data = bytearray(_script().to_bytes())
    data[8] ^= 0xFF
    with pytest.raises(TraceError, match="another version"):
        CompiledScript.from_bytes(bytes(data))
    with pytest.raises(TraceError, match="not a compiled"):
        CompiledScript.from_bytes(b"#!/bin/sh")


SOURCE = Source("stdin", "begin { }")


def compile_script() -> CompiledScript:
    return SCRIPT


def refuse() -> CompiledScript:
    pytest.fail("compiled again")


@pytest.fixture
def facts_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache.fingerprints, "still_true", lambda facts: True)


def test_a_script_is_compiled_once(tmp_path: Path, facts_hold: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.load_or_compile(SOURCE, CompileOptions(), compile_script) == (SCRIPT, False)
    assert cache.load_or_compile(SOURCE, CompileOptions(), refuse) == (SCRIPT, True)
    other = CompileOptions(unsafe=True)
    assert cache.load_or_compile(SOURCE, other, compile_script) == (SCRIPT, False)


def test_directories_share_what_names_nothing_relative(
    tmp_path: Path, facts_hold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache.load_or_compile(SOURCE, CompileOptions(), compile_script)
    monkeypatch.chdir(tmp_path)
    assert cache.load_or_compile(SOURCE, CompileOptions(), refuse) == (SCRIPT, True)


def test_each_directory_has_its_own_entry_of_what_names_relative_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def compile_here() -> CompiledScript:
        return _script(str(Path.cwd()).encode(), facts=(cache.fingerprints.path_fact("."),))

    for number in range(4):
        folder = tmp_path / str(number % 2)
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        script, cached = cache.load_or_compile(SOURCE, CompileOptions(), compile_here)
        assert script.elf == str(folder).encode()
        assert cached is (number >= 2)


def test_a_cache_that_cannot_be_written_is_noted(
    tmp_path: Path, facts_hold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "store", lambda name, script: False)
    monkeypatch.setattr(private_files, "NOTES", {})
    for _ in range(2):
        assert cache.load_or_compile(SOURCE, CompileOptions(), compile_script) == (SCRIPT, False)
    noted = f"the compiled script is not cached: {tmp_path}/pytrace/scripts cannot be written"
    assert noted in private_files.NOTES
