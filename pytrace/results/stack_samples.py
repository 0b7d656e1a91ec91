"""Maps with stacks in their keys, for the formats of profilers: stacks from the root, labels, numbers."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from pytrace.core import types
from pytrace.core.value_tables import Column
from pytrace.render.values import value_kind_of
from pytrace.results.snapshot import Frame, MapData, Portable, SnapshotData, StackTrace, Value

Text = Callable[[Value], bytes]
"""The text of a portable value."""


class Label(NamedTuple):
    """A member of a key that is no stack."""

    name: str
    """As the column of a table: ``key1``, ``key2`` …, or the name in the record."""
    text: str
    """As it prints; bytes that are no UTF-8 as ``\\xff``."""
    number: int | None
    """Of integers and truth values."""


class Measure(NamedTuple):
    """One number of each value."""

    part: str
    """``count`` and ``total`` of averages and stats, else empty."""
    unit: str
    """``count``, or one of the values of :data:`pytrace.core.value_tables.UNITS`; empty when unknown."""


USER, KERNEL, INTERPRETED, MARK = range(4)
"""Kinds of frames: functions of the user, of the kernel, those that an interpreter runs, and what is no function."""

_INTERPRETED = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".php", ".pl", ".lua")
"""Ends of source files whose functions an interpreter runs."""

BETWEEN = Frame("--")
"""Stands between the stacks of two tasks."""

Path = list[tuple[Frame, int]]
"""Frames from the root, with their kinds."""


class Sample(NamedTuple):
    """An entry of a map."""

    frames: tuple[Frame, ...]
    """Outermost first (:func:`paths`). Never empty."""
    names: tuple[str, ...]
    """Their names (:func:`frame_name`)."""
    kinds: tuple[int, ...]
    """Their kinds."""
    labels: tuple[Label, ...]
    values: tuple[int, ...]
    """One for each measure."""


Join = Callable[[int, int], int]


class Profile(msgspec.Struct, frozen=True):
    """A map."""

    name: str
    """Its name, with the mark of estimates."""
    measures: tuple[Measure, ...]
    samples: list[Sample]
    """By labels, then by functions from the root."""
    join: Join
    """Joins the numbers of entries that differ only in stacks or labels that are not shown."""
    text_labels: tuple[str, ...]
    """Names of labels that are strings."""


def profiles(maps: Iterable[MapData], text: Callable[[types.Type], Text], *, ordered: bool = False) -> list[Profile]:
    """Maps with stacks in their keys and numbers as values, by name; *text* makes the text form of a type's values.

    *ordered*: all members of a key are frames, in the order of the key, and there are no labels.
    """
    make = _in_order if ordered else _profile
    return [make(data, text) for data in sorted(maps, key=lambda data: data.name)]


def _in_order(data: MapData, text: Callable[[types.Type], Text]) -> Profile:
    assert data.key is not None
    columns = data.key_columns
    forms = [_frames_of(column.type, text) for column in columns]
    kinds = [_kind_of(column.type) for column in columns]
    values = numbers(data.value)
    samples = []
    for key, value in data.entries.items():
        members = [form(item) for form, item in zip(forms, members_of(data.key, key), strict=True)]
        shown = [[] if _useless_mark(columns, members, index) else member for index, member in enumerate(members)]
        path = [(frame, kind(frame)) for kind, member in zip(kinds, shown, strict=True) for frame in member]
        samples.append(_sample(path or [(NO_STACK, MARK)], (), values(value)))
    samples.sort(key=lambda sample: sample.names)
    return Profile(data.title, measures(data), samples, value_kind_of(data.value).extreme() or operator.add, ())


def _useless_mark(columns: Sequence[Column], members: list[list[Frame]], index: int) -> bool:
    """True for the mark ``-`` between two stacks, of which one has no frames."""
    if not 0 < index < len(members) - 1 or [frame.function for frame in members[index]] != ["-"]:
        return False
    return any(isinstance(columns[side].type, types.Stack) and not members[side] for side in (index - 1, index + 1))


def _frames_of(type_: types.Type, text: Callable[[types.Type], Text]) -> Callable[[Portable], list[Frame]]:
    """The frames that a member of a key stands for; none for an empty text."""
    if isinstance(type_, types.Stack):
        inverted = type_.mode is types.StackMode.INVERTED
        return lambda value: _stack_frames(value, inverted=inverted)
    form = text(type_)

    def one(value: Portable) -> list[Frame]:
        name = form(value).decode("utf-8", "backslashreplace")
        return [Frame(name)] if name else []

    return one


def _stack_frames(stack: Portable, *, inverted: bool) -> list[Frame]:
    assert isinstance(stack, StackTrace)
    return list(stack.frames) if inverted and not stack.error else [frame for frame, _ in frames_of(stack)]


def _kind_of(type_: types.Type) -> Callable[[Frame], int]:
    """The kind of the frames that a member of a key stands for."""
    if not isinstance(type_, types.Stack):
        return lambda _frame: MARK
    return user_kind if type_.user else lambda _frame: KERNEL


def _profile(data: MapData, text: Callable[[types.Type], Text]) -> Profile:
    assert data.key is not None
    columns = data.key_columns
    labelled = [None if isinstance(column.type, types.Stack) else _labelling(column, text) for column in columns]
    values, path = numbers(data.value), paths([column.type for column in columns])
    samples = []
    for key, value in data.entries.items():
        members = list(members_of(data.key, key))
        labels = tuple([make(item) for make, item in zip(labelled, members, strict=True) if make is not None])
        samples.append(_sample(path(members), labels, values(value)))
    samples.sort(key=lambda sample: (sample.labels, sample.names))
    join = value_kind_of(data.value).extreme() or operator.add
    texts = tuple(column.name for column in columns if isinstance(column.type, types.String))
    return Profile(data.title, measures(data), samples, join, texts)


def _sample(path: Path, labels: tuple[Label, ...], values: tuple[int, ...]) -> Sample:
    frames = tuple([frame for frame, _ in path])
    return Sample(frames, tuple(map(frame_name, frames)), tuple([kind for _, kind in path]), labels, values)


def unlike(before: Collection[tuple[object, ...]], after: Collection[tuple[object, ...]]) -> set[int]:
    """The members of keys of which two snapshots have no value in common, as process numbers of two runs.

    A comparison by them would find that all of the one is gone, and all of the other new.
    """
    if not before or not after:
        return set()
    pairs = zip(zip(*before, strict=True), zip(*after, strict=True), strict=True)
    return {at for at, (old, new) in enumerate(pairs) if not {*old} & {*new}}


def is_profile(data: MapData) -> bool:
    """True for a map with a stack in its key and numbers as values."""
    kind = value_kind_of(data.value)
    stacks = data.key is not None and any(isinstance(part, types.Stack) for part in types.parts((data.key,)))
    return stacks and kind.number


def by_labels(profile: Profile) -> Iterator[tuple[str, list[Sample]]]:
    """The samples of each combination of labels, with the name of both; the one with most first.

    A map without entries has one combination without samples: there is still a map that was empty.
    """
    groups: dict[tuple[Label, ...], list[Sample]] = {}
    for sample in profile.samples:
        groups.setdefault(sample.labels, []).append(sample)
    weights = {labels: sum(sample.values[-1] for sample in samples) for labels, samples in groups.items()}
    for labels in sorted(groups, key=lambda labels: -weights[labels]) or [()]:
        text = ", ".join(label.text for label in labels)
        yield f"{profile.name} {text}".rstrip(), groups.get(labels, [])


def members_of(type_: types.Type, value: Portable) -> Iterator[Portable]:
    """The values of the columns of a key or row (``core.value_tables.key_columns``): members at any nesting."""
    if not isinstance(type_, types.Record | types.Tuple) or not type_.members:
        yield value
        return
    assert isinstance(value, tuple)
    for member, item in zip(type_.members, value, strict=True):
        yield from members_of(member, item)


def _labelling(column: Column, text: Callable[[types.Type], Text]) -> Callable[[Portable], Label]:
    form = text(column.type)
    numeric = isinstance(column.type, types.Int | types.Bool)

    def label(value: Portable) -> Label:
        number = int(value) if numeric and isinstance(value, int) else None
        return Label(column.name, form(value).decode("utf-8", "backslashreplace"), number)

    return label


# ---------------------------------------------------------------------------------------------- frames


NO_STACK = Frame("[no stack]")
"""Stands for stacks without frames."""


def paths(members: Sequence[types.Type]) -> Callable[[Sequence[Portable]], Path]:
    """From the members of a key to one stack of all in it.

    Functions of the user are at the root and those of the kernel above them, which was entered from the innermost one.
    The stacks of a second task follow from the inside out, after a mark (:data:`BETWEEN`): both tasks meet there.
    """
    split = second_task(members)
    if split is None:
        return _path_of_one
    second = split

    def path(values: Sequence[Portable]) -> Path:
        return [*_path_of_one(values[:second]), (BETWEEN, MARK), *reversed(_path_of_one(values[second:]))]

    return path


OTHER_STACKS = "@other_stacks"
"""What a script calls the sums of stacks that found no room in its map of stacks."""


def is_remainder(data: MapData, snapshot: SnapshotData) -> bool:
    """Whether a map has what is missing of the one map of stacks: a loss, not a picture of its own."""
    return data.name == OTHER_STACKS and sum(map(is_profile, snapshot.shown.values())) == 1


def second_task(members: Sequence[types.Type]) -> int | None:
    """The member of a key where the stacks of a second task begin; None if all are of one.

    One task has a kernel stack and a user stack at most, so the next one of a kind belongs to another task, as the
    waker's in ``@[kstack, ustack, waker_kstack]``.
    """
    seen: set[bool] = set()
    for number, type_ in enumerate(members):
        if isinstance(type_, types.Stack):
            if type_.user in seen:
                return number
            seen.add(type_.user)
    return None


def _path_of_one(values: Sequence[Portable]) -> Path:
    """The stacks of one task, from the root."""
    stacks = [item for item in values if isinstance(item, StackTrace)]
    stacks.sort(key=lambda stack: not stack.user)
    return [item for stack in stacks for item in frames_of(stack)] or [(NO_STACK, MARK)]


def frames_of(stack: StackTrace) -> Path:
    """The frames of a stack, outermost first; one that could not be read has one that says so."""
    names = f"[no {'user' if stack.user else 'kernel'} stack: {stack.error}]"
    frames = [*([Frame(names)] if stack.error else ()), *reversed(stack.frames)]
    return [(frame, user_kind(frame) if stack.user else KERNEL) for frame in frames]


def user_kind(frame: Frame) -> int:
    """The kind of a frame of a user stack: an interpreter's has its source file as module; code that was never in a
    file has a name in brackets.
    """
    source = frame.file or frame.module
    return INTERPRETED if source.endswith(_INTERPRETED) or source.startswith("<") else USER


def frame_name(frame: Frame) -> str:
    """The name of a frame: the function, else the module in brackets, else the address."""
    if frame.function:
        return frame.function
    if frame.module:
        base = os.path.basename(frame.module)
        return base if base.startswith("[") else f"[{base}]"
    return f"{frame.build_id}+0x{frame.address:x}" if frame.build_id else f"0x{frame.address:x}"


# ---------------------------------------------------------------------------------------------- numbers


def measures(data: MapData) -> tuple[Measure, ...]:
    """The numbers of each value of a map."""
    if isinstance(data.value, types.Avg | types.Stats):
        return Measure("count", "count"), Measure("total", data.unit)
    return (Measure("", "count" if isinstance(data.value, types.Count) else data.unit),)


def numbers(type_: types.Type) -> Callable[[Value], tuple[int, ...]]:
    """From a value of a type to its numbers, one for each measure."""
    return _pair if isinstance(type_, types.Avg | types.Stats) else _single


def _pair(value: Value) -> tuple[int, int]:
    assert isinstance(value, tuple)
    total, count = value
    assert isinstance(total, int)
    assert isinstance(count, int)
    return count, total


def _single(value: Value) -> tuple[int]:
    assert isinstance(value, int)
    return (int(value),)
