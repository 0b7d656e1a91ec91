"""The privileges that a script needs, for ``--info`` with a script."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest
from pytrace.core.options.run_options import RunOptions
from pytrace.core.probes.targets import IteratorTarget, TypedFunctionTarget
from pytrace.runtime.machine import privileges
from pytrace.runtime.session import confinement

Row = tuple[str, str | bool]
"""A need with its capabilities, and the answer."""

ATTACHES = "loads and attaches programs"
PINNED = "pins an iterator"
FOREIGN = "attaches to functions of modules or BPF programs"
PROCESSES = "-p: the process belongs to another user"


def needs(manifest: Manifest, options: RunOptions) -> dict[str, tuple[str, ...]]:
    """The capabilities that a run needs, by reason: those to attach, then those that it keeps afterwards."""
    found: dict[str, tuple[str, ...]] = {ATTACHES: privileges.NEEDED}
    places = [target.place for program in manifest.programs for target in program.targets]
    if any(isinstance(place, IteratorTarget) and place.pin for place in places):
        found[PINNED] = ("CAP_DAC_OVERRIDE",)
    if any(isinstance(place, TypedFunctionTarget) and place.module != "vmlinux" for place in places):
        found[FOREIGN] = ("CAP_SYS_ADMIN",)
    if any(map(_of_another_user, options.filters.pids)):
        found[PROCESSES] = ("CAP_SYS_PTRACE",)
    later = confinement.needs(manifest, options, legacy=False, on_cpus=False)
    for name, reason in later.capabilities.items():
        found[reason] = (*found.get(reason, ()), name)
    return found


def rows(manifest: Manifest, options: RunOptions) -> Iterator[Row]:
    """Each need, and whether this process has it."""
    return _rows(needs(manifest, options))


def rows_without(error: TraceError) -> Iterator[Row]:
    """The needs of any script, of one that cannot be compiled here."""
    yield from _rows({ATTACHES: privileges.NEEDED})
    yield "the rest is known once it compiles", f"no ({'; '.join((error.message, *error.hints))})"


def _rows(needed: Mapping[str, tuple[str, ...]]) -> Iterator[Row]:
    held = privileges.effective_capabilities()
    for reason, names in needed.items():
        missing = privileges.missing_capabilities(held, names)
        yield f"{reason} ({', '.join(names)})", f"no (lacks {', '.join(missing)})" if missing else True


def _of_another_user(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid != os.geteuid()
    except OSError:
        return False
