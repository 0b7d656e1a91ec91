"""The wire format; what others read of whole messages is in ``tests/results/formats/test_pprof.py``."""

from __future__ import annotations

import pytest

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
