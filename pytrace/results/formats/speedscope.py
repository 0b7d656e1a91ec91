"""Format ``speedscope``: the JSON of https://www.speedscope.app, a sampled profile for each map and each other key.

The form is that of ``file-format-schema.json`` in speedscope's package.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.render.text import encoded
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import Frame, SnapshotData
from pytrace.results.stack_samples import Measure, Profile, Sample, by_labels, frame_name, profiles

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"

_UNITS = {
    "ns": ("nanoseconds", 1), "us": ("microseconds", 1), "ms": ("milliseconds", 1), "s": ("seconds", 1),
    "bytes": ("bytes", 1), "KB": ("bytes", 1 << 10), "MB": ("bytes", 1 << 20),
}  # fmt: skip
"""Its name of a unit, and how many of these one of ours is; all others have none."""

_FrameKey = tuple[str, str]
"""Name, and source file or module: the same for all calls in a function."""


class _Frames(msgspec.Struct):
    """The frames that all profiles share, by their number."""

    numbers: dict[_FrameKey, int] = msgspec.field(default_factory=dict)

    def number(self, name: str, file: str) -> int:
        return self.numbers.setdefault((name, file), len(self.numbers))

    def of(self, frames: Iterable[Frame]) -> list[int]:
        return [self.number(frame_name(frame), frame.file or frame.module) for frame in frames]

    def shown(self) -> list[dict[str, str]]:
        return [
            {"name": _text(name), "file": _text(file)} if file else {"name": _text(name)} for name, file in self.numbers
        ]


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write one JSON object.

    Raises:
        TraceError: a number is negative.
    """
    frames = _Frames()
    measured = profiles(snapshot.maps.values(), Printers().portable_text)
    groups = _together if options.flag("together") else _apart
    shown = [
        _shown(profile, number, name, samples, frames)
        for profile in measured
        for name, samples in groups(profile)
        for number in range(len(profile.measures))
    ]
    run = snapshot.runs[0] if snapshot.runs else None
    document = {
        "$schema": _SCHEMA,
        "name": _text(f"{run.script} on {run.host}") if run is not None else "pytrace",
        "exporter": f"pytrace {run.version}" if run is not None else "pytrace",
        "activeProfileIndex": 0,
        "shared": {"frames": frames.shown()},
        "profiles": shown,
    }
    file.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")


_Group = tuple[str, list[tuple[list[str], Sample]]]
"""Name of a profile, and its samples with the frames at their roots."""


def _together(profile: Profile) -> Iterator[_Group]:
    """One profile, with the labels as frames at the root."""
    yield profile.name, [([label.text for label in sample.labels], sample) for sample in profile.samples]


def _apart(profile: Profile) -> Iterator[_Group]:
    """A profile for each combination of labels."""
    for name, samples in by_labels(profile):
        yield name, [([], sample) for sample in samples]


def _shown(
    profile: Profile, number: int, name: str, samples: list[tuple[list[str], Sample]], frames: _Frames
) -> dict[str, object]:
    """One profile of one measure; equal stacks are joined."""
    measure: Measure = profile.measures[number]
    unit, factor = _UNITS.get(measure.unit, ("none", 1))
    weights: dict[tuple[int, ...], int] = {}
    for root, sample in samples:
        value = sample.values[number] * factor
        if value < 0:
            text = f"format speedscope has no negative numbers, and {profile.name} has {value}"
            raise TraceError(text, hints=("format pprof has",))
        stack = (*(frames.number(text, "") for text in root), *frames.of(sample.frames))
        known = weights.get(stack)
        weights[stack] = value if known is None else profile.join(known, value)
    return {
        "type": "sampled",
        "name": _text(f"{name} ({measure.part})" if measure.part else name),
        "unit": unit,
        "startValue": 0,
        "endValue": sum(weights.values()),
        "samples": [list(stack) for stack in weights],
        "weights": list(weights.values()),
    }


def _text(text: str) -> str:
    """Text without the lone surrogates that stand for bytes, which are no JSON that others read."""
    return encoded(text).decode("utf-8", "backslashreplace")
