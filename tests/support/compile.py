"""Compiles short C and C++ programs for tests of binaries."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def compiled(folder: Path, name: str, text: str, *options: str, language: str = "c", compiler: str = "") -> Path:
    """Compile *text* to the program (or library, with ``-shared``) *name*; skips the test without a compiler."""
    compiler = compiler or {"c": "gcc", "c++": "g++"}[language]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed (scripts/test installs it)")
    source = folder / f"{name}.{'c' if language == 'c' else 'cpp'}"
    source.write_text(text)
    made = folder / name
    subprocess.run([compiler, str(source), "-o", str(made), *options], check=True)
    return made


def tool(*command: str | Path, folder: Path | None = None) -> None:
    """Run a tool of binutils or the like, in *folder* if that is given; skips the test where it is missing."""
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed (scripts/test installs it)")
    subprocess.run([str(part) for part in command], check=True, cwd=folder)
