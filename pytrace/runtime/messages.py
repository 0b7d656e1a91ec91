"""Messages of a run: errors that programs met, events that were lost, failures of scripts' own making."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytrace.compiled import Manifest, MapSpec
from pytrace.events import Location

_COLOURS = {"ERROR": "\x1b[31m", "WARNING": "\x1b[33m", "NOTE": "\x1b[2m"}
_RESET = "\x1b[0m"

RUNTIME_ERRORS: dict[str, str] = {
    "division_by_zero": "division or modulo by zero; its result is 1",
    "array_bounds": "array index is out of bounds",
    "cpu_count": "the kernel has more CPUs than the script was compiled for; what this one counted is left out",
    "kernel_stack": "the kernel stack could not be read",
    "user_stack": "the user stack could not be read",
    "no_dwarf": "there are no unwind tables for this process; dw_ustack needs them when tracing starts",
    "no_child": "cpid is 0: there is no child process, as -c was not given",
}
"""What a run-time error of a kind says."""


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
        margin = _expand(location.text[: location.column - 1])
        marked = _expand(location.text[location.column - 1 : end - 1])
        found += f"{_expand(location.text)}\n{' ' * len(margin)}{'~' * max(1, len(marked))}\n"
    return found


def _expand(text: str) -> str:
    return text.replace("\t", "    ")


# ---------------------------------------------------------------------------------------------- helpers


def helper_failure(helper: str, code: int, subject: MapSpec | None) -> tuple[str, str]:
    """What a failed BPF helper means to the user, and a hint (may be empty)."""
    name = subject.name if subject is not None else "the map"
    text, hint = os.strerror(-code), ""
    if helper == "bpf_map_update_elem" and code == -errno.E2BIG:
        size = f" ({subject.max_entries} keys)" if subject is not None else ""
        text = f"{name} is full{size}: the update was dropped"
        hint = f"allow more keys by max_map_keys in the config block, or by a declaration: let {name} = hash(N);"
    elif helper == "bpf_map_delete_elem" and code == -errno.ENOENT:
        text = f"{name} has no such key to delete"
    elif helper in ("bpf_map_lookup_elem", "bpf_map_lookup_percpu_elem"):
        text = f"{name} has no such key; the value read is 0"
    return f"{text} ({helper} returned {code})", hint


# ---------------------------------------------------------------------------------------------- counters

Totals = Mapping[tuple[str, int], int]
"""How often each (kind, subject) of :class:`pytrace.compiled.Counters` happened."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What a counter counts: how its number reads, and whether its subject is a program or a map.

    *told*: an event tells each single one with its place in the script, so that only the sum is left to tell.
    """

    one: str
    many: str
    subject: str
    told: bool = False


FAILURES: dict[str, Failure] = {
    "lost": Failure("event was lost", "events were lost", "program"),
    "missed": Failure("hit of a probe was missed", "hits of probes were missed", "program"),
    "recursion": Failure("hit of a probe inside itself was left out", "hits of probes inside themselves were left out",
                         "program"),
    "map_full": Failure("map update was dropped", "map updates were dropped", "map", told=True),
    "stack": Failure("stack could not be walked", "stacks could not be walked", "program"),
    "unfollowed": Failure("forked process could not be followed", "forked processes could not be followed", ""),
    "helper": Failure("helper call failed", "helper calls failed", "program", told=True),
}  # fmt: skip


def failure(kind: str) -> Failure:
    """The row of a counter kind; one that has none counts under its own name."""
    return FAILURES.get(kind) or Failure(kind, kind, "")


def subject_name(manifest: Manifest, kind: str, subject: int) -> str:
    """What a counter is about: a probe by its name, a map with its size."""
    where = failure(kind).subject
    if where == "map" and subject < len(manifest.maps):
        return manifest.maps[subject].name
    if where == "program" and subject < len(manifest.programs):
        program = manifest.programs[subject]
        if program.targets:
            more = "" if len(program.targets) == 1 else f" and {len(program.targets) - 1} more"
            return program.targets[0].probe + more
        return program.kind
    return str(subject)


def by_kind(manifest: Manifest, totals: Totals) -> dict[str, dict[str, int]]:
    """Counts by kind and name of the subject, those that are not zero."""
    found: dict[str, dict[str, int]] = {}
    for (kind, subject), count in totals.items():
        if count > 0:
            names = found.setdefault(kind, {})
            name = subject_name(manifest, kind, subject)
            names[name] = names.get(name, 0) + count
    return found


def summary_lines(manifest: Manifest, totals: Totals) -> list[str]:
    """A sentence for each kind of failure, with what was hit most first."""
    lines = []
    for kind, names in by_kind(manifest, totals).items():
        row, count = failure(kind), sum(names.values())
        ordered = sorted(names.items(), key=lambda item: (-item[1], item[0]))
        detail = ", ".join(f"{name} {number}" for name, number in ordered)
        hint = ""
        if kind == "map_full":
            sizes = {item.name: item.max_entries for item in manifest.maps}
            limits = ", ".join(f"{name} holds {sizes[name]} keys" for name, _ in ordered if name in sizes)
            hint = f"; {limits}: allow more by max_map_keys or a declaration" if limits else ""
        elif kind == "lost":
            hint = "; a larger ring (perf_rb_pages) or fewer events would help"
        lines.append(f"{count} {row.one if count == 1 else row.many} ({detail}){hint}")
    return lines
