"""Digests joined with the keys that they stand for."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

import pytest

from pytrace.core.diagnostics import InternalError
from pytrace.core.manifest import RandomWords
from pytrace.runtime.load import key_digests
from pytrace.runtime.load.key_digests import joined
from tests.support.fake_maps import install

Pairs = dict[bytes, bytes]


def digest(number: int) -> bytes:
    return struct.pack("<2Q", number, ~number & (1 << 64) - 1)


def blocks(pairs: Pairs, size: int = 3) -> list[tuple[bytes, bytes, int]]:
    names = list(pairs)
    parts = [names[at : at + size] for at in range(0, len(names), size)]
    return [(b"".join(part), b"".join(pairs[name] for name in part), len(part)) for part in parts]


def pairs(found: list[tuple[bytes, bytes, int]]) -> list[tuple[bytes, bytes]]:
    given = []
    for names, values, count in found:
        name, value = len(names) // count, len(values) // count
        given += [(names[at * name : (at + 1) * name], values[at * value : (at + 1) * value]) for at in range(count)]
    return sorted(given)


KEYS = {digest(number): b"key%07d" % number for number in range(10)}


@pytest.mark.parametrize("wanted", [range(10), range(3, 4), [9, 0, 5], range(7), [0, 1, 2, 3, 5, 4, 6, 9, 8], []])
def test_rows_with_one_value(wanted: range | list[int]) -> None:
    rows = {digest(number): b"value%03d" % number for number in wanted}
    found = list(joined("@", blocks(rows, 2), blocks(KEYS, 4)))
    assert pairs(found) == sorted((b"key%07d" % number, b"value%03d" % number) for number in wanted)


def test_rows_with_buckets() -> None:
    buckets = [(number, bucket) for number in (7, 2) for bucket in (1, 9)]
    rows = {digest(number) + struct.pack("<Q", bucket): b"%d%d" % (number, bucket) for number, bucket in buckets}
    found = pairs(list(joined("@", blocks(rows), blocks(KEYS, 4))))
    assert found == sorted(
        (b"key%07d" % number + struct.pack("<Q", bucket), b"%d%d" % (number, bucket))
        for number, bucket in buckets
    )


@pytest.mark.parametrize("bucket", [b"", bytes(8)])
def test_a_row_without_a_key(bucket: bytes) -> None:
    rows = {digest(number) + bucket: b"1" for number in (3, 30)}
    with pytest.raises(InternalError, match="1 of 2 rows of @x have no key"):
        list(joined("@x", blocks(rows), blocks(KEYS)))


def test_keys_that_appear_while_rows_are_read() -> None:
    """A program stores the key before the row, so that keys which are read after the rows have that of each row."""
    stored: Pairs = {}

    def rows() -> Iterator[tuple[bytes, bytes, int]]:
        for number in range(3):
            stored[digest(number)] = KEYS[digest(number)]
            yield from blocks({digest(number): b"%d" % number})

    def keys() -> Iterator[tuple[bytes, bytes, int]]:
        yield from blocks(stored)

    assert pairs(list(joined("@", rows(), keys()))) == [(b"key%07d" % number, b"%d" % number) for number in range(3)]


def test_random_words_are_drawn_where_they_belong() -> None:
    drawn = []
    for _ in range(2):
        section = bytearray(64)
        key_digests.draw(memoryview(section), RandomWords(".bss", 16, 32))
        assert section[:16] == bytes(16)
        assert section[48:] == bytes(16)
        drawn.append(bytes(section[16:48]))
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(("refused", "flag"), [(False, 64), (True, 0)])
def test_one_order_where_the_kernel_allows_it(monkeypatch: pytest.MonkeyPatch, refused: bool, flag: int) -> None:
    maps = install(monkeypatch)
    maps.refused = errno.EPERM if refused else 0
    key_digests.in_one_order.cache_clear()
    assert key_digests.in_one_order() == flag
    key_digests.in_one_order.cache_clear()
    assert [made.flags for made in maps.maps.values()] == ([] if refused else [64])
