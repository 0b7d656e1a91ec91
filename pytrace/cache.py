"""The compile cache: a cached script starts without the front end and without LLVM.

An entry is a :class:`~pytrace.core.manifest.CompiledScript`, named by a digest of the script and of all options that
compilation depends on.
The facts about the machine that it depends on are recorded inside
(``Manifest.facts``) and checked on each use. Its first line identifies the source files of pytrace that compiled it
(:func:`made_by`). An entry is read only when nobody but the user can have written it
(:mod:`pytrace.base.private_files`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import pytrace
from pytrace.base import private_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import FORMAT, CompiledScript
from pytrace.core.options import PROCESSES_FACT, CompileOptions
from pytrace.core.source import Source
from pytrace.runtime.machine import fingerprints

KIND = "scripts"
"""The kind of cached files (:mod:`pytrace.base.private_files`)."""

KEEP = 200
"""Number of entries that are kept when old ones are removed."""

DATA = ("stdlib", "frontend/expand", "frontend/expand/include")
"""Folders of the package with data files that compilations read."""

_IMPORTED = time.time_ns()
"""A source file that was modified after this time may differ from the running code."""


def load_or_compile(
    source: Source, options: CompileOptions, compile_script: Callable[[], CompiledScript]
) -> tuple[CompiledScript, bool]:
    """Load the result of an earlier compilation, or compile the script and keep the result.

    Args:
        source: the script.
        options: the options that it is compiled with.
        compile_script: compiles it; called when the cache has no result that still holds.

    Returns:
        The compiled script, and whether it comes from the cache. The warnings of an earlier compilation are in its
        manifest.
    """
    name = key(source.text, source.path or source.name, options)
    here = f"{name}-{private_files.digest(_working_directory())}"
    for entry in (name, here):
        cached = load(entry, options, fingerprints.still_true)
        if cached is not None:
            return cached, True
    script = compile_script()
    # Scripts that name nothing relative share one entry, others have one for each directory.
    relative = any(fact[0] == fingerprints.PATH for fact in script.manifest.facts)
    if not store(here if relative else name, script):
        private_files.note(f"the compiled script is not cached: {directory()} cannot be written")
    return script, False


def directory() -> str:
    """The directory of entries, for messages."""
    return private_files.directory(KIND)


def key(text: str, name: str, options: CompileOptions) -> str:
    """The digest that names the entry of a script.

    Args:
        text: the script.
        name: the script's name in messages.
        options: the options that it is compiled with.
    """
    uname = os.uname()
    parts = [
        pytrace.__version__, str(FORMAT), checkout(), uname.release, uname.version, uname.machine,
        name, text,
    ]  # fmt: skip
    for field in options.__struct_fields__:
        if field == "child_command":
            # Only targets `*` look at the command, whose answers are never cached (runtime.binaries.user_binary).
            continue
        # Which processes: see CompileOptions.processes_fact.
        value = options.shape if field == "filters" else getattr(options, field)
        if isinstance(value, frozenset):
            value = sorted(value)
        elif isinstance(value, dict):
            value = sorted(value.items())
        parts.append(f"{field}={value!r}")
    return private_files.digest("\0".join(parts).encode("utf-8", "surrogateescape"), size=20)


def _working_directory() -> bytes:
    """The directory that relative names start from; empty when it was removed."""
    try:
        return os.getcwdb()
    except FileNotFoundError:
        return b""


# ---------------------------------------------------------------------------------------------- code that compiled


def checkout() -> str:
    """The package's directory when it is a checkout; empty for a released package, whose files never change."""
    root = os.path.dirname(pytrace.__file__)
    return root if os.path.exists(os.path.join(os.path.dirname(root), "pyproject.toml")) else ""


def made_by() -> bytes:
    """The first line of an entry: the files that this process's code comes from, and their modification times.

    Empty for a released package, which its version identifies.
    """
    root = checkout()
    if not root:
        return b""
    files = [vars(module).get("__file__") for name, module in sys.modules.items() if name.startswith("pytrace.")]
    for folder in DATA:
        with suppress(OSError):
            files += [entry.path for entry in os.scandir(os.path.join(root, folder)) if entry.is_file()]
    names = "\t".join(sorted({file.removeprefix(root) for file in files if file}))
    return f"{changes(names)}\t{names}".encode()


@cache
def changes(names: str) -> str:
    """Modification times of files of the package, as one text; empty when one of them does not exist."""
    root = os.path.dirname(pytrace.__file__)
    try:
        return " ".join([str(os.stat(root + name).st_mtime_ns) for name in names.split("\t")])
    except OSError:
        return ""


def _code_runs(line: bytes) -> bool:
    """Whether an entry with this first line was compiled by the current code."""
    state, _, names = line.decode().partition("\t")
    return not names or state == changes(names) != ""


def _newer(line: bytes) -> bool:
    """Whether a file was modified after it may have been imported."""
    state, _, names = line.decode().partition("\t")
    return bool(names) and (not state or max(map(int, state.split())) >= _IMPORTED)


# ---------------------------------------------------------------------------------------------- entries


def load(
    name: str, options: CompileOptions, still_true: Callable[[tuple[tuple[str, ...], ...]], bool]
) -> CompiledScript | None:
    """Read an entry.

    Args:
        name: the entry's digest (:func:`key`).
        options: the options of the compilation.
        still_true: whether recorded facts about the machine still hold (``runtime.machine.fingerprints.still_true``).

    Returns:
        The compiled script; None when there is no entry, or it was compiled by other code or for other facts.
    """
    data = private_files.read(KIND, name)
    if data is None:
        return None
    code, _, rest = data.partition(b"\n")
    try:
        if not _code_runs(code):
            return None
        script = CompiledScript.from_bytes(rest)
    except (TraceError, ValueError):
        # Written by another version: compile again and replace it.
        return None
    facts = script.manifest.facts
    if facts and facts[-1][0] == PROCESSES_FACT:
        if facts[-1] != options.processes_fact:
            return None
        facts = facts[:-1]
    return script if still_true(facts) else None


def store(name: str, script: CompiledScript) -> bool:
    """Store an entry.

    Args:
        name: the entry's digest (:func:`key`).
        script: the compiled script.

    Returns:
        False when the cache cannot be written, which is not an error.
    """
    code = made_by()
    if _newer(code):
        return True
    if not private_files.write(KIND, name, code, b"\n", script.to_bytes()):
        return False
    private_files.trim(KIND, KEEP)
    return True
