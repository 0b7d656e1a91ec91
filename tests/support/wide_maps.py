"""Maps as they are on machines with many processors: the memory that they take, how long they take to print."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from pytrace import pipeline
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.manifest import MapSpec
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.render.forms import Decoders, JsonForms, TextForms
from pytrace.render.map_printer import Block, MapView
from pytrace.results.formats.portable_forms import PortableNames
from tests.support.facts import RecordedKernel

KEYS = 1000
SCRIPT = "tracepoint:sched:sched_switch { @keyed[pid] = count(); @hist = hist(nsecs); }"


@dataclass
class WideReader:
    """Gives *keys* keys, or the copies of a slot, all of *processors* processors."""

    processors: int
    keys: int = KEYS

    def chunk(self, _digest: bytes) -> bytes | None:
        return None

    def blocks(self, spec: MapSpec, *, clear: bool = False) -> Iterator[Block]:
        value = struct.pack(f"={self.processors}Q", *range(self.processors))
        yield struct.pack(f"={self.keys}I", *range(self.keys)), value * self.keys, self.keys

    def slot(self, spec: MapSpec) -> tuple[bool, bytes]:
        assert spec.slot is not None
        return True, struct.pack("=Q", 5) * (spec.value.size // 8) * spec.slot.copies

    slot_and_clear = slot

    def clear(self, spec: MapSpec) -> None:
        raise NotImplementedError

    def zero(self, spec: MapSpec) -> None:
        raise NotImplementedError

    def lookup(self, spec: MapSpec, key: bytes) -> bytes | None:
        raise NotImplementedError

    def store(self, spec: MapSpec, key: bytes, value: bytes) -> None:
        raise NotImplementedError

    def delete(self, spec: MapSpec, key: bytes) -> bool:
        raise NotImplementedError

    def store_slot(self, spec: MapSpec, value: bytes) -> bool:
        raise NotImplementedError


def specs(processors: int) -> dict[str, MapSpec]:
    """The script's maps, as it is compiled for that many processors."""
    kernel = RecordedKernel(possible_cpus=processors)
    script = pipeline.compile_script(Source("stdin", SCRIPT), CompileOptions(), kernel, Diagnostics())
    return {spec.name: spec for spec in script.manifest.maps}


def text(spec: MapSpec, processors: int) -> bytes:
    """What prints of the map."""
    texts = TextForms(PortableNames())
    return MapView(spec, WideReader(processors), Decoders(), texts, JsonForms(texts)).text()


def cost(processors: int) -> tuple[float, float, float, float]:
    """Milliseconds to print the keyed map and the hist, KiB of the keyed map's values and of the hist."""
    maps = specs(processors)
    took = []
    for name in ("@keyed", "@hist"):
        text(maps[name], processors)
        start = time.process_time()
        for _ in range(3):
            text(maps[name], processors)
        took.append((time.process_time() - start) / 3 * 1e3)
    slot = maps["@hist"].slot
    assert slot is not None
    return took[0], took[1], KEYS * processors * 8 / 1024, slot.copies * slot.stride / 1024
