"""Maps whose keys have stacks, in the layout of bcc's tools.

An entry is its frames, a line with a hyphen for the other members of its key (the name and the id of a process), and
its value below::

        leaf
        main
        -                python3 (1234)
            12

Frames are names alone, unless files and lines or offsets are wanted: entries that look alike then are one. The largest
are last, as a terminal shows the end; the rest is left out and counted unless all are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pytrace.core import types
from pytrace.core.diagnostics import InternalError
from pytrace.render.text import Value, for_any

if TYPE_CHECKING:
    from pytrace.render.forms import TextForms
    from pytrace.render.text import Form

WORDS = ("names", "lines", "offsets", "all")
"""Words of ``stack_layout()``."""

SHOWN = 20
"""Entries that are shown unless all are wanted."""

_INDENT = b"    "

Entry = tuple[Value, Value]


class StackLayout(msgspec.Struct, frozen=True):
    """What is shown of frames beside names, and whether *all* entries are shown."""

    lines: bool = False
    offsets: bool = False
    all: bool = False

    @classmethod
    def of(cls, words: Sequence[str]) -> StackLayout | None:
        """The layout by the words of ``stack_layout()``; None without any."""
        return cls(lines="lines" in words, offsets="offsets" in words, all="all" in words) if words else None

    def applies(self, key: types.Type | None) -> bool:
        """Whether a map with this type of key has a stack in it."""
        return any(isinstance(member, types.Stack) for member in _members(key))

    def merged(
        self, key: types.Type, value: types.Type, entries: Sequence[Entry], texts: TextForms
    ) -> list[Entry]:
        """Entries with the text of their key in its place; those with the same text are joined where values can be."""
        text = self._key_text(key, texts)
        if not isinstance(value, types.SUMS):
            return [(text(name), item) for name, item in entries]
        joined: dict[bytes, Value] = {}
        for name, item in entries:
            shown = text(name)
            joined[shown] = _added(joined[shown], item) if shown in joined else item
        return list(joined.items())

    def text(self, entries: Sequence[Entry], value: Form, top: int, *, bucketed: bool) -> bytes:
        """The text of ordered entries from :meth:`merged`; *top*: the number of those at the end that are shown.

        0 stands for :data:`SHOWN`. *bucketed* values have lines of their own.
        """
        most = top or (len(entries) if self.all else SHOWN)
        rest, shown = entries[: max(0, len(entries) - most)], entries[max(0, len(entries) - most) :]
        parts = [self._left_out(rest, entries)] if rest and not top else []
        for key, item in shown:
            assert isinstance(key, bytes)
            number = value(item)
            parts.append(key + (number + b"\n" if bucketed else b"%s%s%s\n\n" % (_INDENT, _INDENT, number)))
        return b"".join(parts)

    @staticmethod
    def _left_out(rest: Sequence[Entry], entries: Sequence[Entry]) -> bytes:
        numbers = [item for _, item in entries if isinstance(item, int)]
        which = b"%d of %d stacks are left out" % (len(rest), len(entries))
        if len(numbers) == len(entries) and (total := sum(numbers)) > 0:
            which += b", with %.1f%% of the sum" % (100 * sum(numbers[: len(rest)]) / total)
        return b"(%s; --all shows them)\n\n" % which

    def _key_text(self, key: types.Type, texts: TextForms) -> Form:
        members = _members(key)
        frames = [
            for_any(texts.frames(member, lines=self.lines, offsets=self.offsets))
            if isinstance(member, types.Stack)
            else None
            for member in members
        ]
        forms = [texts.form(member) for member in members]

        def text(value: Value) -> bytes:
            lines: list[bytes] = []
            words: list[tuple[bytes, types.Type]] = []
            values = value if isinstance(key, types.Tuple) and isinstance(value, tuple) else (value,)
            for member, item, form, stack in zip(members, values, forms, frames, strict=True):
                if stack is None:
                    words.append((form(item), member))
                    continue
                lines += [*_named(words), *stack(item)]
                words = []
            lines += _named(words)
            return b"".join([b"%s%s\n" % (_INDENT, line) for line in lines])

        return text


def _members(key: types.Type | None) -> tuple[types.Type, ...]:
    if key is None:
        return ()
    return key.members if isinstance(key, types.Tuple) else (key,)


def _named(words: Sequence[tuple[bytes, types.Type]]) -> list[bytes]:
    """The line of members that stand together in a key; a hyphen or two alone are a line between stacks."""
    if not words:
        return []
    if len(words) == 1 and words[0][0].strip(b"-") == b"":
        return [words[0][0] or b"-"]
    lines: list[bytes] = []
    if words[0][0] == b"--" or words[0][0] == b"-":
        lines, words = [words[0][0]], words[1:]
    (last, type_) = words[-1]
    if len(words) > 1 and isinstance(type_, types.Int):
        texts = [*(word for word, _ in words[:-2]), b"%s (%s)" % (words[-2][0], last)]
    else:
        texts = [word for word, _ in words]
    return [*lines, b"%-16s %s" % (b"-", b" ".join(texts))]


def _added(left: Value, right: Value) -> Value:
    """The sum of two values of an aggregation of :data:`types.SUMS`: numbers, or tuples of them."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return tuple(map(_added, left, right))
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    raise InternalError(f"no sum of {left!r} and {right!r}")
