"""Available probes and kernel features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pytrace.core.probe_kinds import ProbeTarget
from pytrace.runtime.load import features as probing
from pytrace.runtime.load import listing
from pytrace.runtime.load.live_kernel import LiveKernel


class Argument(NamedTuple):
    """An argument of a probe: its name, and its type in C."""

    name: str
    type: str


class Probe:
    """A probe that a script may attach to."""

    __slots__ = ("_kernel", "_place", "kind", "name")

    def __init__(self, name: str, kind: str, place: ProbeTarget, kernel: LiveKernel) -> None:
        self.name = name
        """Full name, as scripts write it."""
        self.kind = kind
        """Kind of the probe: ``kprobe``, ``tracepoint`` …"""
        self._place = place
        self._kernel = kernel

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Members of ``args``; empty for kinds of probes without named arguments, and if their types are unknown."""
        return tuple(map(_argument, listing.arguments_of(self._kernel, self.kind, self._place)))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<probe {self.name}>"


def _argument(declaration: str) -> Argument:
    """Name and type of a declaration like ``unsigned long name[8]``."""
    text, bracket, size = declaration.rstrip(";").partition("[")
    start = len(text.rstrip())
    while start and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    return Argument(text[start:].strip(), f"{text[:start].rstrip()}{bracket}{size}")


def probes(pattern: str, *, pid: int | None = None) -> Iterator[Probe]:
    """The probes that match a pattern, as ``pytrace -l`` lists them, without duplicates.

    Args:
        pattern: like an attach point, with ``*`` for any text: ``tracepoint:sched:*``, ``uprobe:/bin/bash:read*``.
        pid: probes of this process (of the binaries that it has mapped, for user probes).

    Raises:
        TraceError: the kind of probe, the binary or the process does not exist.
    """
    kernel = LiveKernel()
    seen: set[str] = set()
    for kind, (name, place) in listing.matching_places(kernel, pattern, pid=pid):
        if name not in seen:
            seen.add(name)
            yield Probe(name, kind, place, kernel)


def features() -> dict[str, bool]:
    """The features of this kernel, by their names in ``--no-feature`` and ``--info``; each one is probed."""
    return {name: probing.has(name) for name in probing.FEATURES}
