"""Maps of numbers by stack as the data of a flame graph: a trie of frames, and a sample for each entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pytrace.core import types
from pytrace.core.types.tables import Column
from pytrace.render.values import value_kind_of
from pytrace.results.question import counted, what_of
from pytrace.results.report.document import Document, columns, exacts
from pytrace.results.report.parts import FlamePart
from pytrace.results.snapshot import MapData
from pytrace.results.stack_samples import Text, frame_name, measures, members_of, numbers, paths, unlike
from pytrace.results.values import Frame, Portable, Value


def flame_part(
    document: Document, after: MapData, before: MapData | None, text: Callable[[types.Type], Text]
) -> FlamePart:
    """The flame graph of a map; with *before* a differential one."""
    key = after.key
    assert key is not None
    members = after.key_columns
    samples = _Samples(document, members, after.key_titles, text)
    values, olds = numbers(after.value), numbers(before.value if before is not None else after.value)
    old_entries: Mapping[Portable, Value] = before.entries if before is not None else {}
    nothing = (0,) * len(measures(after))
    rows = []
    for entry in {**old_entries, **after.entries}:
        now, was = after.entries.get(entry), old_entries.get(entry)
        place = samples.place(list(members_of(key, entry)))
        rows.append((place, nothing if now is None else values(now), nothing if was is None else olds(was)))
    order, nodes = samples.trie.in_order()
    rows.sort(key=lambda row: (order[row[0][0]], row[0][1]))
    labels = samples.label_texts(
        {place[1] for place, _, was in rows if was is not nothing},
        {place[1] for place, now, _ in rows if now is not nothing},
    )
    counts, period = counted(document.runs[-1]) if document.runs and is_count(after) else ("", 0.0)
    return FlamePart(
        name=document.text(after.title), help=document.text(after.help), note=_note(after, labels.note),
        measures=[(part, unit) for part, unit in measures(after)],
        labels=labels.names, groups=labels.groups, nodes=nodes,
        node=[order[place[0]] for place, _, _ in rows],
        group=[labels.numbers[place[1]] for place, _, _ in rows],
        values=[exacts(column) for column in columns([now for _, now, _ in rows], len(nothing))],
        before=None if before is None else [
            exacts(column) for column in columns([was for _, _, was in rows], len(nothing))
        ],
        counts=counts, period=period, what=what_of(document.runs[-1]) if document.runs else "",
    )  # fmt: skip


def is_count(data: MapData) -> bool:
    """True if its numbers count hits."""
    return isinstance(data.value, types.Count)


def _note(data: MapData, fixed: str) -> str:
    extreme = value_kind_of(data.value).extreme() is not None
    values = "Values of min() and max() are shown as they are: the sums of several mean nothing." if extreme else ""
    return " ".join(filter(None, (fixed, values)))


# ---------------------------------------------------------------------------------------------- tries


class Trie:
    """Frames that many stacks share: each node once, with its parent."""

    def __init__(self) -> None:
        self.parents: list[int] = [-1]
        self.frames: list[int] = [-1]
        self.places: list[int] = [-1]
        self._known: dict[tuple[int, int, int], int] = {}

    def child(self, parent: int, frame: int, place: int) -> int:
        """The node of a frame and source line below another."""
        key = (parent, frame, place)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = len(self.parents)
            self.parents.append(parent)
            self.frames.append(frame)
            self.places.append(place)
        return known

    def in_order(self) -> tuple[list[int], list[list[int]]]:
        """New numbers of the nodes, parents before children; and depth, frame and place of each (without the root)."""
        children: list[list[int]] = [[] for _ in self.parents]
        for node in range(1, len(self.parents)):
            children[self.parents[node]].append(node)
        order, rows = [-1] * len(self.parents), list[tuple[int, int, int]]()
        waiting = [(node, 0) for node in reversed(children[0])]
        while waiting:
            node, depth = waiting.pop()
            order[node] = len(rows)
            rows.append((depth, self.frames[node], self.places[node]))
            waiting += [(child, depth + 1) for child in reversed(children[node])]
        return order, columns(rows, 3)


class _Samples:
    """Places of keys: a node of the trie, and a group of the members that are no stacks."""

    def __init__(
        self, document: Document, columns: Sequence[Column], titles: Sequence[str], text: Callable[[types.Type], Text]
    ) -> None:
        self.trie = Trie()
        self._document = document
        self._stacks = [isinstance(column.type, types.Stack) for column in columns]
        self._labels = [
            (title, text(column.type))
            for title, column in zip(titles, columns, strict=True)
            if not isinstance(column.type, types.Stack)
        ]
        self._path = paths([column.type for column in columns])
        self._groups: dict[tuple[int, ...], int] = {}
        self._frame_numbers: dict[tuple[Frame, int], tuple[int, int]] = {}

    def place(self, members: Sequence[Portable]) -> tuple[int, int]:
        """Node and group of a key."""
        node = 0
        child, known = self.trie.child, self._frame_numbers
        for item in self._path(members):
            numbered = known.get(item)
            if numbered is None:
                numbered = known[item] = self._numbered(*item)
            node = child(node, *numbered)
        texts = (item for item, stack in zip(members, self._stacks, strict=True) if not stack)
        group = tuple(
            self._document.text(form(item).decode("utf-8", "surrogateescape"))
            for (_, form), item in zip(self._labels, texts, strict=True)
        )
        return node, self._groups.setdefault(group, len(self._groups))

    def _numbered(self, frame: Frame, kind: int) -> tuple[int, int]:
        document = self._document
        row = (document.text(frame_name(frame)), document.text(frame.module), kind)
        number = document.frames.setdefault(row, len(document.frames))
        if not frame.file:
            return number, -1
        place = (document.text(frame.file), frame.line)
        return number, document.places.setdefault(place, len(document.places))

    def label_texts(self, before: set[int], after: set[int]) -> _Labels:
        """The labels that are shown; *before* and *after* are the groups of two snapshots that are compared.

        Left out are those that are the same in all keys, as the ``"waker"`` of ``@["waker", comm, kstack]``, where
        others differ; and those by which nothing could be compared (:func:`unlike`).
        """
        names, groups = [name for name, _ in self._labels], list(self._groups)
        same = [len(groups) > 1 and len(set(column)) == 1 for column in zip(*groups, strict=True)]
        other = unlike([groups[number] for number in sorted(before)], [groups[number] for number in sorted(after)])
        kept = [index for index, one in enumerate(same) if not one and index not in other]
        texts = self._document.texts.all() if any(same) else []
        fixed = ", ".join(f"{name} = {texts[groups[0][index]]}" for index, name in enumerate(names) if same[index])
        sentences = [f"In all keys: {fixed}."] if fixed else []
        sentences += [f"Left out, as before and after have no {names[index]} in common." for index in sorted(other)]
        shown = [tuple([group[index] for index in kept]) for group in groups]
        places = {group: number for number, group in enumerate(dict.fromkeys(shown))}
        return _Labels(
            [self._document.text(names[index]) for index in kept], [list(group) for group in places],
            [places[group] for group in shown], " ".join(sentences),
        )  # fmt: skip


class _Labels(NamedTuple):
    """Labels of a graph: their names, the groups as texts of these, the new number of each group, and a note."""

    names: list[int]
    groups: list[list[int]]
    numbers: list[int]
    note: str
