"""The log of the live view: the newest lines that a run has printed."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from pytrace.live.glyphs import Glyphs

KEPT = 5000
"""Lines that are kept."""

_CLEAR = b"\x1b[H\x1b[2J"
"""What ``clear()`` of a script without a map prints (``runtime.output.handlers``)."""
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


class Log:
    """Lines of output, without colours and control characters. The end of a line may come later."""

    def __init__(self, glyphs: Glyphs, kept: int = KEPT) -> None:
        self._glyphs = glyphs
        self._lines: deque[str] = deque(maxlen=kept)
        self._rest = b""
        self.dropped = 0
        """Bytes that came faster than they could be shown."""
        self.filter = ""

    def add(self, data: bytes, dropped: int = 0) -> None:
        """Add output; *dropped* bytes before it are missing."""
        if dropped:
            self.dropped += dropped
            self._rest = b""
        data = self._rest + data
        before, cleared, after = data.rpartition(_CLEAR)
        if cleared:
            self._lines.clear()
        *whole, self._rest = (after if cleared else before + after).split(b"\n")
        self._lines.extend(map(self._line, whole))

    def _line(self, data: bytes) -> str:
        text = _COLOUR.sub(b"", data).decode("utf-8", "surrogateescape").expandtabs()
        return self._glyphs.text(text.rstrip("\r"))

    def lines(self) -> list[str]:
        """The lines that have the filter's text, the oldest first."""
        return list(self._matching(self._lines))

    def last(self, count: int) -> list[str]:
        """The last *count* of :meth:`lines`, the oldest first."""
        found = []
        for line in self._matching(reversed(self._lines)):
            found.append(line)
            if len(found) == count:
                break
        return found[::-1]

    def _matching(self, lines: Iterable[str]) -> Iterable[str]:
        wanted = self.filter.casefold()
        return (line for line in lines if wanted in line.casefold())

    def __len__(self) -> int:
        return len(self._lines)
