"""The attach points in front of a probe's body.

An attach point is read as text, since its shape depends on the provider; :mod:`pytrace.frontend.attach.points.parts`
takes it apart.
It ends at white space, ``,``, ``{``, ``<``, ``;`` or ``}`` outside quotes, or at a ``/`` that starts a predicate.
Which slash is which:

- behind white space, ``/`` starts the predicate;
- providers whose second part is a file (uprobe, uretprobe, usdt, a name that is no provider, a name with a wildcard):
  in the second part a slash belongs to the path when it is the first character of the part, when the part started with
  one, ``./`` or ``../``, or when a ``:`` follows in the same attach point; later parts have no slashes;
- iter: slashes of the third part belong to the pin's path;
- all other providers have no slashes, so the first one starts the predicate.

A comment starts at ``//`` or ``/*`` wherever a slash would start the predicate.
"""

from __future__ import annotations

import re

from pytrace.core.source import Span
from pytrace.frontend.ast import nodes
from pytrace.frontend.syntax.lexical.lexer import Lexer

_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(?!=)")
_PLAIN = re.compile(r"[^\s{},;<\"/:]+")
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"')
_RUN = re.compile(r'(?:"(?:[^"\\\n]|\\[^\n])*"|[^\s{},;<"])*')
_ENDS = frozenset(" \t\r\n\f\v{},;<")


class _PointReader:
    """Reads one attach point."""

    def __init__(self, lexer: Lexer, start: int) -> None:
        self.lexer = lexer
        self.text = lexer.source.text
        self.at = start
        self.part = 1
        self.part_start = start
        self.provider_start = start
        self.provider = ""

    def read(self) -> int:
        """The offset behind the attach point."""
        text, length = self.text, len(self.text)
        while self.at < length:
            char = text[self.at]
            if char in _ENDS:
                break
            if char == '"':
                self._quoted()
            elif char == "/":
                if not self._path_slash():
                    break
                self.at += 1
            elif char == ":":
                self._colon()
            else:
                match = _PLAIN.match(text, self.at)
                self.at = match.end() if match else self.at + 1
        return self.at

    def _quoted(self) -> None:
        match = _QUOTED.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
            return
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        self.lexer.error(
            "the quote in the attach point is not closed", Span(self.lexer.source, self.at, end), "add '\"' at its end"
        )
        match = _PLAIN.match(self.text, self.at + 1)
        self.at = match.end() if match else self.at + 1

    def _colon(self) -> None:
        if self.part == 1:
            self.provider = self.text[self.provider_start : self.at]
        self.at += 1
        self.part += 1
        self.part_start = self.at

    def _path_slash(self) -> bool:
        if self.part == 1:
            return False
        from pytrace.core.probes import probe_kind  # not needed by most scripts, and not quick to import

        kind = probe_kind(self.provider)
        if kind is not None and kind.name == "iter":
            return self.part >= 3
        if kind is not None and not kind.user:
            return False
        if self.part != 2:
            return False
        if self.text.startswith(("/", '"/', "./", "../"), self.part_start):
            return True
        run = _RUN.match(self.text, self.at)
        return run is not None and ":" in run.group()


def read_attach_points(lexer: Lexer) -> tuple[nodes.AttachPoint, ...]:
    """The attach points at the lexer's place, which is behind them afterwards (at the predicate or the body)."""
    points: list[nodes.AttachPoint] = []
    source = lexer.source
    text = source.text
    while True:
        start = lexer.here()
        if points and text[start : start + 1] in ("{", "<", "/"):
            return tuple(points)  # a comma at the end of the list
        named = _NAMED.match(text, start)
        begin = named.end() if named else start
        end = _PointReader(lexer, begin).read()
        if end == begin:
            return tuple(points)
        span = Span(source, start, end)
        points.append(nodes.AttachPoint(span, text[begin:end], named.group(1) if named else None))
        lexer.seek(end)
        at = lexer.here()
        if text[at : at + 1] != ",":
            return tuple(points)
        lexer.seek(at + 1)
