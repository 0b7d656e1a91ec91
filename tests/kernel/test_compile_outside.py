"""Scripts of the test machine that are compiled outside of it: here this machine is its own guest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytrace.cli import main
from pytrace.cli.request import Script
from pytrace.core.manifest import CompiledScript
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.options.run_options import RunOptions
from tests.support import compile_guest

ROOT = Path(__file__).resolve().parents[2]
Outside = Callable[..., tuple[bytes, bytes]]


def to_bytes(script: CompiledScript) -> bytes:
    """Without the facts about a folder that is another one for each user's cache."""
    facts = tuple(fact for fact in script.manifest.facts if "debuginfod_client" not in "".join(fact))
    return replace(script, manifest=replace(script.manifest, facts=facts)).to_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a compiler answers requests."""
    folder = tmp_path_factory.mktemp("outside")
    command = [sys.executable, "-m", "tests.support.compile_host", str(folder), "/lib/modules"]
    with subprocess.Popen(command, cwd=ROOT) as process:
        yield folder
        process.terminate()


@pytest.fixture
def both(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Outside:
    """Compiles outside and here; what both gave, as bytes (nothing for an answer that there was not)."""

    def compile_both(*words: str) -> tuple[bytes, bytes]:
        made = []
        real = main.compile_script

        def compile_script(script: Script, options: CompileOptions, run: RunOptions) -> CompiledScript:
            outside = compile_guest.compiled_outside(folder, script, options, run)
            made.append(to_bytes(outside) if outside else b"")
            here = real(script, options, run)
            made.append(to_bytes(here))
            return here

        with monkeypatch.context() as patch:
            patch.setattr(main, "compile_script", compile_script)
            patch.setenv("XDG_CACHE_HOME", str(tmp_path))
            main.main([*words, "--no-cache", "--dry-run"])
        return made[0], made[1] if made[1:] else b""

    return compile_both


@pytest.mark.parametrize(
    "words",
    [
        ("opensnoop", "-p", "1", "-x"), ("biosnoop",), ("fsslower", "5"), ("cachestat", "1", "1"),
        ("-e", "uprobe:libc:malloc { @[ustack(1)] = count(); }"),
        ("-e", "t:sched:* { @[probe] = count(); } begin { print(kaddr(\"vfs_read\")); }"),
    ],
    ids=lambda words: words[0] if len(words[0]) > 2 else words[1].split()[0],
)  # fmt: skip
def test_the_script_is_the_same(both: Outside, words: tuple[str, ...]) -> None:
    outside, here = both(*words)
    assert outside
    assert outside == here


def test_what_only_the_guest_knows(both: Outside) -> None:
    outside, here = both("-e", "uprobe:libc:malloc { @ = count(); }", "-p", str(os.getpid()))
    assert not outside
    assert here


def test_a_script_with_errors(both: Outside, capsys: pytest.CaptureFixture[str]) -> None:
    assert both("-e", "begin { print(nothing); }") == (b"", b"")
    assert "nothing" in capsys.readouterr().err


def test_a_file_that_has_changed(both: Outside, tmp_path: Path) -> None:
    """As one of the guest that is another one outside."""
    library = tmp_path / "lib.bt"
    library.write_text("begin { print(1); }")
    script = tmp_path / "script.bt"
    script.write_text('import "./lib.bt"; end { print(2); }')
    assert both(str(script))[0]
    compiled = ("file", str(library), "3", "1", "1")
    assert compile_guest.still_the_same(compiled) is None


def test_nobody_answers(tmp_path: Path) -> None:
    (tmp_path / "gone").touch()
    assert compile_guest.exchange(tmp_path, b"request") == b""
