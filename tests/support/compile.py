"""Compiles short C and C++ programs for tests of binaries."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[1] / "programs" / "sources"
"""Programs that tests compile with options of their own."""


def compiled(folder: Path, name: str, text: str | Path, *options: str, language: str = "c", compiler: str = "") -> Path:
    """Compile *text* to the program (or library, with ``-shared``) *name*; skips the test without a compiler.

    *text* may be the path of it, as of a file of :data:`SOURCES`.
    """
    compiler = compiler or {"c": "gcc", "c++": "g++"}[language]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed (scripts/test installs it)")
    source = folder / f"{name}.{'c' if language == 'c' else 'cpp'}"
    source.write_text(text if isinstance(text, str) else text.read_text())
    made = folder / name
    subprocess.run([compiler, str(source), "-o", str(made), *options], check=True)
    return made


def tool(*command: str | Path, folder: Path | None = None) -> None:
    """Run a tool of binutils or the like, in *folder* if that is given; skips the test where it is missing."""
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed (scripts/test installs it)")
    subprocess.run([str(part) for part in command], check=True, cwd=folder)
