"""Scripts made of the programs of ``objects/probes.c``: for tests of loader and attachers without the compiler."""

from __future__ import annotations

import struct
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from pytrace.core.event_layout import EventSpec, Formatted, Location
from pytrace.core.manifest import CompiledScript, Counters, GlobalSlot, Manifest, MapSpec, ProgramSpec, Target
from pytrace.core.options import Config
from pytrace.core.probe_kinds import AnyTarget
from pytrace.core.types import UINT64
from pytrace.runtime.load import loader
from pytrace.runtime.load.map_reader import MapReader

HERE = Location("probes.c", 1, 1)
COPIES = 8

HITS = MapSpec("@hits", "", "global", None, UINT64, 1, GlobalSlot(".data.slots", 0, COPIES, 64))
COUNTS = MapSpec("@counts", "counts", "hash", UINT64, UINT64, 4096)
PERCPU = MapSpec("@percpu", "percpu", "percpuhash", UINT64, UINT64, 4096)
EVENT = EventSpec(0, "printf", (UINT64, UINT64, UINT64), Formatted("%d %d %d"), HERE)
"""What the programs send: a number, the process id, the cookie."""


@cache
def elf() -> bytes:
    """``probes.ll`` as an object for BPF."""
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    module = binding.parse_assembly((Path(__file__).parent / "objects" / "probes.ll").read_text())
    machine = binding.Target.from_triple("bpfel").create_target_machine(cpu="v3", opt=2)
    return bytes(machine.emit_object(module))


def target(place: AnyTarget, cookie: int = 0, probe: str = "test:probe") -> Target:
    """A target of a program."""
    return Target(probe, cookie, place)


def program(symbol: str, kind: str, *targets: Target, multi: str = "", index: int = 0) -> ProgramSpec:
    """A program of ``probes.c``."""
    return ProgramSpec(symbol, kind, index, targets, HERE, multi)


def script(*programs: ProgramSpec, **config: Any) -> CompiledScript:
    """A script of these programs."""
    names = (("lost", 0), ("other", 0))
    counters = Counters(".data.counters", 0, COPIES, 16, names)
    maps = (HITS, COUNTS, PERCPU)
    return CompiledScript(elf(), Manifest(programs, maps, (EVENT,), (), Config(**config), counters=counters))


class Loaded:
    """A loaded script of ``probes.c`` and what it counted."""

    def __init__(
        self,
        stack: ExitStack,
        *programs: ProgramSpec,
        pid: int = 0,
        disabled: frozenset[str] = frozenset(),
        **config: Any,
    ) -> None:
        self.programs = programs
        options = loader.LoadOptions(disabled=disabled)
        self.loaded = loader.load(script(*programs, **config), options=options, stack=stack)
        self.maps = MapReader(self.loaded)
        self.watch(pid)

    def watch(self, pid: int) -> None:
        """Programs look at one process only (0: at all)."""
        self.loaded.section(".data.settings")[:8] = struct.pack("=Q", pid)

    @property
    def hits(self) -> int:
        """How often any program ran."""
        _, value = self.maps.slot(HITS)
        return sum(struct.unpack(f"={COPIES}Q", value))

    @property
    def counts(self) -> dict[int, int]:
        """How often the counting programs ran, by cookie."""
        pairs = self.maps.items(COUNTS)
        return {int.from_bytes(key, "little"): int.from_bytes(value, "little") for key, value in pairs}

    @property
    def percpu_counts(self) -> dict[int, int]:
        """The same from the per-CPU map."""
        return {
            int.from_bytes(key, "little"): sum(struct.unpack(f"={len(value) // 8}Q", value))
            for key, value in self.maps.items(PERCPU)
        }
