"""SVG pictures, parsed: boxes with their tooltips, and texts."""

from __future__ import annotations

from io import BytesIO
from xml.etree import ElementTree

import msgspec

from pytrace.results.formats import table
from pytrace.results.snapshot import MapData
from tests.support.snapshots import snapshot

SVG = "{http://www.w3.org/2000/svg}"


class Box(msgspec.Struct, frozen=True):
    """A rectangle with a tooltip, in pixels."""

    x: float
    y: float
    width: float
    height: float
    color: str
    title: str


def boxes(picture: bytes) -> list[Box]:
    """All rectangles that have a tooltip."""
    found = []
    for rect in ElementTree.fromstring(picture).iter(f"{SVG}rect"):
        title = rect.find(f"{SVG}title")
        if title is not None:
            x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            found.append(Box(x, y, width, height, rect.attrib["fill"], title.text or ""))
    return found


def texts(picture: bytes) -> list[str]:
    """All texts, in their order."""
    return [text.text or "" for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def picture(*maps: MapData, wanted: str = "svg") -> bytes:
    """The picture of some maps; *wanted* as the argument of ``-f``."""
    row, options = table.chosen(wanted, None)
    file = BytesIO()
    row.writer()(snapshot(*maps), options, file)
    return file.getvalue()
