"""JSON of data classes, validated by their types when it is read.

msgspec's own JSON is not used, as it refuses texts with bytes that are not UTF-8 (``surrogateescape``), which scripts
and file names may have.

Constants that JSON does not have (``NaN``, ``Infinity``), numbers that are infinite as floats (``1e999``) and halves of
surrogate pairs, which no output can be encoded with, are refused: they come from nobody but liars.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from math import isfinite
from typing import Any, NoReturn, TypeVar

import msgspec

T = TypeVar("T")

DECODING = threading.RLock()
"""Held while stored data is decoded: msgspec (0.22) looks at a class when it first decodes it, and crashes if two
threads do so at once."""


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""What may be half of a pair: :func:`parsed` then looks at all texts."""


def encode(value: object) -> bytes:
    """The JSON text of a data class."""
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":"), allow_nan=False).encode()


def parsed(data: bytes | str) -> object:
    """The objects of a JSON text.

    Raises:
        ValueError: it is none, or has what is said above.
        RecursionError: it is nested too deeply.
    """
    text = data if isinstance(data, str) else data.decode()
    content = _DECODER.decode(text)
    if _SURROGATE.search(text):
        json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogateescape")
    return content


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


def decode(data: bytes, wanted: type[T], dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """The value of class *wanted* that was encoded as *data*; *dec_hook* is that of ``msgspec.convert``.

    Raises:
        msgspec.ValidationError: *data* is damaged, or was encoded from another class.
    """
    try:
        content = parsed(data)
    except (ValueError, RecursionError) as error:
        raise msgspec.ValidationError(f"not JSON: {error}") from error
    with DECODING:
        return msgspec.convert(content, wanted, dec_hook=dec_hook)
