"""SVG without scripts, for files and HTML: panels below each other, texts, boxes with tooltips (``<title>``)."""

from __future__ import annotations

from xml.sax.saxutils import escape

import msgspec

from pytrace.core import byte_escapes

WIDTH = 1200
"""Width of a picture in pixels."""
FONT = 12
CHARACTER = 0.61 * FONT
"""Most width of a character of the font, in pixels."""
MARGIN = 10
GAP = 12
"""Pixels between panels."""
MOST_TITLE = 1000
"""Maximum characters of a tooltip."""

_STYLE = (
    f".pytrace text{{font:{FONT}px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "fill:#1a1a1a;white-space:pre}"
    ".pytrace .h{font-weight:bold}.pytrace .q{fill:#555}.pytrace rect:hover{stroke:#000;stroke-width:1}"
)


class Drawing(msgspec.Struct):
    """A picture that grows downwards; *height* is where the next panel begins."""

    width: int = WIDTH
    height: float = MARGIN
    parts: list[str] = []

    def line(self, text: str, style: str = "") -> None:
        """A line of text, truncated to the width of the picture."""
        self.height += FONT + 4
        self.text(MARGIN, self.height - 4, fitted(text, self.width - 2 * MARGIN), style)

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "") -> None:
        """Text whose baseline begins at *x*, *y*, in a class of the style sheet; *anchor* as in SVG."""
        kind = f' class="{style}"' if style else ""
        place = f' text-anchor="{anchor}"' if anchor else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{kind}{place}>{_escaped(text)}</text>')

    def box(self, x: float, y: float, width: float, height: float, color: str, title: str) -> None:
        """A filled rectangle with a tooltip."""
        self.parts.append(
            f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" fill="{color}">'
            f"<title>{_escaped(title[:MOST_TITLE])}</title></rect>"
        )

    def rule(self, x: float, y: float, to_x: float, to_y: float, color: str, dashes: str = "") -> None:
        """A straight line."""
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{color}"{dashed}/>')

    def element(self) -> str:
        """The picture, on a white ground: it is read in documents and chats of any colour.

        Its style concerns nothing outside of it, as in HTML it would.
        """
        height = int(self.height) + MARGIN
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="pytrace" width="{self.width}" height="{height}" '
            f'viewBox="0 0 {self.width} {height}" role="img">\n<style>{_STYLE}</style>\n'
            f'<rect width="100%" height="100%" fill="#fff" style="stroke:none"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


def fitted(text: str, width: float) -> str:
    """Text that fits into *width* pixels, truncated with an ellipsis; empty where fewer than three characters fit."""
    most = int(width / CHARACTER)
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…" if most >= 3 else ""


def _escaped(text: str) -> str:
    """Text for XML, which has no control characters: they are shown as ``\\x1b``, and what it cannot hold is U+FFFD."""
    plain = byte_escapes.shown(text.encode("utf-8", "surrogateescape")).decode()
    return escape(plain.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd"))
