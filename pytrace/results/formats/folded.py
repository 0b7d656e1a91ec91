"""Format ``folded``: one line for each stack, root first, as FlameGraph's programs read it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import BinaryIO

from pytrace.core.diagnostics import TraceError
from pytrace.core.types import truncated
from pytrace.render.text import encoded
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import MapData, SnapshotData
from pytrace.results.stack_samples import KERNEL, Label, Profile, Sample, profiles

VALUES = ("total", "count", "average")
"""Numbers of averages and stats that can be shown."""


_ESCAPES = {";": ":", **{chr(code): f"\\x{code:02x}" for code in (*range(32), 127)}}
_TABLE = str.maketrans(_ESCAPES)
"""Escapes of characters that have a meaning in a line."""


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write the lines of all maps in the order of their texts.

    Raises:
        TraceError: a number is negative, or an option does not fit the maps.
    """
    lines = _lines(snapshot, options, named=_named_maps(snapshot.maps.values()))
    file.writelines(encoded(f"{stack} {number}\n") for stack, number in sorted(lines.items()))


def differential(before: SnapshotData, after: SnapshotData, options: WriteOptions) -> bytes:
    """Lines with two numbers, before and after, of which ``flamegraph.pl`` makes a differential flame graph.

    Raises:
        TraceError: as :func:`write`.
    """
    named = _named_maps((before.maps | after.maps).values()) or _named_maps(before.maps.values())
    old, new = (_lines(snapshot, options, named=named) for snapshot in (before, after))
    stacks = sorted({*old, *new})
    return b"".join([encoded(f"{stack} {old.get(stack, 0)} {new.get(stack, 0)}\n") for stack in stacks])


def _named_maps(maps: Collection[MapData]) -> bool:
    """Whether maps have to be told from each other, or one has a mark."""
    return len(maps) > 1 or any(data.mark for data in maps)


def _lines(snapshot: SnapshotData, options: WriteOptions, *, named: bool) -> dict[str, int]:
    """Numbers by stack; with *named* the map is the first frame."""
    wanted = options.settings.get("value", VALUES[0])
    if wanted not in VALUES:
        raise TraceError(f"option value of format folded is one of {', '.join(VALUES)}, not {wanted!r}")
    return {
        stack: _number(profile, values, wanted)
        for profile in profiles(snapshot.maps.values(), Printers().portable_text, ordered=options.flag("ordered"))
        for stack, values in _joined(profile, [profile.name] if named else [], options).items()
    }


def _joined(profile: Profile, root: list[str], options: WriteOptions) -> dict[str, tuple[int, ...]]:
    """Numbers by stack: those that differ only in what is not shown are one."""
    labels = _shown_labels(profile, options)
    names = _annotated if options.flag("annotate") else _names
    join = profile.join
    joined: dict[str, tuple[int, ...]] = {}
    for sample in profile.samples:
        stack = _line([*root, *labels(sample), *names(sample)])
        known = joined.get(stack)
        joined[stack] = sample.values if known is None else tuple(map(join, known, sample.values))
    return joined


def _shown_labels(profile: Profile, options: WriteOptions) -> Callable[[Sample], list[str]]:
    """The members of a key that become frames at the root."""
    if options.flag("stacks"):
        return lambda _sample: []
    if not options.flag("process"):
        return lambda sample: [label.text for label in sample.labels]
    if not profile.text_labels:
        hint = f"{profile.name}[comm, ustack] has the name of the process"
        raise TraceError(
            f"format folded:process needs a string in the key of {profile.name}, the process's name", hints=(hint,)
        )
    name = profile.text_labels[0]
    return lambda sample: [_named(sample.labels, name)]


def _named(labels: Sequence[Label], name: str) -> str:
    return next(label.text for label in labels if label.name == name)


def _names(sample: Sample) -> Sequence[str]:
    return sample.names


def _annotated(sample: Sample) -> Sequence[str]:
    """Frames with the marks that palettes of FlameGraph go by."""
    return [
        name + ("_[i]" if frame.inlined else "_[k]" if kind == KERNEL else "")
        for name, frame, kind in zip(sample.names, sample.frames, sample.kinds, strict=True)
    ]


def _line(names: list[str]) -> str:
    """A stack without its number; a last word that is a number would be read as that."""
    line = ";".join([name.translate(_TABLE) for name in names])
    start, space, end = line.rpartition(" ")
    return f"{start}_{end}" if space and end.replace(".", "", 1).isdigit() else line


def _number(profile: Profile, values: tuple[int, ...], wanted: str) -> int:
    number = values[-1]
    if len(values) > 1 and wanted != "total":
        count = values[0]
        number = count if wanted == "count" else truncated(number, count)
    if number < 0:
        raise TraceError(
            f"format folded has no negative numbers, and {profile.name} has {number}",
            hints=("format pprof has",),
        )
    return number
