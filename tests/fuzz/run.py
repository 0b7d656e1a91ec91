"""Runs one fuzz target with atheris (``scripts/fuzz`` calls this).

    python -m tests.fuzz.run TARGET FOLDER SECONDS
    python -m tests.fuzz.run TARGET FOLDER merge KEPT

*FOLDER* collects inputs that reach new code, and inputs that fail. The code of pytrace and pyelftools is instrumented.
"""

from __future__ import annotations

import shlex
import sys
from contextlib import nullcontext
from pathlib import Path

import atheris

from tests.fuzz import table
from tests.fuzz.corpus import CORPUS
from tests.fuzz.target import MEMORY, SECONDS, Target, attempt

SHORT = 512
"""Bytes up to which inputs may be of any length from the beginning."""


def main(name: str, folder: Path, seconds: str, *words: str) -> None:
    """Fuzz a target for some seconds; ends with status 77 at the first input that fails.

    Where *seconds* is ``merge``, the smallest inputs that reach all code are collected, beyond those of the folder that
    *words* names.
    """
    # The process that merges runs no input itself: those that it starts do.
    watched = [] if seconds == "merge" else ["pytrace", "elftools", "http"]
    with atheris.instrument_imports(include=watched, enable_loader_override=False) if watched else nullcontext():
        target = table.find(name)
    options = [
        f"-max_len={target.length}", f"-timeout={SECONDS * 3:.0f}", f"-rss_limit_mb={2 * MEMORY >> 20}",
        f"-artifact_prefix={folder}/", "-print_final_stats=1",
    ]  # fmt: skip
    if target.length <= SHORT:
        # Else inputs stay as short as the seeds for hours, where each takes a tenth of a second.
        options.append("-len_control=0")
    own = folder / "corpus"
    kept = Path(words[0]) if seconds == "merge" else CORPUS / name
    own.mkdir(parents=True, exist_ok=True)
    program = sys.argv[0]
    if seconds == "inner":
        # A part of a merge, with the words that libFuzzer has given to it.
        places, options = [], [*words]
    elif seconds == "merge":
        places = [folder / "merged", *([kept] if kept.is_dir() else []), own]
        options.append("-merge=1")
        program = str(_launcher(name, folder))
    else:
        others = (kept, *([folder.parent / target.guide / "corpus"] if target.guide else []))
        places = [own, _seeds(target, folder / "seeds"), *filter(Path.is_dir, others)]
        options += [f"-max_total_time={seconds}", *_dictionary(target, folder / "words")]
    atheris.Setup([program, *options, *map(str, places)], lambda data: attempt(target, data))
    atheris.Fuzz()


def _launcher(name: str, folder: Path) -> Path:
    """A program that libFuzzer starts by its name: it merges in other processes, which may die."""
    path = folder / "merge"
    words = shlex.join([sys.executable, "-m", "tests.fuzz.run", name, str(folder), "inner"])
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    path.chmod(0o755)
    return path


def _seeds(target: Target, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        if len(seed) <= target.length:
            (folder / str(number)).write_bytes(seed)
    return folder


def _dictionary(target: Target, path: Path) -> list[str]:
    words = [word for word in dict.fromkeys(target.words()) if word]
    path.write_text("".join(f'"{_escaped(word)}"\n' for word in words))
    return [f"-dict={path}"] if words else []


def _escaped(word: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word.encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
