"""White space and comments between tokens, skipped by code that looks ahead in the text."""

from __future__ import annotations

import re

LAYOUT = r"(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+"
_LAYOUT = re.compile(LAYOUT)


def skip_layout(text: str, position: int) -> int:
    """The offset after white space and comments at *position*."""
    match = _LAYOUT.match(text, position)
    return match.end() if match else position
