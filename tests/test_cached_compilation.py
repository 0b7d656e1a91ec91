"""Compilation through the compile cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace import cached_compilation
from pytrace.base import private_folders
from pytrace.core.manifest import CompiledScript
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.source import Source
from tests.test_cache import SCRIPT

SOURCE = Source("stdin", "begin { }")


def compile_script() -> CompiledScript:
    return SCRIPT


def refuse() -> CompiledScript:
    pytest.fail("compiled again")


@pytest.fixture(autouse=True)
def facts_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_compilation.fingerprints, "still_true", lambda facts: True)


def test_a_script_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cached_compilation.load_or_compile(SOURCE, CompileOptions(), compile_script) == (SCRIPT, False)
    assert cached_compilation.load_or_compile(SOURCE, CompileOptions(), refuse) == (SCRIPT, True)
    other = CompileOptions(unsafe=True)
    assert cached_compilation.load_or_compile(SOURCE, other, compile_script) == (SCRIPT, False)


def test_a_cache_that_cannot_be_written_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cached_compilation.cache, "store", lambda name, script: False)
    monkeypatch.setattr(private_folders, "NOTES", {})
    for _ in range(2):
        assert cached_compilation.load_or_compile(SOURCE, CompileOptions(), compile_script) == (SCRIPT, False)
    noted = f"the compiled script is not cached: {tmp_path}/pytrace/scripts cannot be written"
    assert noted in private_folders.NOTES
