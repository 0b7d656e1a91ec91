from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytrace.cli.scripts import declared
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options.script_options import ScriptOption
from pytrace.core.source import Source

SCRIPT = """getopt("x|failed", false, "why");
getopt("s=COLUMN...", "é", "", ("é", "b"));
getopt("<n>", -1);
begin { print(getopt("x")); }
"""
OPTIONS = (
    ScriptOption(("x", "failed"), False, "why"),
    ScriptOption(("s",), "é", "", "COLUMN", ("é", "b"), repeat=True),
    ScriptOption(("n",), -1, "", "n", operand=True, required=True),
)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache" / "pytrace" / "scripts"


def read(text: str, path: Path | None = None) -> declared.Declared:
    diagnostics = Diagnostics()
    found = declared.of(Source("x", text, None if path is None else str(path)), diagnostics)
    assert not diagnostics.items
    return found


def no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the script was parsed")

    monkeypatch.setattr(declared, "_parse", fail)


def test_a_script_without_the_words_is_not_parsed(monkeypatch: pytest.MonkeyPatch, cache_folder: Path) -> None:
    no_parser(monkeypatch)
    assert read("begin { print($1); }") == declared.Declared((), True)
    assert not cache_folder.exists()


def test_the_second_time_gives_the_same_without_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    first = read(SCRIPT)
    assert first == declared.Declared(OPTIONS, False)
    no_parser(monkeypatch)
    assert read(SCRIPT) == first


def test_positional_parameters_are_noticed() -> None:
    assert read('getopt("x"); begin { print($1); }').positional
    assert read('getopt("x"); begin { print($#); }').positional
    assert read('getopt("x"); interval:ms:$1 { }').positional
    assert not read('getopt("x"); getopt("[n]", 1); interval:ms:$n { }').positional


def test_imported_files_are_watched(tmp_path: Path) -> None:
    library, script = tmp_path / "lib.bt", tmp_path / "a.bt"
    text = 'import "lib.bt";\ngetopt("a"); begin { }'
    assert [option.name for option in read(text, script).options] if library.exists() else True
    library.write_text('getopt("b");')
    assert [option.name for option in read(text, script).options] == ["a", "b"]
    library.write_text('getopt("bb"); getopt("cc");')
    assert [option.name for option in read(text, script).options] == ["a", "bb", "cc"]
    library.unlink()
    assert [option.name for option in read(text, script).options] == ["a"]


def test_new_files_of_an_imported_directory_count(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    text = 'import "lib";\nbegin { }'
    assert read(text, tmp_path / "a.bt").options == ()
    (tmp_path / "lib" / "x.bt").write_text('getopt("b");')
    os.utime(tmp_path / "lib")
    assert [option.name for option in read(text, tmp_path / "a.bt").options] == ["b"]


def test_a_broken_entry_is_made_again(cache_folder: Path) -> None:
    read(SCRIPT)
    (entry,) = cache_folder.iterdir()
    for content in (b"", b"x\n{}", entry.read_bytes()[:-5], entry.read_bytes().partition(b"\n")[0] + b"\n[1]"):
        entry.write_bytes(content)
        assert read(SCRIPT).options == OPTIONS
        assert b"failed" in entry.read_bytes()


def test_other_code_makes_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read(SCRIPT)
    monkeypatch.setattr(declared, "_code", lambda: b"other")
    no_parser(monkeypatch)
    with pytest.raises(AssertionError, match="was parsed"):
        read(SCRIPT)


def test_mistakes_are_reported_each_time() -> None:
    for _ in range(2):
        diagnostics = Diagnostics()
        declared.of(Source("x", 'getopt("x y"); begin { }'), diagnostics)
        assert len(diagnostics.errors) == 1
