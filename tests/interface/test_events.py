from __future__ import annotations

from pytrace.core.event_layout import Location
from pytrace.interface.events import Event, EventSource

LOCATION = Location("script", 1, 1, 2, "x")


def source(calls: list[str]) -> EventSource:
    def text(record: bytes) -> bytes:
        calls.append("text")
        return record + b"\xff\n\n"

    def values(record: bytes) -> tuple[bytes, ...]:
        calls.append("values")
        return (record,)

    return EventSource("printf", LOCATION, ("name",), text, values, lambda _record: "begin", True)


def test_an_event_is_decoded_once_and_when_it_is_asked() -> None:
    calls: list[str] = []
    event = Event(source(calls), b"abc")
    assert (event.kind, event.probe, event.location, event.names, calls) == (
        "printf", "begin", LOCATION, ("name",), [],
    )  # fmt: skip
    assert (event.raw_text, event.text, str(event)) == (b"abc\xff\n\n", "abc\udcff\n", "abc\udcff\n")
    assert (event.values, event.values) == ((b"abc",), (b"abc",))
    assert sorted(calls) == ["text", "values"]


def test_an_event_that_was_decoded_at_once() -> None:
    calls: list[str] = []
    event = Event(source(calls), b"abc")
    event.decode()
    assert sorted(calls) == ["text", "values"]
    assert (event.values, event.text) == ((b"abc",), "abc\udcff\n")
    assert len(calls) == 2


def test_texts_that_a_handler_wrote() -> None:
    event = Event(source([]), b"r", b"written\n", ("written",))
    assert (event.text, event.values, event.size) == ("written", ("written",), 9)
    assert repr(event) == "Event(kind='printf', probe='begin', values=('written',), text='written')"
