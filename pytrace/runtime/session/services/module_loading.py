"""Modules and libraries that a run may import until its end, imported ahead: an upgrade may remove their files.

A start imports what it needs at once. While a tracer runs for hours, the package may be upgraded or removed. The end of
the run, which prints and saves what was traced, must not depend on files that are gone or of another version.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

from pytrace.core.manifest import Manifest
from pytrace.core.options.run_options import RunOptions
from pytrace.core.types import KSym, Stack, USym

_ERRORS = ("pytrace.base", "pytrace.core", "pytrace.core.types", "difflib")
_OUTPUT = ("pytrace.render", "pytrace.runtime.output", "decimal", "fractions", "grp", "pwd", "socket")
_ADDRESSES = ("pytrace.core.stacks.chunk_format", "pytrace.runtime.symbols")
_USER_ADDRESSES = (
    "pytrace.runtime.elf", "pytrace.runtime.binaries", "pytrace.runtime.dwarf", "lzma", "zipfile", "zstandard",
    "rust_demangler", "rust_demangler.rust", "rust_demangler.rust_legacy",
)  # fmt: skip
_DEBUGINFO = ("http.client", "urllib.error", "urllib.request")
_SNAPSHOTS = (
    "pytrace.runtime.capture", "pytrace.results", "pytrace.results.formats", "pytrace.results.timeline",
    "shutil", "tempfile", "zstandard",
)  # fmt: skip
_TABLES = {"arrow": ("pyarrow",), "parquet": ("pyarrow", "pyarrow.parquet")}
"""Libraries of formats of snapshots."""


def names(manifest: Manifest, options: RunOptions, embedded: bool) -> Iterator[str]:
    """Modules, and packages of which all modules are meant, in the order of their import."""
    yield from _ERRORS
    yield from _OUTPUT
    if any(isinstance(kind, (KSym, USym, Stack)) for kind in manifest.printed_types()):
        yield from _ADDRESSES
    if manifest.shows_user_addresses():
        yield from _USER_ADDRESSES
        yield from _DEBUGINFO if options.debuginfo else ()
    if options.saves or options.metrics is not None or options.live or embedded:
        yield from _SNAPSHOTS
        yield from _TABLES.get(options.format.partition(":")[0], ())


def steps(wanted: Iterable[str]) -> Iterator[None]:
    """Import modules, one in a step. One that is missing is reported by what needs it, if anything does."""
    for name in wanted:
        with suppress(ImportError):
            importlib.import_module(name)
        yield
        for module in _modules(name):
            with suppress(ImportError):
                importlib.import_module(module)
            yield


def _modules(name: str) -> Iterator[str]:
    """The modules of a package of pytrace."""
    package = sys.modules.get(name)
    folder = getattr(package, "__path__", None) if name.startswith("pytrace.") else None
    for item in pkgutil.iter_modules(folder) if folder else ():
        if not item.ispkg:
            yield f"{name}.{item.name}"
