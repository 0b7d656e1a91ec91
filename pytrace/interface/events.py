"""Events of a trace as Python objects."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pytrace.core.event_layout import Location
from pytrace.render.value_kind import Result
from pytrace.results.snapshot import Portable


class EventSource(msgspec.Struct, frozen=True):
    """The properties that all events from one statement of a script share."""

    kind: str
    location: Location
    names: tuple[str, ...]
    text: Callable[[bytes], bytes]
    """Returns the text that the event in a record prints."""
    values: Callable[[bytes], tuple[Portable, ...]]
    """Returns the arguments of the event in a record."""
    probe: Callable[[bytes], str]
    """Returns the probe that sent the event in a record."""
    durable: bool
    """The result of decoding a record does not depend on the time."""


class Event:
    """An event that a script printed.

    The parts of an event are decoded on first use.
    """

    __slots__ = ("_source", "_record", "_text", "_values", "size")

    def __init__(
        self, source: EventSource, record: bytes, text: bytes | None = None, values: tuple[Result, ...] | None = None
    ) -> None:
        self._source = source
        self._record = record
        self._text = text
        self._values = values
        self.size = len(record) + len(text or b"")
        """Size in bytes of the record, and of text that was decoded on arrival."""

    def decode(self) -> None:
        """Decode all parts now instead of on first use."""
        self._text = self._source.text(self._record)
        self._values = self._source.values(self._record)

    @property
    def kind(self) -> str:
        """The function that sent it: ``printf``, ``print`` (a value), ``map``, ``quantiles``, ``time``, ``join``,
        ``cat``, ``system``, ``errorf``, ``warnf``, ``row``, or ``iter`` (output of an iterator).
        """
        return self._source.kind

    @property
    def probe(self) -> str:
        """Full name of the probe that fired."""
        return self._source.probe(self._record)

    @property
    def location(self) -> Location:
        """The location in the script."""
        return self._source.location

    @property
    def raw_text(self) -> bytes:
        """The printed text as bytes: strings of traced programs may contain any bytes."""
        if self._text is None:
            self._text = self._source.text(self._record)
        return self._text

    @property
    def text(self) -> str:
        """The printed text, without the line end; bytes that are not UTF-8 become lone surrogates."""
        return self.raw_text.decode("utf-8", "surrogateescape").removesuffix("\n")

    @property
    def values(self) -> tuple[Result, ...]:
        """The arguments of ``printf``, the value of ``print``, the members of a ``row``; for a printed map, one
        dictionary. ``pytrace.results.snapshot`` describes the Python value of each type.
        """
        if self._values is None:
            self._values = self._source.values(self._record)
        return self._values

    @property
    def names(self) -> tuple[str, ...]:
        """Names of :attr:`values` for a ``row`` or a record; empty for other events."""
        return self._source.names

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Event(kind={self.kind!r}, probe={self.probe!r}, values={self.values!r}, text={self.text!r})"
