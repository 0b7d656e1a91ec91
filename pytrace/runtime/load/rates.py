"""The limits of ``--max-rate``, written for programs before they are attached."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fnmatch import fnmatchcase

from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.core.manifest import RATE_LINE, Manifest
from pytrace.core.options.run_options import Rate
from pytrace.core.probes.kinds import INTERVAL, ITER, known_kind, probe_kind
from pytrace.runtime.load.loaded_script import LoadedScript

AHEAD = 100_000_000
"""Nanoseconds by which hits may be ahead of their rate: bursts of a tenth of a second's hits."""


def write(loaded: LoadedScript, rates: Sequence[Rate]) -> None:
    """Write the limit of each block of a script that has limits.

    Raises:
        TraceError: the script was compiled without limits, or a pattern matches none of its probes.
    """
    limits = loaded.manifest.limits
    if limits is None:
        if rates:
            raise TraceError(
                "the script was compiled without --max-rate, and cannot limit its rate",
                hints=("compile it with --max-rate, or with config = { max_rate = N }",),
            )
        return
    memory = loaded.section(limits.section)
    for index, hits in of_blocks(loaded.manifest, rates).items():
        each = max(1, round(1e9 / hits)) if hits else 0
        struct.pack_into("=QQ", memory, limits.offset + RATE_LINE * index, each, AHEAD)


def of_blocks(manifest: Manifest, rates: Sequence[Rate]) -> dict[int, float]:
    """Hits per second of each block, 0 for no limit. The last pattern that matches counts, else the last of all.

    Raises:
        TraceError: a pattern matches no probe.
    """
    probes: dict[int, list[str]] = {}
    for program in manifest.programs:
        if not known_kind(program.kind).special and program.kind not in (INTERVAL, ITER) and not program.service:
            probes.setdefault(program.index, []).extend(target.probe for target in program.targets)
    general = [float(manifest.config.max_rate), *(rate.hits for rate in rates if not rate.pattern)]
    limits = dict.fromkeys(probes, general[-1])
    for rate in rates:
        if not rate.pattern:
            continue
        pattern = _full(rate.pattern)
        matching = [index for index, names in probes.items() if any(fnmatchcase(name, pattern) for name in names)]
        if not matching:
            names = sorted({name for each in probes.values() for name in each})
            raise TraceError(
                f"--max-rate {rate.pattern}: no probe of the script has such a name",
                hints=did_you_mean(rate.pattern, names) or tuple(f"it has {name}" for name in names[:3]),
            )
        limits.update(dict.fromkeys(matching, rate.hits))
    return limits


def _full(pattern: str) -> str:
    """A pattern with the full name of a probe kind in place of a short one."""
    head, colon, rest = pattern.partition(":")
    kind = probe_kind(head)
    return pattern if kind is None else f"{kind.name}{colon}{rest}"
