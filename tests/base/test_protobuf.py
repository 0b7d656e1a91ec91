"""The wire format; what others read of whole messages is in ``tests/results/formats/test_pprof.py``."""

from __future__ import annotations

import pytest

from pytrace.base import protobuf
from pytrace.base.protobuf import Message, varint


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        ((1 << 64) - 1, "ffffffffffffffffff01"),
        (-1, "ffffffffffffffffff01"),
        (-(1 << 63), "80808080808080808001"),
    ],
)
def test_numbers(number: int, data: str) -> None:
    assert varint(number).hex() == data


def test_fields() -> None:
    inner = Message()
    inner.number(1, 150)
    message = Message()
    message.message(3, inner)
    message.text(2, b"testing")
    message.packed(4, [3, 270, 86942])
    message.number(16, 1)
    assert bytes(message).hex() == "1a03089601120774657374696e672206038e029ea705800101"


def test_what_is_empty_is_left_out() -> None:
    message = Message()
    message.number(1, 0)
    message.text(2, b"")
    message.packed(3, [])
    assert bytes(message) == b""
    message.text(2, b"", repeated=True)
    message.packed(3, [0])
    message.message(4, Message())
    assert bytes(message).hex() == "12001a01002200"


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, (1 << 63) - 1, -1, -(1 << 63)])
def test_numbers_of_proto2_as_protobuf_reads_them(value: int) -> None:
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    read = messages.TrackEvent.FromString(protobuf.number(30, value))
    assert read.HasField("counter_value")
    assert read.counter_value == value


def test_texts_and_doubles_as_protobuf_reads_them() -> None:
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    annotation = protobuf.data(4, protobuf.data(10, "a"))
    read = messages.TrackEvent.FromString(protobuf.data(23, "é") + protobuf.double(44, 0.5) + annotation)
    assert (read.name, read.double_counter_value, read.debug_annotations[0].name) == ("é", 0.5, "a")
