"""Arguments of :func:`pytrace.open` and :func:`pytrace.compile` that select processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.options.process_filters import ProcessFilters
from pytrace.runtime.machine import selected_processes as selected

Names: TypeAlias = str | Sequence[str]
Users: TypeAlias = str | int | Sequence[str | int]


def filters(
    pid: object,
    pids: Sequence[int],
    *,
    comm: Names = (),
    uid: Users = (),
    cgroup: Names = (),
    container: Names = (),
    netns: str | None = None,
    own_threads: bool = True,
) -> ProcessFilters:
    """The process filters that the arguments select.

    Raises:
        TraceError: a value names something that does not exist.
        TypeError: a process id is not an integer.
    """
    if pid is not None and pids:
        raise TraceError("pid and pids cannot be used together")
    if isinstance(pids, int | str):
        raise TypeError(f"pids must be a sequence of ints, not {type(pids).__name__}; pid takes one")
    numbers = tuple(pids) if pid is None else (pid,)
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(f"pid must be an int, not {type(number).__name__}")
    users = (uid,) if isinstance(uid, str | int) else uid
    return ProcessFilters(
        tuple(dict.fromkeys(number for number in numbers if isinstance(number, int))),
        selected.uids(str(user) for user in users),
        selected.comms(_names(comm), "comm"),
        selected.cgroups(_names(cgroup), _names(container)),
        () if netns is None else (selected.namespace(netns),),
        without_own_threads=not own_threads,
    )


def _names(names: Names) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def of_compiled(selected: ProcessFilters, options: CompileOptions) -> ProcessFilters:
    """The process filters of a run of a script that was compiled with *options*.

    Raises:
        TraceError: the script was compiled with other filters.
    """
    if not selected.pids:
        selected = replace(selected, pids=options.filters.pids)
    if selected.shape != options.shape:
        raise TraceError(
            "the script is compiled already, with other filters of processes",
            hints=("give compile() the same arguments as open(): pid, pids, comm, uid, cgroup, container, netns",),
        )
    return selected
