"""White space and comments between tokens, for code that looks ahead in the text."""

from __future__ import annotations

from pytrace.base.lazy_regex import late

LAYOUT = r"(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+"
_LAYOUT = late(LAYOUT)


def skip_layout(text: str, position: int) -> int:
    """The offset after white space and comments at *position*."""
    match = _LAYOUT.match(text, position)
    return match.end() if match else position
