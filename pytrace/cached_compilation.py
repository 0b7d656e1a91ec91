"""Compilation through the compile cache, for the command line and the Python interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace import cache
from pytrace.base import private_folders
from pytrace.runtime.host import fingerprints

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.core.manifest import CompiledScript
    from pytrace.core.options.compile_options import CompileOptions
    from pytrace.core.source import Source


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
    key = cache.key(source.text, source.path or source.name, options)
    found = cache.load(key, options, fingerprints.still_true)
    if found is not None:
        return found, True
    script = compile_script()
    if not cache.store(key, script):
        private_folders.note(f"the compiled script is not cached: {cache.directory()} cannot be written")
    return script, False
