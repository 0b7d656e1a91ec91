"""JSON of data classes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytrace.base import typed_json
from tests.support.rows import each_row


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
