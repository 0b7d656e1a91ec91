"""Hits of probes that the kernel left out, as it counts them itself.

- A program that is hit while it runs already on that CPU (or, for kprobes, tracepoints and perf events, while any such
  program runs) is not run: ``recursion_misses`` of ``struct bpf_prog_info`` (trampolines since 5.12, others since 6.7).
- A kprobe that is hit inside of another, and a kretprobe that has no room to remember one more call, is not run:
  ``missed`` of the link's information (since 6.7), or the third column of ``kprobe_profile`` for probes made
  through tracefs.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pytrace.core.probes.kinds import KPROBE, KRETPROBE
from pytrace.runtime.abi import bpf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytrace.runtime.attach.opened import Opened
    from pytrace.runtime.load.loader import LoadedScript

_PERF_LINK, _KPROBE_MULTI_LINK = 7, 8
"""``BPF_LINK_TYPE_PERF_EVENT``, ``BPF_LINK_TYPE_KPROBE_MULTI``."""
_PERF_KPROBES = frozenset({3, 4})
"""``BPF_PERF_EVENT_KPROBE``, ``BPF_PERF_EVENT_KRETPROBE``."""

_INFO = 64


def link_misses(link: int) -> int:
    """What the kprobes of a link missed; 0 for links of other kinds."""
    data = bpf.info(link, _INFO)
    (kind,) = struct.unpack_from("=I", data)
    if kind == _KPROBE_MULTI_LINK:
        return int(struct.unpack_from("=Q", data, 32)[0])
    if kind == _PERF_LINK and struct.unpack_from("=I", data, 16)[0] in _PERF_KPROBES:
        return int(struct.unpack_from("=Q", data, 48)[0])
    return 0


def profile_misses(text: str) -> dict[str, int]:
    """Misses by event name, from the text of ``kprobe_profile`` (name, hits, misses)."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[2]) for row in rows if len(row) == 3}


class MissReader:
    """Reads the misses of one script's programs; what is attached is looked at as long as it is open."""

    def __init__(self, loaded: LoadedScript, opened: Opened) -> None:
        self._loaded = loaded
        self._opened = opened
        self._indexes = {spec.symbol: at for at, spec in enumerate(loaded.manifest.programs)}
        self._programs = {bpf.prog_id(loaded.program_fd(symbol)): self._indexes[symbol] for symbol in loaded.symbols}
        # What serves the script's programs (--follow) is made so that misses do not matter.
        services = {spec.symbol for spec in loaded.manifest.programs if spec.service}
        self._symbols = [symbol for symbol in loaded.symbols if symbol not in services]
        self._kernel_probes = [
            spec for spec in loaded.manifest.programs if spec.kind in (KPROBE, KRETPROBE) and not spec.part_of
        ]

    def totals(self) -> dict[tuple[str, int], int]:
        """Counts by kind (``recursion``, ``missed``) and program, those that are not zero."""
        found: dict[tuple[str, int], int] = {}
        for symbol in self._symbols:
            missed = bpf.recursion_misses(self._loaded.program_fd(symbol))
            if missed:
                found["recursion", self._indexes[symbol]] = missed
        if self._kernel_probes:
            for index, missed in self._kprobes():
                found["missed", index] = found.get(("missed", index), 0) + missed
        return found

    def _kprobes(self) -> list[tuple[int, int]]:
        found = []
        for link in self._opened.links:
            missed = link_misses(link)
            if missed:
                found.append((self._programs[bpf.link_info(link)[2]], missed))
        if self._opened.traced:
            profile = self._profile()
            found += [(self._indexes[symbol], profile.get(name, 0)) for name, symbol in self._opened.traced.items()]
        return [(index, missed) for index, missed in found if missed]

    def _profile(self) -> Mapping[str, int]:
        from pytrace.runtime.host import tracefs

        with open(f"{tracefs.root()}/kprobe_profile", encoding="utf-8") as file:
            return profile_misses(file.read())
