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
    """

    def __init__(self, trailer: bytes = b"", max_strlen: int = 0) -> None:
        super().__init__()
        self.trailer = trailer
        self.max_strlen = max_strlen

    def _make(self, kind: types.Type) -> Decode:
        return ROWS[type(kind)].decode(self, kind)

    def decoder(self, kind: types.Type) -> Decode:
        """The decoder of values of type *kind*."""
        return self.form(kind)

    def convert(self, kind: types.Type) -> tuple[str, Convert | None]:
        """The code of *kind* as one field of a :class:`struct.Struct`, and the conversion of the result."""
        code = ROWS[type(kind)].code
        if code is not None and kind.size <= 8 and not (isinstance(kind, types.Fixed) and kind.path):
            return code(kind), None
        if isinstance(kind, types.String):
            return f"{kind.capacity}s", self.string(kind)
        decode = self.decoder(kind)
        return f"{kind.size}s", lambda data: decode(data, 0)

    def code(self, kind: types.Type) -> str:
        """The code of :mod:`struct` of values of type *kind*, which has one."""
        code = ROWS[type(kind)].code
        assert code is not None
        return code(kind)

    def trailer_of(self, kind: types.String) -> bytes:
        """The text after a string of this type that has no NUL."""
        return self.trailer if kind.capacity >= self.max_strlen else b""

    def string(self, kind: types.String) -> Callable[[bytes], bytes]:
        """The text of a string's memory."""
        trailer = self.trailer_of(kind)

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
        for kind, offset in zip(kinds, offsets, strict=True):
            code, convert = self.convert(kind)
            layout.append(f"{offset - end}x{code}" if offset != end else code)
            end = offset + kind.size
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

    def _make(self, kind: types.Type) -> Form:
        return self.escaping(kind, for_any(ROWS[type(kind)].text(self, kind)))

    def escaping(self, kind: types.Type, form: Form) -> Form:
        """The *form* of values of type *kind*, with escapes where these are wanted and traced data decides the text."""
        if not self.printable or not ROWS[type(kind)].traced:
            return form
        from pytrace.base import control_characters  # only on terminals

        if isinstance(kind, types.Stack):
            return lambda value: control_characters.printable_lines(form(value))
        return lambda value: control_characters.printable(form(value))

    def many_stacks(self, kind: types.Stack) -> Form:
        """As :meth:`form`, for very many stacks at one moment."""
        return self.escaping(kind, for_any(self.names.many_stacks(kind, self.indent)))

    @property
    def indent(self) -> bytes:
        """The beginning of the lines of frames."""
        return b"" if self.compact else b"        "

    def key(self, kind: types.Type) -> Form:
        """The form of a map key: tuples without their parentheses."""
        if isinstance(kind, types.Tuple):
            return for_any(text.joined_members([self.form(member) for member in kind.members], self.comma))
        return self.form(kind)


class JsonForms(ByType[Form]):
    """Makes JSON forms; *texts* makes those of values that are text in JSON too (symbols, stacks, addresses, times)."""

    def __init__(self, texts: TextForms) -> None:
        super().__init__()
        self.texts = texts
        self.keys = TextForms(texts.names, compact=True, formatted=texts.formatted, printable=texts.printable)

    def _make(self, kind: types.Type) -> Form:
        return for_any(ROWS[type(kind)].json(self, kind))

    def key(self, kind: types.Type) -> Form:
        """The text (not yet quoted) of a map key as the name of a member."""
        return self.keys.key(kind)


class Stacks(Protocol):
    """Resolves stacks."""

    def form(self, kind: types.Stack) -> Callable[[Never], portable.Plain]:
        """The portable form of stacks of type *kind*."""


class PortableForms(ByType[portable.Form]):
    """Makes portable forms. *texts* makes those of values that print as a name."""

    def __init__(self, texts: TextForms, stacks: Stacks) -> None:
        super().__init__()
        self.texts = texts
        self.stacks = stacks

    def _make(self, kind: types.Type) -> portable.Form:
        return for_any(ROWS[type(kind)].portable(self, kind))

    def row_form(self, kind: types.Record) -> Callable[[Values], tuple[portable.Plain, ...]]:
        """The portable form of rows, whose members are those of *kind*."""
        return portable.members([self.form(member) for member in kind.members])


class Restored(ByType[portable.Restore]):
    """Makes functions from portable to decoded values."""

    def _make(self, kind: types.Type) -> portable.Restore:
        return ROWS[type(kind)].restored(self, kind)


class PythonForms(ByType["Callable[[portable.Plain], Result]"]):
    """Makes functions from portable values to those for Python programs."""

    def _make(self, kind: types.Type) -> Callable[[portable.Plain], Result]:
        return ROWS[type(kind)].python(self, kind)


def as_python(kind: types.Type) -> Callable[[portable.Plain], Result]:
    """Converts portable values of a type to those for Python programs."""
    return PythonForms().form(kind)
