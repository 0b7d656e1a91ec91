"""Strings of JSON output, back as bytes."""

from __future__ import annotations

import re


def unquoted(text: str) -> bytes:
    """The bytes that ``render.json.quoted`` wrote, from the string that a JSON parser gives."""
    parts = re.split("\uffffff([0-9a-f]{2})", text)
    found = [part.encode() if index % 2 == 0 else bytes.fromhex(part) for index, part in enumerate(parts)]
    return b"".join(found)
