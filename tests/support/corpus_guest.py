"""The part of :mod:`tests.support.corpus` that runs in the test machine: loads what is compiled outside.

``python -m tests.support.corpus_guest FOLDER`` hands out the facts of its kernel, and loads scripts as they come. It
imports little, as the emulated processors are slow.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import CompiledScript
from pytrace.runtime.load import loader
from pytrace.runtime.load.loaded_script import LoadError
from tests.support import compile_guest

Outcome = Literal["verified", "lacks", "refused", "skipped"]


class Result(msgspec.Struct, frozen=True):
    """What became of a script: loaded, or the message that says why not.

    *lacks* is a message of pytrace about what the kernel does not have, *refused* one of the verifier: a defect.
    """

    name: str
    outcome: Outcome
    message: str = ""
    log: str = ""


def load(name: str, script: CompiledScript, disabled: frozenset[str] = frozenset()) -> Result:
    """Load a script and unload it. A message that names the kernel that has more is one about what this one lacks."""
    options = loader.LoadOptions(disabled=disabled)
    try:
        with ExitStack() as stack:
            loader.load(script, options=options, stack=stack)
    except TraceError as error:
        message = "; ".join((error.message, *error.hints))
        refused = isinstance(error, LoadError) and error.program is not None and not re.search(r"Linux \d\.\d", message)
        log = error.log[-20000:] if isinstance(error, LoadError) else ""
        return Result(name, "refused" if refused else "lacks", message, log)
    return Result(name, "verified")


def guest(folder: Path) -> None:
    """Load what is compiled outside, until that says that there is no more."""
    subprocess.run(["modprobe", "-a", "-q", *compile_guest._MODULES], check=False)
    (folder / "kernel").write_text(os.uname().release)
    facts = compile_guest._facts(folder)
    write(folder / "facts", bytes(facts))
    last = False
    while not last:
        last = (folder / "compiled").exists()
        for path in sorted(folder.glob("*.script")):
            result = load(path.stem, CompiledScript.from_bytes(path.read_bytes()))
            write(path.with_suffix(".result"), msgspec.json.encode(result))
            path.unlink()
            print(f"{result.outcome} {path.stem} {result.message}", flush=True)
        time.sleep(0.2)


def write(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_bytes(data)
    unfinished.rename(path)


if __name__ == "__main__":
    guest(Path(sys.argv[1]))
