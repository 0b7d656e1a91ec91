"""The compile cache: a script that is in it starts without the front end and without LLVM.

An entry is the file form of a :class:`~pytrace.core.manifest.CompiledScript`, named by a digest of everything that the
command line and the script say; what the machine said is recorded inside (``Manifest.facts``) and checked
again on each use.
Entries are only read where nobody but the user could have written them (:mod:`pytrace.base.private_files`).
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable

import pytrace
from pytrace.base import private_files
from pytrace.base.fast_dataclass import fields
from pytrace.core.compile_options import CompileOptions
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import FORMAT, CompiledScript

KEEP = 200
"""How many entries stay when old ones are removed."""


def directory() -> str:
    """Where the cache is: ``$XDG_CACHE_HOME/pytrace/scripts`` or ``~/.cache/pytrace/scripts``."""
    return private_files.directory("scripts")


def key(text: str, name: str, options: CompileOptions) -> str:
    """The digest that names the entry of a script *text* under *options*."""
    uname = os.uname()
    parts = [
        pytrace.__version__, str(FORMAT), package_stamp(), uname.release, uname.version, uname.machine,
        name, text, _working_directory(),
    ]  # fmt: skip
    for item in fields(options):
        if item.name == "child_command":
            # Only targets `*` look at it, whose answers are never cached (runtime.binaries.libraries).
            continue
        value = getattr(options, item.name)
        if isinstance(value, frozenset):
            value = sorted(value)
        elif isinstance(value, dict):
            value = sorted(value.items())
        parts.append(f"{item.name}={value!r}")
    return private_files.digest("\0".join(parts).encode("utf-8", "surrogateescape"), 20)


def _working_directory() -> str:
    """Where relative names begin; empty when that directory was removed, in which nothing can be found."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


@functools.cache
def package_stamp() -> str:
    """Newest change of the package's files in a checkout; a released package is identified by its version."""
    root = os.path.dirname(pytrace.__file__)
    if not os.path.exists(os.path.join(os.path.dirname(root), "pyproject.toml")):
        return ""
    return str(_newest(root))


def _newest(folder: str) -> int:
    """Newest change of a file in a folder or below; what Python makes of the files does not count."""
    newest = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir():
                newest = max(newest, entry.stat().st_mtime_ns)
            elif entry.name != "__pycache__":
                newest = max(newest, _newest(entry.path))
    return newest


def load(name: str, still_true: Callable[[tuple[tuple[str, ...], ...]], bool]) -> CompiledScript | None:
    """The entry *name*, when there is one that this machine can still use."""
    data = private_files.read(os.path.join(directory(), name))
    if data is None:
        return None
    try:
        script = CompiledScript.from_bytes(data)
    except (TraceError, ValueError, KeyError, TypeError):
        # Written by another version, or truncated: compile again and replace it.
        return None
    return script if still_true(script.manifest.facts) else None


def store(name: str, script: CompiledScript) -> bool:
    """Keep *script* under *name*; False for a cache that cannot be written, which is not an error."""
    folder = directory()
    if not private_files.write(os.path.join(folder, name), script.to_bytes()):
        return False
    with contextlib.suppress(OSError):
        _trim(folder)
    return True


def _trim(folder: str) -> None:
    entries = list(os.scandir(folder))
    if len(entries) <= KEEP:
        return
    entries.sort(key=lambda entry: entry.stat().st_mtime_ns)
    for entry in entries[: len(entries) - KEEP]:
        os.unlink(entry.path)
