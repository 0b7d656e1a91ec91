r"""Bytes of traced programs as UTF-8 text, without loss: ``\xNN`` stands for the byte NN.

A backslash is unchanged unless it would start an escape; then it becomes ``\x5c``. So replacing each ``\xNN`` by its
byte restores the original bytes (:func:`unescaped`). CSV, tables of Arrow and labels of metrics use this form.
"""

from __future__ import annotations

import re

from pytrace.base.control_characters import UNSEEN

_ESCAPE = r"\\(?=x[0-9a-f]{2})"
_NOT_UTF8 = re.compile(rf"[\udc80-\udcff]|{_ESCAPE}")
_NOT_SHOWN = re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\udc80-\udcff{UNSEEN}]|{_ESCAPE}")
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


def utf8(text: bytes) -> str:
    """*text* with bytes that are not UTF-8 escaped."""
    return _NOT_UTF8.sub(_escaped, text.decode("utf-8", "surrogateescape"))


def shown(text: bytes) -> bytes:
    """Like :func:`utf8`, but also escapes control characters other than tabs and line ends, and what is not seen
    (:data:`UNSEEN`).
    """
    return _NOT_SHOWN.sub(_escaped, text.decode("utf-8", "surrogateescape")).encode()


def unescaped(text: bytes) -> bytes:
    """Inverse of :func:`utf8` and :func:`shown`."""
    return _ESCAPED.sub(lambda match: bytes.fromhex(match.group(1).decode()), text)


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in match.group().encode("utf-8", "surrogateescape"))
