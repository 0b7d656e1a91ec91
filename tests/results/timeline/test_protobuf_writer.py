"""The wire format, read back by protobuf itself."""

from __future__ import annotations

import pytest

from pytrace.results.timeline.protobuf_writer import data, double, number, varint

messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, (1 << 63) - 1, -1, -(1 << 63)])
def test_numbers(value: int) -> None:
    read = messages.TrackEvent.FromString(number(30, value))
    assert read.HasField("counter_value")
    assert read.counter_value == value


def test_texts_and_doubles() -> None:
    read = messages.TrackEvent.FromString(data(23, "é") + double(44, 0.5) + data(4, data(10, "a")))
    assert (read.name, read.double_counter_value, read.debug_annotations[0].name) == ("é", 0.5, "a")
    assert varint(300) == b"\xac\x02"
