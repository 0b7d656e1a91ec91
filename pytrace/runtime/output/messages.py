"""Messages of a run: run-time errors of programs, lost events."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from pytrace.core.diagnostics import is_of_tools
from pytrace.core.event_layout import Location
from pytrace.core.failures import failure
from pytrace.core.manifest import Manifest
from pytrace.core.types import DEEPEST_STACK
from pytrace.runtime.machine import perf

_COLOURS = {"ERROR": "\x1b[31m", "WARNING": "\x1b[33m", "NOTE": "\x1b[2m"}
_RESET = "\x1b[0m"

RUNTIME_ERRORS: dict[str, str] = {
    "division_by_zero": "division or modulo by zero; its result is 1",
    "array_bounds": "array index is out of bounds",
    "cpu_count": "the kernel has more CPUs than the script was compiled for; counts of this CPU are missing",
    "kernel_stack": "the kernel stack could not be read",
    "user_stack": "the user stack could not be read",
    "no_dwarf": "there are no unwind tables for this process; dw_ustack needs them when tracing starts",
    "no_child": "cpid is 0: there is no child process, as -c was not given",
}
"""Texts of run-time errors by kind."""


def located(
    severity: str, text: str, location: Location, expansion: Sequence[Location] = (), *, colour: bool = False
) -> str:
    """A message about a place in the script, with the line underlined, and the calls that it was expanded from."""
    found = _place(severity, text, location, colour)
    for place in expansion:
        found += _place("NOTE", "expanded from here", place, colour)
    return found


def plain(severity: str, text: str, *, colour: bool = False) -> str:
    """A message without a place."""
    before, after = (_COLOURS[severity], _RESET) if colour else ("", "")
    return f"{before}{severity}: {text}{after}\n"


def _place(severity: str, text: str, location: Location, colour: bool) -> str:
    before, after = (_COLOURS[severity], _RESET) if colour else ("", "")
    end = max(location.end_column, location.column + 1)
    found = f"{before}{location.file}:{location.line}:{location.column}-{end}: {severity}: {text}{after}\n"
    if location.text:
        start = location.column - 1 - location.skipped
        margin = _expand(location.text[:start])
        marked = _expand(location.text[start : end - 1 - location.skipped])
        found += f"{_expand(location.text)}\n{' ' * len(margin)}{'~' * max(1, len(marked))}\n"
    return found


def _expand(text: str) -> str:
    return text.replace("\t", "    ")


# ---------------------------------------------------------------------------------------------- counters

Totals = Mapping[tuple[str, int], int]
"""How often each (kind, subject) of :class:`pytrace.core.manifest.Counters` happened."""


def subject_name(manifest: Manifest, kind: str, subject: int) -> str:
    """The subject of a counter: the name of a probe or map, or the place of a call."""
    name = _SUBJECTS.get(failure(kind).subject)
    return "total" if name is None else name(manifest, subject)


def _program_name(manifest: Manifest, subject: int) -> str:
    program = manifest.programs[subject]
    if not program.targets:
        return program.kind
    more = "" if len(program.targets) == 1 else f" and {len(program.targets) - 1} more"
    return program.targets[0].probe + more


def _map_name(manifest: Manifest, subject: int) -> str:
    return (*manifest.maps, *manifest.call_maps)[subject].name


def _site_name(manifest: Manifest, subject: int) -> str:
    if manifest.counters is None:
        return str(subject)
    site = manifest.counters.sites[subject]
    if is_of_tools(site.location.file):
        return site.helper  # nobody wants to look for it in pytrace's own text
    return f"{site.helper} at {site.location.file}:{site.location.line}:{site.location.column}"


_SUBJECTS: dict[str, Callable[[Manifest, int], str]] = {
    "program": _program_name,
    "map": _map_name,
    "site": _site_name,
}


def by_kind(manifest: Manifest, totals: Totals) -> dict[str, dict[str, int]]:
    """Counts by kind and name of the subject, those that are not zero."""
    found: dict[str, dict[str, int]] = {}
    for (kind, subject), count in totals.items():
        if count > 0:
            names = found.setdefault(kind, {})
            name = subject_name(manifest, kind, subject)
            names[name] = names.get(name, 0) + count
    return found


def summary_lines(manifest: Manifest, totals: Totals, told: Collection[str] = ()) -> list[str]:
    """A sentence for each kind of failure, most affected subjects first; *told*: kinds that were reported in part."""
    lines = []
    for kind, names in by_kind(manifest, totals).items():
        row, count = failure(kind), sum(names.values())
        ordered = sorted(names.items(), key=lambda item: (-item[1], item[0]))
        shown = [f"{name} {number}" for name, number in ordered[:_SHOWN]]
        if len(ordered) > _SHOWN:
            shown.append(f"{len(ordered) - _SHOWN} others {sum(number for _, number in ordered[_SHOWN:])}")
        detail = f" ({', '.join(shown)})" if row.subject else ""
        advice = _ADVICE.get(kind)
        hint = advice(manifest, [name for name, _ in ordered]) if advice is not None else ""
        total = "in total, " if kind in told else ""
        lines.append(f"{total}{count} {row.one if count == 1 else row.many}{detail}{hint}")
    return lines


def gap(start: int, duration: int) -> str:
    """The message about a time in which programs skipped hits: wall time and duration, in nanoseconds."""
    whole, rest = divmod(start, 1_000_000_000)
    moment = time.strftime("%H:%M:%S", time.localtime(whole)) + f".{rest // 1_000_000:03}"
    return f"pytrace did not run for a while: probes did nothing for {duration / 1e9:.3f} s from {moment}"


_SHOWN = 10
"""Maximum number of subjects in a sentence."""


def map_sizes(manifest: Manifest, names: Iterable[str]) -> dict[str, int]:
    """Maximum numbers of keys of the maps *names*."""
    sizes = {item.name: item.max_entries for item in (*manifest.maps, *manifest.call_maps)}
    return {name: sizes[name] for name in names}


def _grow_maps(manifest: Manifest, names: Sequence[str]) -> str:
    limits = ", ".join(f"{name} holds {size} keys" for name, size in map_sizes(manifest, names).items())
    larger = "" if all(":" in name for name in names) else " or declare the map larger"
    return f"; {limits}: increase max_map_keys{larger}"


def _grow_ring(_manifest: Manifest, _names: Sequence[str]) -> str:
    return "; increase perf_rb_pages or send fewer events"


def _longer_strings(manifest: Manifest, _names: Sequence[str]) -> str:
    return f"; max_strlen is {manifest.config.max_strlen}"


def _deeper(manifest: Manifest, names: Sequence[str]) -> str:
    most, depth = perf.max_stack(), manifest.config.max_stack_depth
    hint = f"; max_stack_depth is {depth}, and may be up to {DEEPEST_STACK}" if depth < DEEPEST_STACK else ""
    if any(name.startswith("kstack") for name in names):
        hint += f"; kernel.perf_event_max_stack is {most}, which limits kstack: it can be raised while nothing traces"
    return hint


def _more_chunks(manifest: Manifest, _names: Sequence[str]) -> str:
    return f"; raise max_map_keys, which is {manifest.config.max_map_keys}"


_ADVICE: dict[str, Callable[[Manifest, Sequence[str]], str]] = {
    "lost": _grow_ring,
    "map_full": _grow_maps,
    "cut": _longer_strings,
    "truncated": _deeper,
    "chunks_full": _more_chunks,
}
