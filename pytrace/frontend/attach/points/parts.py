"""Splitting the text of an attach point into its parts.

``provider:part:part`` or ``uprobe:path@file:line``: parts are split at ``:`` and ``@`` outside quotes; ``"…"`` quotes
any part of the text, with ``\\`` before a quote or backslash; ``$N`` is replaced by a positional parameter, ``$name``
by an option of the script; these texts may hold several parts with ``:`` between them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pytrace.core.diagnostics import Diagnostics, counted, did_you_mean
from pytrace.core.probes.attach_point_text import TOKEN, unquoted
from pytrace.core.probes.kinds import ProbeKind
from pytrace.core.source import Span
from pytrace.frontend.syntax import nodes


class Part(msgspec.Struct, frozen=True):
    """One part: its *text* (quotes and parameters resolved), its span, and the separator *before* it."""

    text: str
    span: Span
    before: str = ""
    quoted: bool = False
    plus: int = -1
    """Offset of the first ``+`` outside of quotes in *text*; -1 when there is none."""

    @property
    def wild(self) -> bool:
        """Whether the part is a pattern. (``[…]`` marks a pattern as well, but is matched literally.)"""
        return "*" in self.text

    @property
    def number(self) -> bool:
        """Whether the part starts like a number."""
        return self.text[:1].isdigit() or (self.text[:1] == "-" and self.text[1:2].isdigit())


class Point(msgspec.Struct, frozen=True):
    """An attach point whose provider is known. *written* is the provider as written in the script."""

    kind: ProbeKind
    written: Part
    parts: tuple[Part, ...]
    span: Span

    @property
    def texts(self) -> tuple[str, ...]:
        """The parts' texts."""
        return tuple(part.text for part in self.parts)

    @property
    def name(self) -> str:
        """The probe name as written, with the provider's full name."""
        return self.kind.name + "".join(f"{part.before}{part.text}" for part in self.parts)


def split(
    point: nodes.AttachPoint, parameters: Sequence[str], diagnostics: Diagnostics, *, ahead: bool = False
) -> tuple[Part, ...] | None:
    """The parts of *point*, the provider first; None after an error was reported."""
    text, span = point.text, _text_span(point)
    parts = _Parts(span)
    for match in TOKEN.finditer(text):
        if match["separator"]:
            parts.end(match["separator"], match.start(), match.end())
        elif match["quoted"]:
            parts.quote(unquoted(match["quoted"]))
        elif match["parameter"]:
            value = _parameter(match["parameter"], parameters)
            if value is None:
                where = _within(span, match.start(), match.end())
                hint = f"the script was given {counted(len(parameters), 'parameter')}"
                hint = "give it with --aot, which fixes attach points" if ahead else hint
                diagnostics.error(f"{match.group()} in an attach point has no value", where, hints=[hint])
                return None
            parts.value(value, match)
        elif match["option"]:
            name, value = _option(match["option"], point.options)
            if value is None:
                where = _within(span, match.start(), match.end())
                _report_unknown(name, point.options, where, diagnostics)
                return None
            parts.value(value, match)
            parts.plain(match["option"][len(name) :])
        elif match["bad"]:
            _report_bad(match["bad"], _within(span, match.start(), match.end()), diagnostics)
            return None
        else:
            parts.plain(match["plain"])
    parts.end("", len(text), len(text))
    return tuple(parts.done)


class _Parts:
    """Collects the parts of one attach point while its text is read."""

    def __init__(self, span: Span) -> None:
        self.done: list[Part] = []
        self._span = span
        self._text, self._start, self._before = "", 0, ""
        self._quoted, self._plus = False, -1

    def plain(self, text: str) -> None:
        """Add text outside of quotes."""
        plus = text.find("+")
        if plus >= 0 and self._plus < 0:
            self._plus = len(self._text) + plus
        self._text += text

    def value(self, text: str, match: re.Match[str]) -> None:
        """Add the text of a parameter or option, which may contain several parts."""
        for index, part in enumerate(text.split(":")):
            if index:
                self.end(":", match.end(), match.start())
            self.plain(part)

    def quote(self, text: str) -> None:
        """Add text between quotes."""
        self._text += text
        self._quoted = True

    def end(self, separator: str, end: int, following: int) -> None:
        """End a part before offset *end*; the next one starts at offset *following*, after *separator*."""
        where = _within(self._span, self._start, end)
        self.done.append(Part(self._text, where, self._before, self._quoted, self._plus))
        self._text, self._start, self._before = "", following, separator
        self._quoted, self._plus = False, -1


def _parameter(digits: str, parameters: Sequence[str]) -> str | None:
    number = int(digits[-10:]) if not digits[:-10].strip("0") else 0
    return parameters[number - 1] if 1 <= number <= len(parameters) else None


def _option(text: str, options: Sequence[tuple[str, str]]) -> tuple[str, str | None]:
    """The longest name of an option that *text* starts with, up to a dash, and its value; None when there is none."""
    known = dict(options)
    name = text
    while name not in known and "-" in name:
        name = name.rpartition("-")[0]
    return (name, known[name]) if name in known else (text, None)


def _report_unknown(
    name: str, options: Sequence[tuple[str, str]], span: Span, diagnostics: Diagnostics
) -> None:
    known = [known for known, _ in options]
    hints = [*did_you_mean(name, known)]
    if not hints:
        declared = ", ".join(known) or "none"
        hints = [f"'$' stands before the number of a parameter or the name of an option; options declared: {declared}"]
    diagnostics.error(f"the script declares no option {name!r}", span, hints=hints)


def _report_bad(character: str, span: Span, diagnostics: Diagnostics) -> None:
    if character == '"':
        diagnostics.error("this quote is not closed", span)
    else:
        diagnostics.error(
            "'$' in an attach point must be followed by the number of a parameter or the name of an option",
            span,
            hints=["put the part in double quotes to use the character as it is"],
        )


def _text_span(point: nodes.AttachPoint) -> Span:
    """The span of the text without ``name=``, which the node's span includes."""
    offset = point.span.text.find(point.text)
    if offset < 0:
        return point.span
    return Span(point.span.source, point.span.start + offset, point.span.start + offset + len(point.text))


def _within(span: Span, start: int, end: int) -> Span:
    return Span(span.source, min(span.start + start, span.end), min(span.start + max(end, start + 1), span.end))
