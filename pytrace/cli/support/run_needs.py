"""The privileges that a script needs, for ``--info`` with a script."""

from __future__ import annotations

import os
from collections.abc import Iterator

from pytrace.core.manifest import Manifest
from pytrace.core.options.run_options import RunOptions
from pytrace.core.probes.targets import IteratorTarget, TypedFunctionTarget
from pytrace.runtime.abi import privileges
from pytrace.runtime.session import confinement

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


def rows(manifest: Manifest, options: RunOptions) -> Iterator[tuple[str, str | bool]]:
    """Each need, and whether this process has it."""
    held = privileges.effective_capabilities()
    for reason, names in needs(manifest, options).items():
        missing = privileges.missing_capabilities(held, names)
        yield f"{reason} ({', '.join(names)})", f"no (lacks {', '.join(missing)})" if missing else True


def _of_another_user(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid != os.geteuid()
    except OSError:
        return False
