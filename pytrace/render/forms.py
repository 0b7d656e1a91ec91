"""Makers of decoders and of forms of values, which they create once for each type by its kind.

The kinds are in :mod:`pytrace.render.values`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Never, Protocol, TypeVar

from pytrace.base import control_characters
from pytrace.core import types
from pytrace.render.text import Bars, Decode, Form, Memory, Value, Values, for_any, joined_members
from pytrace.render.value_kind import Plain
from pytrace.render.values import portable_members, value_kind_of

if TYPE_CHECKING:
    from pytrace.render.names import ValueNames

Made = TypeVar("Made")
Formatted = Callable[[types.Joined, "TextForms"], Form]

_Convert = Callable[[bytes], Value]


class ByType(Generic[Made]):
    """Makes a function for each type by its kind, once."""

    def __init__(self) -> None:
        # By identity: different anonymous structs of a compiled script compare equal.
        self._forms: dict[int, tuple[types.Type, Made]] = {}

    def form(self, type_: types.Type) -> Made:
        """The function for values of a type."""
        known = self._forms.get(id(type_))
        if known is None:
            known = self._forms[id(type_)] = (type_, self._make(type_))
        return known[1]

    def _make(self, type_: types.Type) -> Made:
        raise NotImplementedError


class Decoders(ByType[Decode]):
    """Makes decoders. *trailer* is the text after a string that was truncated (``str_trunc_trailer``).

    A string truncated when *max_strlen* bytes hold no NUL; a shorter one is an array of characters that is full.
    *chunk* returns a chunk of stacks (:data:`pytrace.core.types.CHUNK_SIZE`) by its digest, None where there is none.
    """

    def __init__(
        self, trailer: bytes = b"", max_strlen: int = 0, chunk: Callable[[bytes], bytes | None] = lambda _digest: None
    ) -> None:
        super().__init__()
        self.chunk = chunk
        self.trailer = trailer
        self.max_strlen = max_strlen

    def _make(self, type_: types.Type) -> Decode:
        return value_kind_of(type_).decode(self)

    def decoder(self, type_: types.Type) -> Decode:
        """The decoder of values of type *type_*."""
        return self.form(type_)

    def convert(self, type_: types.Type) -> tuple[str, _Convert | None]:
        """The code of *type_* as one field of a :class:`struct.Struct`, and the conversion of the result."""
        code = value_kind_of(type_).code()
        if code is not None and type_.size <= 8:
            return code, None
        if isinstance(type_, types.String):
            return f"{type_.capacity}s", self.string(type_)
        decode = self.decoder(type_)
        return f"{type_.size}s", lambda data: decode(data, 0)

    def trailer_of(self, type_: types.String) -> bytes:
        """The text after a string of this type that has no NUL."""
        return self.trailer if type_.capacity >= self.max_strlen else b""

    def string(self, type_: types.String) -> Callable[[bytes], bytes]:
        """The text of a string's memory."""
        trailer = self.trailer_of(type_)

        def convert(data: bytes) -> bytes:
            text, end, _ = data.partition(b"\0")
            return text if end else text + trailer

        return convert

    def members(self, kinds: tuple[types.Type, ...], offsets: tuple[int, ...]) -> Decode:
        """A decoder of a tuple of members that start at *offsets*."""
        if not kinds:
            return lambda _memory, _offset: ()
        layout, end = ["="], 0
        converts: list[_Convert | None] = []
        for type_, offset in zip(kinds, offsets, strict=True):
            code, convert = self.convert(type_)
            layout.append(f"{offset - end}x{code}" if offset != end else code)
            end = offset + type_.size
            converts.append(convert)
        unpack = struct.Struct("".join(layout)).unpack_from
        if not any(converts):
            return unpack
        if len(converts) == 1 and (only := converts[0]) is not None:
            return lambda memory, offset: (only(unpack(memory, offset)[0]),)
        steps = tuple((index, convert) for index, convert in enumerate(converts) if convert is not None)

        def decode(memory: Memory, offset: int) -> Values:
            values = list(unpack(memory, offset))
            for index, convert in steps:
                values[index] = convert(values[index])
            return tuple(values)

        return decode


class TextForms(ByType[Form]):
    """Makes text forms. *compact* ones have no spaces between members: the keys of JSON objects.

    *formatted* makes those of values that ``sprintf`` formats; without it they must be text already. *printable* ones
    are for terminals: control characters of traced data are escapes. *bars* are those of histograms.
    """

    def __init__(
        self,
        names: ValueNames,
        *,
        compact: bool = False,
        formatted: Formatted | None = None,
        printable: bool = False,
        bars: Bars = Bars.SIGNS,
    ) -> None:
        super().__init__()
        self.printable = printable
        self.bars = bars
        self.names = names
        self.formatted = formatted
        self.compact = compact
        self.comma = b"," if compact else b", "

    def _make(self, type_: types.Type) -> Form:
        return self.escaping(type_, for_any(value_kind_of(type_).text(self)))

    def escaping(self, type_: types.Type, form: Form) -> Form:
        """The *form* of values of *type_*, with escapes where these are wanted and traced data decides the text."""
        if not self.printable or not value_kind_of(type_).traced:
            return form
        if isinstance(type_, types.Stack):
            return lambda value: control_characters.printable_lines(form(value))
        return lambda value: control_characters.printable(form(value))

    def many_stacks(self, type_: types.Stack) -> Form:
        """As :meth:`form`, for very many stacks at one moment."""
        return self.escaping(type_, for_any(self.names.many_stacks(type_, self.indent)))

    def frames(self, type_: types.Stack, *, lines: bool, offsets: bool) -> Callable[[Never], list[bytes]]:
        """The names of a stack's functions (:meth:`pytrace.render.names.ValueNames.frames`)."""
        names = self.names.frames(type_, lines=lines, offsets=offsets)
        if not self.printable:
            return names
        return lambda value: [control_characters.printable(name) for name in names(value)]

    @property
    def indent(self) -> bytes:
        """The beginning of the lines of frames."""
        return b"" if self.compact else b"        "

    def key(self, type_: types.Type) -> Form:
        """The form of a map key: tuples without their parentheses."""
        if isinstance(type_, types.Tuple):
            return for_any(joined_members([self._key_member(member) for member in type_.members], self.comma))
        return self._key_member(type_)

    def _key_member(self, type_: types.Type) -> Form:
        return self.form(type_) if self.compact else key_form(type_, self.form(type_))


NO_STACK = b"no stack"
"""An empty stack in a key; its own text is an empty line."""


def key_form(type_: types.Type, form: Form) -> Form:
    """The *form* of a member of a key: an empty stack has a word, as only frames stand on lines of their own."""
    if not isinstance(type_, types.Stack):
        return form
    return lambda value: NO_STACK if (shown := form(value)) == b"\n" else shown


class JsonForms(ByType[Form]):
    """Makes JSON forms; *texts* makes those of values that are text in JSON too (symbols, stacks, addresses, times)."""

    def __init__(self, texts: TextForms) -> None:
        super().__init__()
        self.texts = texts
        self.keys = TextForms(texts.names, compact=True, formatted=texts.formatted, printable=texts.printable)

    def _make(self, type_: types.Type) -> Form:
        return for_any(value_kind_of(type_).json(self))

    def key(self, type_: types.Type) -> Form:
        """The text (not yet quoted) of a map key as the name of a member."""
        return self.keys.key(type_)


class Stacks(Protocol):
    """Resolves stacks."""

    def form(self, type_: types.Stack) -> Callable[[Never], Plain]:
        """The portable form of stacks of type *type_*."""


class PortableForms(ByType["Callable[[Value], Plain]"]):
    """Makes portable forms. *texts* makes those of values that print as a name."""

    def __init__(self, texts: TextForms, stacks: Stacks) -> None:
        super().__init__()
        self.texts = texts
        self.stacks = stacks

    def _make(self, type_: types.Type) -> Callable[[Value], Plain]:
        return for_any(value_kind_of(type_).portable(self))

    def row_form(self, type_: types.Record) -> Callable[[Values], tuple[Plain, ...]]:
        """The portable form of rows, whose members are those of *type_*."""
        return portable_members([self.form(member) for member in type_.members])
