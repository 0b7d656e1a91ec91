"""The scanner's state in an attach point; distinguishes slashes of paths from the slash of a predicate.

An attach point is scanned as text, since its syntax depends on the provider;
:mod:`pytrace.frontend.attach.points.parts` splits it.
It ends at white space, ``,``, ``{``, ``<``, ``;`` or ``}`` outside quotes, or at a ``/`` that starts a predicate:

- after white space, ``/`` starts the predicate;
- providers whose second part is a file (uprobe, uretprobe, usdt, a name that is no provider, a name with a wildcard):
  in the second part a slash belongs to the path when it is the first character of the part, when the part started with
  one, ``./`` or ``../``, or when a ``:`` follows in the same attach point; later parts have no slashes;
- iter: slashes of the third part belong to the pin's path;
- all other providers have no slashes, so the first one starts the predicate.

A comment starts at ``//`` or ``/*`` wherever a slash would start the predicate.
"""

from __future__ import annotations

import re

from pytrace.core.probes.kinds import Context, probe_kind

_RUN = re.compile(r'(?:"(?:[^"\\\n]|\\[^\n])*"|[^\s{},;<"])*')


class AttachPointScan:
    """An attach point that starts at *start*; its text starts at *begin*, after ``name=`` if it has a name."""

    __slots__ = ("begin", "name", "part", "part_start", "provider", "start")

    def __init__(self, start: int, begin: int, name: str | None) -> None:
        self.start = start
        self.begin = begin
        self.name = name
        self.part = 1
        self.part_start = begin
        self.provider = ""

    def next_part(self, text: str, colon: int) -> None:
        """Record the colon at offset *colon*."""
        if self.part == 1:
            self.provider = text[self.begin : colon]
        self.part += 1
        self.part_start = colon + 1

    def owns_slash(self, text: str, slash: int) -> bool:
        """Whether the slash at offset *slash* belongs to a path of the attach point."""
        if self.part == 1:
            return False
        kind = probe_kind(self.provider)
        if kind is not None and kind.context is Context.ITERATOR:
            return self.part >= 3
        if kind is not None and not kind.user:
            return False
        if self.part != 2:
            return False
        if text.startswith(("/", '"/', "./", "../"), self.part_start):
            return True
        run = _RUN.match(text, slash)
        return run is not None and ":" in run.group()
