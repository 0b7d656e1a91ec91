"""Separate files with the symbols and DWARF of a stripped binary."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.elf.file import SHT_NOBITS, ElfFile, is_elf
from pytrace.runtime.host.procfs import resolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DEFAULT_DIRECTORIES = ("", ".debug", "/usr/lib/debug")


def directories(options: Iterable[str]) -> tuple[str, ...]:
    """Search directories of ``--debuginfo`` values (``DIR[:DIR]``); the built-in ones when there is none."""
    named = [part for option in options for part in option.split(":")]
    return tuple(named) if named else DEFAULT_DIRECTORIES


def find(binary: ElfFile, search: Iterable[str], root: str = "") -> str | None:
    """Path of the debug file of a binary, by build id or debug link; None when there is none.

    A directory is absolute, or relative to the binary's; one that starts with ``+`` also accepts a file by the CRC32 of
    the debug link, where the others insist on an equal build id (if the binary has one). *root* (``/proc/PID/root``) is
    put before absolute directories first, as those of a container are meant before our own.
    """
    for path, by_checksum in candidates(binary, search, root):
        if os.path.isfile(path) and is_elf(path) and _belongs(binary, path, by_checksum):
            return path
    return None


def has_dwarf(file: ElfFile) -> bool:
    """Whether a file has DWARF with functions and lines."""
    return any(
        section.name in (".debug_info", ".zdebug_info") and section.type != SHT_NOBITS for section in file.sections
    )


def supplement(binary: ElfFile, search: Iterable[str], root: str = "") -> tuple[str, str | None] | None:
    """Name and path of the file with what ``dwz -m`` found in several debug files; no path when it is not there.

    None for a file that has no such link (``.gnu_debugaltlink``, ``.debug_sup``). The build id must be equal.
    """
    link = binary.supplement_link
    if link is None:
        return None
    name, build_id = link
    folder = os.path.dirname("".join(resolved(binary.path)))
    places = [f"{root}{name}" if os.path.isabs(name) else os.path.join(folder, name)]
    for entry in search:
        directory = entry.removeprefix("+")
        inside = f"{root}{directory}" if os.path.isabs(directory) else os.path.join(folder, directory)
        places += [
            f"{inside}/.build-id/{build_id[:2]}/{build_id[2:]}.debug",
            f"{inside}/.dwz/{os.path.basename(name)}",
            f"{inside}/{os.path.basename(name)}",
        ]
    return name, next((path for path in places if os.path.isfile(path) and has_build_id(path, build_id)), None)


def candidates(binary: ElfFile, search: Iterable[str], root: str = "") -> Iterator[tuple[str, bool]]:
    """Where the debug file of a binary may be.

    Args:
        binary: the stripped file.
        search: directories as for :func:`find`.
        root: as for :func:`find`.

    Returns:
        Paths in the order in which they are tried, and for each whether an equal checksum is enough there.
    """
    reached, inside = resolved(binary.path)
    mirrored, name = os.path.split(inside)
    folder = reached + mirrored
    build_id, link = binary.build_id, binary.debug_link
    # What a link names is there under that name; without one by the custom of objcopy's users.
    names = list(dict.fromkeys([*((link[0],) if link is not None else ()), f"{name}.debug"]))
    by_id = f".build-id/{build_id[:2]}/{build_id[2:]}.debug"
    for entry in search:
        by_checksum = entry.startswith("+")
        directory = entry.removeprefix("+")
        absolute = os.path.isabs(directory)
        for base in dict.fromkeys((f"{root}{directory}", directory)) if absolute else (f"{folder}/{directory}",):
            places = [f"{base}{mirrored}", base] if absolute else [base]
            found = [by_id] if build_id else []
            for path in (*(f"{base}/{one}" for one in found), *(f"{at}/{one}" for at in places for one in names)):
                yield os.path.normpath(path), by_checksum
    if build_id:
        for path in cached(build_id):
            yield path, False


def _cache_folders() -> list[str]:
    """Where clients of debuginfod keep what they fetched (``debuginfod_find_debuginfo(3)``)."""
    named = os.environ.get("DEBUGINFOD_CACHE_PATH")
    if named:
        return [named]
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # The second was the place before elfutils 0.183, and is still used where it exists.
    return [f"{base}/debuginfod_client", os.path.expanduser("~/.debuginfod_client_cache")]


def cached(build_id: str) -> list[str]:
    """Where clients of debuginfod may have the debug file of a build id; the first is where a new one is put."""
    return [f"{folder}/{build_id}/debuginfo" for folder in _cache_folders()]


def has_build_id(path: str, build_id: str) -> bool:
    """Whether a file is an ELF file with a build id; any ELF file will do for an empty one."""
    try:
        with ElfFile.open(path) as file:
            return not build_id or file.build_id == build_id
    except (OSError, TraceError):
        return False


def _belongs(binary: ElfFile, path: str, by_checksum: bool) -> bool:
    if resolved(path) == resolved(binary.path):
        return False
    try:
        with ElfFile.open(path) as file:
            if binary.build_id and file.build_id == binary.build_id:
                return True
            # A link without build ids on either side has nothing but its checksum.
            if by_checksum or not binary.build_id:
                return binary.debug_link is not None and file.checksum() == binary.debug_link[1]
    except (OSError, TraceError):
        return False
    return False
