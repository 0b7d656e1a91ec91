"""Documentation comments of a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytrace.core.source import Span


def comment_above(span: Span) -> str:
    """The text of the comment that ends on the line above the one where *span* starts; empty when there is none.

    Consecutive ``//`` lines are one comment, and lines of a block comment are joined by newlines, without comment
    markers and surrounding spaces. A comment after code belongs to that code.
    """
    text = span.source.text
    end = text.rfind("\n", 0, span.start)
    lines: list[str] = []
    while end >= 0:
        start = text.rfind("\n", 0, end) + 1
        line = text[start:end].strip()
        if not lines and line.endswith("*/"):
            return _block(text, end)
        if not line.startswith("//"):
            break
        lines.append(line.lstrip("/").strip())
        end = start - 1
    return "\n".join(reversed(lines)).strip()


def _block(text: str, end: int) -> str:
    """The block comment that ends the line that ends at *end*."""
    start = text.rfind("/*", 0, end)
    if start < 0 or text[text.rfind("\n", 0, start) + 1 : start].strip():
        return ""
    inner = text[start + 2 : end].rstrip().removesuffix("*/")
    return "\n".join(line.strip().lstrip("*").strip() for line in inner.split("\n")).strip()
