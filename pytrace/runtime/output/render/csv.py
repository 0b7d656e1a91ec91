"""Tables as CSV by RFC 4180: fields with commas, quotes or line ends are quoted, lines end in CR LF.

One stream may have several tables: an empty line is before each but the first, as before a table that goes on after
another.  Text is always UTF-8; bytes that are not are written as in JSON output (U+FFFF and two hex digits after
``ff``), so that :func:`pytrace.runtime.output.render.json.unquoted` gets them back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pytrace.core import types
from pytrace.core.types.tables import NUMBERS
from pytrace.runtime.output.render import json
from pytrace.runtime.output.render.decoders import Value, Values, for_any
from pytrace.runtime.output.render.tables import cell

if TYPE_CHECKING:
    from pytrace.runtime.output.render.text import Form, TextForms

END = b"\r\n"
"""The end of a line; alone it stands between tables."""

_SPECIAL = re.compile(rb'[",\r\n\x80-\xff]').search


def field(text: bytes) -> bytes:
    """*text* as a field."""
    if _SPECIAL(text) is None:
        return text
    text = json.marked(text)
    if _SPECIAL(text.translate(None, _HIGH)) is None:
        return text
    return b'"%s"' % text.replace(b'"', b'""')


_HIGH = bytes(range(128, 256))


def only_field(text: bytes) -> bytes:
    """*text* as the only field of its line, which must not be empty."""
    return field(text) or b'""'


def line(fields: Iterable[bytes]) -> bytes:
    """A line of texts that are not fields yet."""
    found = [field(text) for text in fields]
    return (b",".join(found) if len(found) != 1 else found[0] or b'""') + END


def form(forms: TextForms, kind: types.Type, *, alone: bool) -> Form | None:
    """How a value becomes a field, *alone* in its line or not; None for a number, which is one."""
    if isinstance(kind, NUMBERS):
        return None
    make = only_field if alone else field
    text = cell(forms, kind)
    if text is None:
        return for_any(make)
    shown = text
    return lambda value: make(shown(value))


Cells = Callable[[Value], list[bytes]]
"""The texts of the columns that a value takes."""


def cells(forms: TextForms, kind: types.Type) -> Cells:
    """The texts of a value: of a record or tuple one for each of its leaves."""
    if isinstance(kind, types.Record | types.Tuple) and kind.members:
        inner = [cells(forms, member) for member in kind.members]

        def members(value: Values) -> list[bytes]:
            return [text for part, item in zip(inner, value, strict=True) for text in part(item)]

        return for_any(members)
    text = cell(forms, kind) or for_any(bytes)
    return lambda value: [text(value)]
