"""Where the probes of an ahead-of-time file are in user binaries that were changed after it was compiled.

Rows (lists of texts), as ``codegen.aot.layout_reliance`` writes them down:

- ``symbol``, path, function, file offset
- ``usdt``, path, provider, name, file offset, arguments of the note
- ``exact``, path, why no other file will do
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pytrace.base.fast_dataclass import replace
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest, ProgramSpec, Target
from pytrace.runtime.elf.file import attach_path
from pytrace.runtime.host import fingerprints

if TYPE_CHECKING:
    from pytrace.core.kernel_info import KernelInfo

Row = Sequence[str]
_AGAIN = ("compile the script again on this machine",)


def moved(manifest: Manifest, rows: Iterable[Row], kernel: KernelInfo) -> tuple[ProgramSpec, ...]:
    """The programs of *manifest*, attached to where their functions and locations are now.

    Raises:
        TraceError: a binary was changed so that the code does not fit it.
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
    return tuple(replace(spec, targets=tuple(map(move, spec.targets))) for spec in manifest.programs)


def check_programs(manifest: Manifest, kernel: KernelInfo) -> None:
    """Probes on other BPF programs are on the very programs that were there.

    Raises:
        TraceError: one of them is gone.
    """
    for spec in manifest.programs:
        for target in spec.targets:
            number, name = target.details.get("program_id"), str(target.details.get("function", ""))
            if number is not None and (int(number), name) not in kernel.bpf_programs(name):
                raise TraceError(f"{target.probe}: the BPF program with id {number} is gone", hints=_AGAIN)


def _moved(target: Target, shifts: dict[tuple[str, str], int], locations: dict[tuple[str, int], Any]) -> Target:
    details = target.details
    path = str(details.get("path", ""))
    shift = shifts.get((path, str(details.get("symbol", ""))))
    if shift is not None:
        return replace(target, details={**details, "offset": int(details["offset"]) + shift})
    place = locations.get((path, int(details.get("offset", 0))))
    return target if place is None else replace(target, details={**details, **place})


def _gone(manifest: Manifest) -> set[str]:
    """Files that a pattern found and that are no longer there: nothing is attached to them."""
    details = (target.details for spec in manifest.programs for target in spec.targets)
    found = {str(item["path"]) for item in details if "by_pattern" in item}
    return {path for path in found if not os.path.exists(attach_path(path))}


def _same(known: fingerprints.Fact | None) -> bool:
    return known is not None and fingerprints.still_true([known])


def _check_exact(row: Row, known: fingerprints.Fact | None) -> None:
    _, path, why = row
    # Size and time of change; the inode is another one where the same file system is mounted elsewhere.
    if known is None or fingerprints.file_fact(known[1])[2:4] != tuple(known[2:4]):
        raise TraceError(f"{path} is not the file that the script was compiled for, and {why}", hints=_AGAIN)


def _shifts(rows: Iterable[Row], kernel: KernelInfo) -> dict[tuple[str, str], int]:
    """How far each function moved."""
    found: dict[tuple[str, str], int] = {}
    for _, path, name, offset in rows:
        symbol = next((item for item in kernel.user_symbols(path, name) if item.name == name), None)
        if symbol is None:
            raise TraceError(f"{path} has no function {name!r} any more", hints=_AGAIN)
        found[path, name] = symbol.offset - int(offset)
    return found


def _locations(rows: Iterable[Row], kernel: KernelInfo) -> dict[tuple[str, int], dict[str, int]]:
    """The present place of each static probe location, by path and former offset."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row[1], row[2], row[3]), []).append(row)
    found: dict[tuple[str, int], dict[str, int]] = {}
    for (path, provider, name), former in groups.items():
        present = kernel.usdt_probes(path, provider, name)
        if [item.arguments for item in present] != [row[5] for row in former]:
            raise TraceError(f"the arguments of usdt:{path}:{provider}:{name} are not what they were", hints=_AGAIN)
        for row, item in zip(former, present, strict=True):
            found[path, int(row[4])] = {"offset": item.offset, "semaphore_offset": item.semaphore_offset}
    return found
