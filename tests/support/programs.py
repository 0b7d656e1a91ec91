"""The C programs of ``tests/programs``, built once and again when their sources change."""

from __future__ import annotations

import fcntl
import subprocess
from functools import cache
from pathlib import Path

from tests.support.patience import EMULATED

SOURCES = Path(__file__).resolve().parent.parent / "programs"
BUILT = SOURCES / "build"


@cache
def build() -> Path:
    """Build what is out of date; the folder of the programs.

    Raises:
        RuntimeError: a compiler or make is missing, or a program does not compile.
    """
    if EMULATED and BUILT.exists():
        return BUILT  # scripts/test has built them outside, and the folder cannot be written here
    try:
        BUILT.mkdir(exist_ok=True)
        with open(BUILT / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            run = subprocess.run(["make", "-s", "-C", str(SOURCES)], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise RuntimeError("make is missing: scripts/test installs it") from error
    if run.returncode:
        raise RuntimeError(f"tests/programs do not build:\n{run.stdout}{run.stderr}")
    return BUILT
