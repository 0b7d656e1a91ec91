"""Writes the archive of modules: those of the earlier one, and what this process imported beyond them."""

from __future__ import annotations

# Typeshed does not have the parts of re.
import _sre  # type: ignore[import-not-found]
import marshal
import os
import re
import sys
from _frozen_importlib_external import MAGIC_NUMBER, ExtensionFileLoader, SourceFileLoader, cache_from_source

# Nor these.
from re import _compiler, _parser  # type: ignore[attr-defined]

from pytrace.base import lazy_regex, module_archive, private_files
from pytrace.base.fast_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

    from pytrace.base.module_archive import Archive, Entry

_KEEP = 8
"""Number of archives that are kept: one for each interpreter and installation."""

_HEADER = 16
"""Size of what stands before the code in a ``.pyc`` file."""


_Found = tuple[str, bytes | None, bool]
"""Source file, code, and whether it is a package. An extension module has no code; that of new modules is empty."""


def write(archive: Archive) -> bool:
    """Write *archive* with the modules of this process. Returns False when that is not possible."""
    entries: dict[str, Entry] = {}
    parts: list[bytes] = []
    offset = 0
    common = archive.common()
    core: dict[str, CodeType] = {}
    for name, (source, code, package) in {**dict(_earlier(archive)), **dict(_imported(archive))}.items():
        try:
            found = os.stat(source)
            data = b"" if code is None else code or _code(name, source, found)
        except (OSError, ImportError, SyntaxError, ValueError):
            continue
        entries[name] = (source, found.st_mtime_ns, found.st_size, offset, len(data), package)
        parts.append(data)
        offset += len(data)
        if name in common:
            core[name] = marshal.loads(data)
    others = tuple(sys.modules.keys() - entries.keys() - archive.before)
    parts.append(marshal.dumps(core))
    place = (offset, len(parts[-1]))
    expressions = {**archive.expressions, **dict(_expressions())}
    index = marshal.dumps((entries, others, expressions, _folders(entries), frozenset(core), place))
    if not private_files.write(archive.path, len(index).to_bytes(module_archive.HEAD, "little"), index, *parts):
        return False
    private_files.trim(os.path.dirname(archive.path), _KEEP)
    return True


def _earlier(archive: Archive) -> Iterator[tuple[str, _Found]]:
    """The modules of the archive that have not changed."""
    for name, entry in list(archive.entries.items()):
        if archive.find_spec(name) is not None:
            yield name, (entry[0], archive.code(name) or None, entry[-1])


def _imported(archive: Archive) -> Iterator[tuple[str, _Found]]:
    """Modules that this process imported from other files than the archive."""
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name in archive.before or spec is None or spec.name != name or not spec.has_location:
            continue
        if type(spec.loader) in (SourceFileLoader, ExtensionFileLoader) and spec.origin is not None:
            code = b"" if type(spec.loader) is SourceFileLoader else None
            yield name, (spec.origin, code, spec.submodule_search_locations is not None)


def _folders(entries: dict[str, Entry]) -> dict[str, int]:
    """The folders of pytrace's packages, and their modification times."""
    packages = {os.path.dirname(entry[0]) for name, entry in entries.items() if name.startswith(module_archive.OWN)}
    return {folder: os.stat(folder).st_mtime_ns for folder in packages}


def _expressions() -> Iterator[tuple[tuple[str | bytes, int], bytes]]:
    """The regular expressions that this process compiled, as arguments of ``_sre.compile``.

    They are found as the functions of ``re`` find them, which belong to a version of Python: what does not give an
    equal expression is left out.
    """
    for source, flags in lazy_regex.FRESH:
        try:
            data = marshal.dumps(_arguments(source, flags))
            if _sre.compile(source, *marshal.loads(data)) == re.compile(source, flags):
                yield (source, flags), data
        except (AttributeError, TypeError, ValueError, RuntimeError):
            continue


def _arguments(source: str | bytes, flags: int) -> tuple[int, list[int], int, dict[str, int], tuple[str | None, ...]]:
    parsed = _parser.parse(source, flags)
    state = parsed.state
    names: list[str | None] = [None] * state.groups
    for name, number in state.groupdict.items():
        names[number] = name
    code = [int(word) for word in _compiler._code(parsed, flags)]  # some are of a subclass
    return int(flags | state.flags), code, state.groups - 1, dict(state.groupdict), tuple(names)


def _code(name: str, source: str, found: os.stat_result) -> bytes:
    """The code of the source file as it is now: of Python's own ``.pyc`` file if that is up to date."""
    try:
        with open(cache_from_source(source), "rb") as file:
            data = file.read()
    except (OSError, NotImplementedError):
        data = b""
    times = (int(found.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little")
    times += (found.st_size & 0xFFFFFFFF).to_bytes(4, "little")
    if data.startswith(MAGIC_NUMBER + bytes(4) + times):
        return data[_HEADER:]
    return marshal.dumps(SourceFileLoader(name, source).get_code(name))
