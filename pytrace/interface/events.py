"""Events of a trace as Python objects."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pytrace.core.event_layout import Location
from pytrace.interface.values import Result
from pytrace.results.values import Portable


class Place(msgspec.Struct, frozen=True):
    """What all events of one place in a script have in common."""

    kind: str
    location: Location
    names: tuple[str, ...]
    text: Callable[[bytes], bytes]
    """What the event in a record prints."""
    values: Callable[[bytes], tuple[Portable, ...]]
    """The arguments of the event in a record."""
    probe: Callable[[bytes], str]
    """The probe that sent the event in a record."""
    durable: bool
    """Whether a record says the same whenever it is decoded."""


class Event:
    """Something that a script printed.

    The parts of an event are decoded when they are first asked for.
    """

    __slots__ = ("_place", "_record", "_text", "_values", "size")

    def __init__(
        self, place: Place, record: bytes, text: bytes | None = None, values: tuple[Result, ...] | None = None
    ) -> None:
        self._place = place
        self._record = record
        self._text = text
        self._values = values
        self.size = len(record) + len(text or b"")
        """Bytes that came, and bytes of text that was made of them at once."""

    def decode(self) -> None:
        """Decode now what would be decoded when it is asked for."""
        self._text = self._place.text(self._record)
        self._values = self._place.values(self._record)

    @property
    def kind(self) -> str:
        """What sent it: ``printf``, ``print`` (a value), ``map``, ``quantiles``, ``time``, ``join``, ``cat``,
        ``system``, ``errorf``, ``warnf``, ``row``, or ``iter`` (output of an iterator).
        """
        return self._place.kind

    @property
    def probe(self) -> str:
        """Full name of the probe that fired."""
        return self._place.probe(self._record)

    @property
    def location(self) -> Location:
        """The place in the script."""
        return self._place.location

    @property
    def raw_text(self) -> bytes:
        """What it prints, as bytes: strings of traced programs may be any bytes."""
        if self._text is None:
            self._text = self._place.text(self._record)
        return self._text

    @property
    def text(self) -> str:
        """What it prints, without the line end; bytes that are no UTF-8 are lone surrogates."""
        return self.raw_text.decode("utf-8", "surrogateescape").removesuffix("\n")

    @property
    def values(self) -> tuple[Result, ...]:
        """The arguments of ``printf``, the value of ``print``, the members of a ``row``; of a printed map one
        dictionary. ``pytrace.results.values`` says what stands for each type.
        """
        if self._values is None:
            self._values = self._place.values(self._record)
        return self._values

    @property
    def names(self) -> tuple[str, ...]:
        """Names of :attr:`values`, for a ``row`` or a record; empty for others."""
        return self._place.names

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Event(kind={self.kind!r}, probe={self.probe!r}, values={self.values!r}, text={self.text!r})"
