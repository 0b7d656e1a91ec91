"""JSON by types, and protocol buffers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytrace.base import protobuf, typed_json
from pytrace.base.protobuf import Message, varint
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- typed json
# JSON of data classes.


class Point(msgspec.Struct, frozen=True):
    name: str
    places: tuple[int, ...]
    data: bytes = b""


@pytest.mark.parametrize("point", [Point("a", ()), Point("\udcff\n", (1, 2), b"\0\xff")])
def test_what_is_encoded_is_decoded(point: Point) -> None:
    assert typed_json.decode(typed_json.encode(point), Point) == point


@each_row(
    "data",
    [
        b"", b"{", b"\xff", b"[]", b"[" * 100_000, b'{"name": "a"}', b'{"name": "a", "places": [true]}',
        b'{"name": "a", "places": ["1"]}', b'{"name": "a", "places": [1], "data": "%"}',
        b'{"name": "\\ud800", "places": []}', b'{"name": "\xed\xa0\x80", "places": []}',
        b'{"name": "\\udc80\\ud800", "places": []}',
    ],
)  # fmt: skip
def test_what_is_not_of_the_class_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        typed_json.decode(data, Point)


def test_a_hook_decodes_other_classes() -> None:
    def hook(wanted: type, data: Any) -> Any:
        assert wanted is complex
        return complex(data)

    assert typed_json.decode(b"[1]", tuple[complex, ...], hook) == (1 + 0j,)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"is no number of JSON|is too large a number"):
        typed_json.decode(f"[{number}]".encode(), tuple[float, ...])
    with pytest.raises(ValueError, match="not JSON compliant"):
        typed_json.encode([float(number)])


# ---------------------------------------------------------------------------------------------- protobuf
# The wire format; what others read of whole messages is in ``tests/results/formats/test_pprof.py``.


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
