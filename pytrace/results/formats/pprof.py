"""Format ``pprof``: the gzipped protocol buffer that ``go tool pprof`` and many profilers read.

Field numbers are those of ``proto/profile.proto`` in https://github.com/google/pprof.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import BinaryIO

import msgspec

from pytrace.base.protobuf import Message
from pytrace.core.diagnostics import TraceError
from pytrace.render.text import encoded
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import Frame, SnapshotData
from pytrace.results.stack_samples import Label, Measure, Profile, Sample, frame_name, profiles

_UNITS = {
    "count": "count", "ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds",
    "bytes": "bytes", "KB": "kilobytes", "MB": "megabytes",
}  # fmt: skip

_EVERYWHERE = (1 << 64) - 1
"""The end of a mapping that starts at 0: its addresses are those of the file as it was linked, and need no base."""

_MOST = (1 << 63) - 1


class _Numbered(msgspec.Struct):
    """Things by number, counted from 1 in the order of their first use."""

    numbers: dict[tuple[object, ...], int] = msgspec.field(default_factory=dict)

    def number(self, *key: object) -> tuple[int, bool]:
        """The number, and whether it is new."""
        known = self.numbers.get(key)
        if known is not None:
            return known, False
        self.numbers[key] = new = len(self.numbers) + 1
        return new, True


class _Mapping(msgspec.Struct):
    """A binary of which there are frames."""

    file: str
    build_id: str
    functions: bool = True
    """All its frames have a function, a source file, a line, and inlined functions beside them."""
    files: bool = True
    lines: bool = True
    inlined: bool = True


_Module = tuple[str, str]
"""File and build id."""


def _modules(measured: Iterable[Profile]) -> list[_Module]:
    """All binaries, first the program that most frames are of: readers take the first one for what was profiled."""
    weights: dict[int, int] = {}
    frames: dict[int, Frame] = {}
    for profile in measured:
        for sample in profile.samples:
            weight = abs(sample.values[0])
            for frame in sample.frames:
                weights[id(frame)] = weights.get(id(frame), 0) + weight
                frames[id(frame)] = frame
    modules: dict[_Module, int] = {}
    for identity, frame in frames.items():
        if frame.module or frame.build_id:
            module = frame.module, frame.build_id
            modules[module] = modules.get(module, 0) + weights[identity]

    def rank(module: _Module) -> tuple[bool, bool, int, _Module]:
        file = os.path.basename(module[0])
        return not file.startswith("[") and not file.endswith(".ko"), ".so" not in file, modules[module], module

    return sorted(modules, key=rank, reverse=True)


class _Writer:
    """A profile that is being written."""

    def __init__(self, modules: Iterable[_Module]) -> None:
        self.profile = Message()
        self._texts: dict[str, int] = {"": 0}
        self._mappings = {module: (number, _Mapping(*module)) for number, module in enumerate(modules, 1)}
        self._locations = _Numbered()
        self._functions = _Numbered()
        self._known: dict[int, int] = {}
        """Locations by the identity of frames, which live as long as the samples: most are one object many times."""

    def text(self, text: str) -> int:
        """The number of a text in the table of strings."""
        return self._texts.setdefault(text, len(self._texts))

    def value_type(self, field_: int, name: str, unit: str) -> None:
        message = Message()
        message.number(1, self.text(name))
        message.number(2, self.text(unit))
        self.profile.message(field_, message)

    def sample(self, sample: Sample, values: Iterable[int]) -> None:
        message = Message()
        message.packed(1, self._places(sample.frames))
        message.packed(2, values)
        for label in sample.labels:
            message.message(3, self._label(label))
        self.profile.message(2, message)

    def _places(self, frames: Sequence[Frame]) -> list[int]:
        """The locations of *frames*, outermost first, from the innermost on; one for inlined functions and theirs."""
        known = self._known
        numbers: list[int] = []
        inlined: list[Frame] = []
        for frame in reversed(frames):
            if frame.inlined:
                inlined.append(frame)
            elif inlined:
                numbers.append(self._location((*inlined, frame)))
                inlined = []
            else:
                number = known.get(id(frame))
                if number is None:
                    number = known[id(frame)] = self._location((frame,))
                numbers.append(number)
        return [*numbers, self._location(tuple(inlined))] if inlined else numbers

    def _label(self, label: Label) -> Message:
        message = Message()
        message.number(1, self.text(label.name))
        if label.number is None or not -_MOST <= label.number <= _MOST:
            message.number(2, self.text(label.text))
        else:
            message.number(3, label.number)
            # The unit that readers take where there is none; with it they do not take 0 for nothing.
            message.number(4, self.text(label.name))
        return message

    def _location(self, frames: tuple[Frame, ...]) -> int:
        """The location of the functions at one place, the innermost first."""
        number, new = self._locations.number(*frames)
        if not new:
            return number
        last = frames[-1]
        mapping = self._mapping(frames)
        message = Message()
        message.number(1, number)
        message.number(2, mapping)
        message.number(3, last.address)
        # What has no function is left to the reader's own symbols, where there is a binary to look into.
        if last.function or not mapping:
            for frame in frames:
                line = Message()
                line.number(1, self._function(frame))
                line.number(2, frame.line)
                message.message(4, line)
        self.profile.message(4, message)
        return number

    def _mapping(self, frames: Sequence[Frame]) -> int:
        last = frames[-1]
        if not last.module and not last.build_id:
            return 0
        number, mapping = self._mappings[last.module, last.build_id]
        mapping.functions &= bool(last.function)
        mapping.files &= bool(last.file)
        mapping.lines &= bool(last.line)
        mapping.inlined &= bool(last.file)
        return number

    def _function(self, frame: Frame) -> int:
        name = frame_name(frame)
        number, new = self._functions.number(name, frame.file)
        if new:
            message = Message()
            message.number(1, number)
            message.number(2, self.text(name))
            message.number(3, self.text(name))
            message.number(4, self.text(frame.file))
            self.profile.message(5, message)
        return number

    def finish(self) -> bytes:
        """The profile with the tables that it refers to."""
        for number, mapping in self._mappings.values():
            message = Message()
            message.number(1, number)
            message.number(3, _EVERYWHERE)
            message.number(5, self.text(mapping.file))
            message.number(6, self.text(mapping.build_id))
            for field_, known in enumerate((mapping.functions, mapping.files, mapping.lines, mapping.inlined), 7):
                message.number(field_, known)
            self.profile.message(3, message)
        for text in self._texts:
            self.profile.text(6, encoded(text).decode("utf-8", "backslashreplace").encode(), repeated=True)
        return bytes(self.profile)


def write(snapshot: SnapshotData, options: WriteOptions, file: BinaryIO) -> None:
    """Write one profile, with sample types for each map and the other members of keys as labels.

    Raises:
        TraceError: a number does not fit in 63 bits and a sign, or an option is wrong.
    """
    period = _period(options.settings.get("hz"))
    measured = profiles(snapshot.maps.values(), Printers().portable_text)
    writer = _Writer(_modules(measured))
    kinds = _sample_types(measured, period)
    for name, unit in chain.from_iterable(kinds):
        writer.value_type(1, name, unit)
    width = sum(map(len, kinds))
    start = 0
    for profile, kind in zip(measured, kinds, strict=True):
        for sample in profile.samples:
            values = _values(profile, sample, period)
            writer.sample(sample, [0] * start + values + [0] * (width - start - len(values)))
        start += len(kind)
    _describe(writer, snapshot, period, kinds[0][-1][0] if kinds else "")
    file.write(gzip.compress(writer.finish(), mtime=0))


def _period(text: str | None) -> int:
    """Nanoseconds between two samples of a frequency; 0 for none."""
    if text is None:
        return 0
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1_000_000_000:
        raise TraceError(f"option hz of format pprof is a frequency from 1 to 1000000000, not {text!r}")
    return 1_000_000_000 // int(text)


def _sample_types(measured: Iterable[Profile], period: int) -> list[list[tuple[str, str]]]:
    """Names and units of each map's numbers; of averages and stats the count comes first, as ``-mean`` wants it."""
    used: set[str] = set()

    def distinct(name: str, map_name: str) -> str:
        name = f"{map_name} {name}" if name in used else name
        used.add(name)
        return name

    kinds = []
    for profile in measured:
        stem = " ".join(word.removeprefix("@") for word in profile.name.split(" ")).strip()
        names = [(_type_name(stem, one), _UNITS.get(one.unit, one.unit)) for one in profile.measures]
        if period and _counts(profile.measures):
            names.append((f"{stem}_cpu" if stem else "cpu", "nanoseconds"))
        kinds.append([(distinct(name, profile.name), unit) for name, unit in names])
    return kinds


def _type_name(map_name: str, measure: Measure) -> str:
    if measure.part:
        return f"{map_name}_{measure.part}" if map_name else measure.part
    return map_name or ("samples" if measure.unit == "count" else "value")


def _counts(measures: Sequence[Measure]) -> bool:
    return measures == (Measure("", "count"),)


def _values(profile: Profile, sample: Sample, period: int) -> list[int]:
    values = list(sample.values)
    if period and _counts(profile.measures):
        values.append(values[0] * period)
    for value in values:
        if not -_MOST <= value <= _MOST:
            raise TraceError(f"numbers of format pprof end at {_MOST}, and {profile.name} has {value}")
    return values


def _describe(writer: _Writer, snapshot: SnapshotData, period: int, default: str) -> None:
    profile = writer.profile
    profile.number(9, snapshot.start)
    profile.number(10, snapshot.end - snapshot.start)
    if period:
        writer.value_type(11, "cpu", "nanoseconds")
        profile.number(12, period)
    comments = [
        f"{' '.join((run.script, *run.parameters))} on {run.host}, Linux {run.kernel}, pytrace {run.version}"
        for run in snapshot.runs
    ]
    profile.packed(13, map(writer.text, comments))
    profile.number(14, writer.text(default))
