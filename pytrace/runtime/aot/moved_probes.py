"""Where the probes of an ahead-of-time file are in user binaries that were changed after it was compiled.

Rows (lists of texts), as ``codegen.emit.load_time`` writes them down:

- ``symbol``, path, function, file offset
- ``usdt``, path, provider, name, file offset, arguments of the note
- ``exact``, path, why no other file will do
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from pytrace.core.diagnostics import MisfitError
from pytrace.core.kernel_info import KernelInfo, UsdtProbe
from pytrace.core.manifest import Manifest, ProgramSpec, Target
from pytrace.core.probes.instructions import is_misread
from pytrace.core.probes.targets import FileTarget, StaticProbeTarget, TypedFunctionTarget, UserTarget
from pytrace.runtime.elf.file import attach_path
from pytrace.runtime.machine import fingerprints

Row = Sequence[str]
_LONGEST = 16
"""Bytes that are enough for any instruction."""
_AGAIN = ("compile the script again on this machine",)


def moved(manifest: Manifest, rows: Iterable[Row], kernel: KernelInfo) -> tuple[ProgramSpec, ...]:
    """The programs of *manifest*, attached to where their functions and locations are now.

    Raises:
        MisfitError: a binary was changed so that the code does not fit it.
    """
    known = {fact[1]: fact for fact in manifest.facts if fact[0] == "file"}
    paths = dict.fromkeys(row[1] for row in rows)
    changed = {path for path in paths if not _same(known.get(attach_path(path)))} - _gone(manifest)
    if not changed:
        return manifest.programs
    concerned = [row for row in rows if row[1] in changed]
    for row in concerned:
        if row[0] == "exact":
            _check_exact(row, known.get(attach_path(row[1])))
    shifts = _shifts([row for row in concerned if row[0] == "symbol"], kernel)
    locations = _locations([row for row in concerned if row[0] == "usdt"], kernel)
    move = partial(_moved, shifts=shifts, locations=locations)
    programs = tuple(replace(spec, targets=tuple(map(move, spec.targets))) for spec in manifest.programs)
    _check_instructions(programs, changed, kernel)
    return programs


def check_programs(manifest: Manifest, kernel: KernelInfo) -> None:
    """Probes on other BPF programs are on the very programs that were there.

    Raises:
        MisfitError: one of them is gone.
    """
    for spec in manifest.programs:
        for target in spec.targets:
            place = target.place
            if not isinstance(place, TypedFunctionTarget) or place.program_id is None:
                continue
            if (place.program_id, place.function) not in kernel.bpf_programs(place.function):
                raise MisfitError(f"{target.probe}: the BPF program with id {place.program_id} is gone", hints=_AGAIN)


def _moved(target: Target, shifts: dict[tuple[str, str], int], locations: dict[tuple[str, int], UsdtProbe]) -> Target:
    place = target.place
    if isinstance(place, UserTarget):
        shift = shifts.get((place.path, place.symbol), 0)
        return replace(target, place=replace(place, offset=place.offset + shift)) if shift else target
    if isinstance(place, StaticProbeTarget):
        found = locations.get((place.path, place.offset))
        if found is not None:
            place = replace(place, offset=found.offset, semaphore_offset=found.semaphore_offset)
            return replace(target, place=place)
    return target


def _gone(manifest: Manifest) -> set[str]:
    """Files that a pattern found and that are no longer there: nothing is attached to them."""
    places = (target.place for spec in manifest.programs for target in spec.targets)
    found = {place.path for place in places if isinstance(place, FileTarget) and place.by_pattern}
    return {path for path in found if not os.path.exists(attach_path(path))}


def _same(known: fingerprints.Fact | None) -> bool:
    return known is not None and fingerprints.still_true([known])


def _check_exact(row: Row, known: fingerprints.Fact | None) -> None:
    _, path, why = row
    # Size and time of change; the inode is another one where the same file system is mounted elsewhere.
    if known is None or fingerprints.file_fact(known[1])[2:4] != tuple(known[2:4]):
        raise MisfitError(f"{path} is not the file that the script was compiled for, and {why}", hints=_AGAIN)


def _check_instructions(programs: Iterable[ProgramSpec], changed: set[str], kernel: KernelInfo) -> None:
    """The code of a changed file may start with another instruction: the compiler checked the former one."""
    if kernel.arch != "x86_64":
        return
    for spec in programs:
        for target in spec.targets:
            place = target.place
            if not isinstance(place, FileTarget) or place.path not in changed:
                continue
            if is_misread(kernel.user_code(place.path, place.offset, _LONGEST)):
                message = f"cannot probe {target.probe}: the kernel would misread the instruction there and corrupt "
                raise MisfitError(message + "the program", hints=_AGAIN)


def _shifts(rows: Iterable[Row], kernel: KernelInfo) -> dict[tuple[str, str], int]:
    """How far each function moved."""
    found: dict[tuple[str, str], int] = {}
    for _, path, name, offset in rows:
        symbol = next((item for item in kernel.user_symbols(path, name) if item.name == name), None)
        if symbol is None:
            raise MisfitError(f"{path} no longer has a function {name!r}", hints=_AGAIN)
        found[path, name] = symbol.offset - int(offset)
    return found


def _locations(rows: Iterable[Row], kernel: KernelInfo) -> dict[tuple[str, int], UsdtProbe]:
    """The present place of each static probe location, by path and former offset."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row[1], row[2], row[3]), []).append(row)
    found: dict[tuple[str, int], UsdtProbe] = {}
    for (path, provider, name), former in groups.items():
        present = kernel.usdt_probes(path, provider, name)
        if [item.arguments for item in present] != [row[5] for row in former]:
            raise MisfitError(f"the arguments of usdt:{path}:{provider}:{name} have changed", hints=_AGAIN)
        for row, item in zip(former, present, strict=True):
            found[path, int(row[4])] = item
    return found
