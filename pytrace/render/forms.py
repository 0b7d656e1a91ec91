"""Makers of decoders and of forms of values, which they create once for each type by the row of its class.

The rows are in :mod:`pytrace.render.value_types`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Never, Protocol, TypeVar

from pytrace.core import types
from pytrace.render import portable, text
from pytrace.render.decoders import Convert, Decode, Memory, Values, for_any
from pytrace.render.text import Bars, Form
from pytrace.render.value_types import ROWS

if TYPE_CHECKING:
    from pytrace.render.names import ValueNames
    from pytrace.render.python_values import Result

Made = TypeVar("Made")
Formatted = Callable[[types.Joined, "TextForms"], Form]


class ByType(Generic[Made]):
    """Makes a function for each type by the row of its class, once."""

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
    *chunk* returns a chunk of stacks (:mod:`pytrace.core.stacks.chunk_format`) by its digest, None where there is none.
    """

    def __init__(
        self, trailer: bytes = b"", max_strlen: int = 0, chunk: Callable[[bytes], bytes | None] = lambda _digest: None
    ) -> None:
        super().__init__()
        self.chunk = chunk
        self.trailer = trailer
        self.max_strlen = max_strlen

    def _make(self, type_: types.Type) -> Decode:
        return ROWS[type(type_)].decode(self, type_)

    def decoder(self, type_: types.Type) -> Decode:
        """The decoder of values of type *type_*."""
        return self.form(type_)

    def convert(self, type_: types.Type) -> tuple[str, Convert | None]:
        """The code of *type_* as one field of a :class:`struct.Struct`, and the conversion of the result."""
        code = ROWS[type(type_)].code
        if code is not None and type_.size <= 8 and not (isinstance(type_, types.Fixed) and type_.path):
            return code(type_), None
        if isinstance(type_, types.String):
            return f"{type_.capacity}s", self.string(type_)
        decode = self.decoder(type_)
        return f"{type_.size}s", lambda data: decode(data, 0)

    def code(self, type_: types.Type) -> str:
        """The code of :mod:`struct` of values of type *type_*, which has one."""
        code = ROWS[type(type_)].code
        assert code is not None
        return code(type_)

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
        converts: list[Convert | None] = []
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
        return self.escaping(type_, for_any(ROWS[type(type_)].text(self, type_)))

    def escaping(self, type_: types.Type, form: Form) -> Form:
        """The *form* of values of *type_*, with escapes where these are wanted and traced data decides the text."""
        if not self.printable or not ROWS[type(type_)].traced:
            return form
        from pytrace.base import control_characters  # only on terminals

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
        from pytrace.base import control_characters  # only on terminals

        return lambda value: [control_characters.printable(name) for name in names(value)]

    @property
    def indent(self) -> bytes:
        """The beginning of the lines of frames."""
        return b"" if self.compact else b"        "

    def key(self, type_: types.Type) -> Form:
        """The form of a map key: tuples without their parentheses."""
        if isinstance(type_, types.Tuple):
            return for_any(text.joined_members([self._key_member(member) for member in type_.members], self.comma))
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
        return for_any(ROWS[type(type_)].json(self, type_))

    def key(self, type_: types.Type) -> Form:
        """The text (not yet quoted) of a map key as the name of a member."""
        return self.keys.key(type_)


class Stacks(Protocol):
    """Resolves stacks."""

    def form(self, type_: types.Stack) -> Callable[[Never], portable.Plain]:
        """The portable form of stacks of type *type_*."""


class PortableForms(ByType[portable.Form]):
    """Makes portable forms. *texts* makes those of values that print as a name."""

    def __init__(self, texts: TextForms, stacks: Stacks) -> None:
        super().__init__()
        self.texts = texts
        self.stacks = stacks

    def _make(self, type_: types.Type) -> portable.Form:
        return for_any(ROWS[type(type_)].portable(self, type_))

    def row_form(self, type_: types.Record) -> Callable[[Values], tuple[portable.Plain, ...]]:
        """The portable form of rows, whose members are those of *type_*."""
        return portable.members([self.form(member) for member in type_.members])


class Restored(ByType[portable.Restore]):
    """Makes functions from portable to decoded values."""

    def _make(self, type_: types.Type) -> portable.Restore:
        return ROWS[type(type_)].restored(self, type_)


class PythonForms(ByType["Callable[[portable.Plain], Result]"]):
    """Makes functions from portable values to those for Python programs."""

    def _make(self, type_: types.Type) -> Callable[[portable.Plain], Result]:
        return ROWS[type(type_)].python(self, type_)


def as_python(type_: types.Type) -> Callable[[portable.Plain], Result]:
    """Converts portable values of a type to those for Python programs."""
    return PythonForms().form(type_)
