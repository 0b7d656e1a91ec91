"""JSON of data classes, validated by their types when it is read.

msgspec's own JSON is not used, as it refuses texts with bytes that are not UTF-8 (``surrogateescape``), which scripts
and file names may have.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

DECODING = threading.RLock()
"""Held while stored data is decoded: msgspec (0.22) looks at a class when it first decodes it, and crashes if two
threads do so at once."""


def encode(value: object) -> bytes:
    """The JSON text of a data class."""
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def decode(data: bytes, wanted: type[T], dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """The value of class *wanted* that was encoded as *data*; *dec_hook* is that of ``msgspec.convert``.

    Raises:
        msgspec.ValidationError: *data* is damaged, or was encoded from another class.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise msgspec.ValidationError(f"not JSON: {error}") from error
    with DECODING:
        return msgspec.convert(content, wanted, dec_hook=dec_hook)
