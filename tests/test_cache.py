"""Tests of the compile cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytrace import cache
from pytrace.base.fast_dataclass import replace
from pytrace.core.compile_options import CompileOptions
from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import CompiledScript, Manifest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pytrace" / "scripts"


def _script(elf: bytes = b"ELF") -> CompiledScript:
    return CompiledScript(elf, Manifest((), (), (), ("a", "b"), Config(max_strlen=1), facts=(("kernel", "1"),)))


def test_what_is_stored_comes_back(folder: Path) -> None:
    cache.store("one", _script())
    assert (folder / "one").exists()
    found = cache.load("one", lambda facts: facts == (("kernel", "1"),))
    assert found == _script()


def test_facts_that_changed_make_a_miss(folder: Path) -> None:
    cache.store("one", _script())
    assert cache.load("one", lambda facts: False) is None
    assert cache.load("other", lambda facts: True) is None


def test_damaged_entries_are_misses(folder: Path) -> None:
    cache.store("one", _script())
    data = (folder / "one").read_bytes()
    for broken in (b"", b"junk", data[:20], data[:8] + b"\xff\xff\xff\xff" + data[12:]):
        (folder / "one").write_bytes(broken)
        assert cache.load("one", lambda facts: True) is None


def test_a_folder_that_others_may_write_to_is_not_trusted(folder: Path) -> None:
    cache.store("one", _script())
    folder.chmod(0o777)
    assert cache.load("one", lambda facts: True) is None


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
        cache.key("a", "n", replace(options, pid=4)),
        cache.key("a", "n", replace(options, environment={"PYTRACE_X": "2"})),
        cache.key("a", "n", replace(options, disabled=frozenset({"kprobe_multi"}))),
    }
    assert len(keys) == 6
    # What runs is no part of the code.
    assert cache.key("a", "n", replace(options, child_command="ls /")) in keys
    assert cache.key("a\udcff", "n", options) != cache.key("a\udcfe", "n", options)


def test_a_changed_checkout_makes_misses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "pytrace"
    for path, changed in (("__init__.py", 1), ("runtime/deep.py", 2), ("__pycache__/made.pyc", 9)):
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).touch()
        os.utime(package / path, (changed, changed))
    monkeypatch.setattr("pytrace.__file__", str(package / "__init__.py"))
    stamp = cache.package_stamp.__wrapped__
    assert stamp() == "", "a released package does not change"
    (tmp_path / "pyproject.toml").touch()
    assert stamp() == "2000000000"
    os.utime(package / "runtime/deep.py", (3, 3))
    assert stamp() == "3000000000"


def test_files_of_other_formats_are_refused() -> None:
    data = bytearray(_script().to_bytes())
    data[8] ^= 0xFF
    with pytest.raises(TraceError, match="another version"):
        CompiledScript.from_bytes(bytes(data))
    with pytest.raises(TraceError, match="not a compiled"):
        CompiledScript.from_bytes(b"#!/bin/sh")
