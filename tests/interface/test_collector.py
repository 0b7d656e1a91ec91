from __future__ import annotations

from typing import Any, cast

from pytrace.core.event_layout import Location
from pytrace.core.manifest import ProgramSpec
from pytrace.interface.collector import FOLLOWED_BY_TEXT, OVERHEAD, Collector, EventSources, table
from pytrace.interface.events import Event, EventSource
from pytrace.runtime.output.handlers import HANDLERS

LOCATION = Location("script", 1, 1, 2, "x")


def program() -> ProgramSpec:
    return ProgramSpec("iter_0", "iter", 0, (), LOCATION)


def source(kind: str = "printf") -> EventSource:
    return EventSource(kind, LOCATION, (), bytes, lambda record: (record,), lambda _record: "begin", True)


def test_the_oldest_events_are_dropped_and_counted() -> None:
    collector = Collector((program(),), most=3)
    for number in range(10):
        collector.add(Event(source(), bytes([number])))
    assert (collector.dropped, collector.accepted, len(collector.events)) == (7, 10, 3)
    assert [collector.take().values for _ in range(3)] == [(b"\x07",), (b"\x08",), (b"\x09",)]
    assert (collector.accepted, collector.dropped) == (10, 7)


def test_their_bytes_are_bounded_too() -> None:
    collector = Collector((program(),), most_bytes=3 * (1000 + OVERHEAD))
    for _ in range(10):
        collector.add(Event(source(), bytes(1000)))
    assert (len(collector.events), collector.dropped) == (3, 7)
    collector.add(Event(source(), bytes(100_000)))
    assert (len(collector.events), collector.dropped) == (1, 10)
    collector.take()
    collector.add(Event(source(), bytes(1000)))
    assert (len(collector.events), collector.dropped) == (1, 10)


def test_texts_belong_to_the_event_that_is_handled() -> None:
    collector = Collector((program(),))
    with collector.during(source("system"), b"record"):
        collector.write(b"out\n\n")
    with collector.during(source("cat"), b"record"):
        collector.extend([b"a\n", b"\xff"])
    collector.write(b"of an iterator\n")
    found = [(event.kind, event.values) for event in collector.events]
    assert found == [
        ("system", ("out\n",)), ("cat", ("a\n",)), ("cat", ("\udcff",)), ("iter", ("of an iterator\n",)),
    ]  # fmt: skip


def test_nothing_is_printed(capfd: object) -> None:
    collector = Collector((program(),))
    collector.message("WARNING: odd\n")
    collector.write(b"text\n")
    collector.flush()
    collector.end_batch()
    collector.close()
    assert collector.messages == ["WARNING: odd\n"]
    assert collector.advance()
    assert not collector.congested


def test_each_kind_of_event_is_handled() -> None:
    rows = table(Collector((program(),)), EventSources((program(),), cast(Any, None)))
    assert set(rows) == set(HANDLERS)
    replaced = {kind for kind in rows if rows[kind] is not HANDLERS[kind]}
    assert replaced == {"printf", "heading", "errorf", "warnf", "print_value", "print_map", "row", *FOLLOWED_BY_TEXT}
