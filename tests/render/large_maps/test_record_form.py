"""Rows as records: they compare as the values do, and come back as they were."""

from __future__ import annotations

import random
import struct

from pytrace.core.types import INT8, INT32, INT64, UINT64, Stack, String, Tuple, Type
from pytrace.render.forms import Decoders
from pytrace.render.large_maps.record_form import RecordForm
from pytrace.render.large_maps.record_sorting import sorter
from pytrace.render.sort_keys import Piece
from pytrace.render.value_types import pieces
from tests.render.large_maps.test_printing import value_of
from tests.support.encode import encode

ROWS = 60


def columns(kind: Type, seed: int) -> tuple[list[bytes], RecordForm]:
    rng = random.Random(seed)
    rows = [encode(kind, value_of(rng, kind)) for _ in range(ROWS)]
    order = pieces(kind)
    assert order is not None
    return rows, RecordForm([kind.size], [(0, piece) for piece in order])


def test_order_and_inverse() -> None:
    for kind in (INT8, INT64, String(11), Stack(True, 6), Tuple((INT32, Stack(False, 3), String(5), UINT64))):
        rows, form = columns(kind, 7)
        decode = Decoders().decoder(kind)
        for whole in (True, False):
            data, size = form.records([b"".join(rows)], ROWS, whole=whole)
            assert size == form.size if whole else size <= form.size
            records = [bytes(data[at : at + size]) for at in range(0, len(data), size)]
            assert [row for _, row in sorted(zip(records, rows, strict=True))] == sorted(
                rows, key=lambda row: (decode(row, 0), row)
            )
            back = form.rows((data, size))
            assert [bytes(back[at : at + kind.size]) for at in range(0, len(back), form.row_size)] == rows


def test_truncated_stacks_come_back() -> None:
    """They come after the same frames without the mark."""
    kind = Stack(True, 3)
    rows = [struct.pack("=iI3Q", count, 7, 5, 6, 8) for count in (4, 3)]
    form = RecordForm([kind.size], [(0, piece) for piece in pieces(kind) or ()])
    data, size = form.records([b"".join(rows)], 2)
    back = form.rows((data, size))
    assert [bytes(back[at : at + kind.size]) for at in range(0, len(back), form.row_size)] == rows
    assert data[size:] < data[:size]


def test_a_stack_may_end_with_the_address_zero() -> None:
    """As a broken chain of frame pointers ends: a sorter cuts the zeros at the ends of all records."""
    kind = Stack(True, 3)
    for frames in ((5, 6, 0), (5, 0, 0), (0, 0, 0)):
        for count in (1, 2, 3, 4):
            row = struct.pack("=iI3Q", count, 7, *[address if at < count else 0 for at, address in enumerate(frames)])
            form = RecordForm([kind.size, 8], [(1, Piece(0, 8)), *((0, piece) for piece in pieces(kind) or ())])
            last = sorter(form.size, None, top=3)
            last.add(form.records([5 * row, bytes(40)], 5, whole=last.whole))
            (back,) = map(form.rows, last.blocks())
            assert [bytes(back[at : at + kind.size]) for at in range(0, len(back), form.row_size)] == 3 * [row]


def test_what_the_order_leaves_out_comes_back() -> None:
    form = RecordForm([12, 3], [(1, Piece(1, 2)), (0, Piece(4, 4, True, True))])
    first, second = bytes(range(24)), bytes(range(100, 106))
    rows = form.rows(form.records([first, second], 2))
    assert form.starts == [0, 16]
    assert [bytes(rows[at : at + 12]) for at in (0, form.row_size)] == [first[:12], first[12:]]
    assert [bytes(rows[at + 16 : at + 19]) for at in (0, form.row_size)] == [second[:3], second[3:]]


def test_zeros_at_the_end_take_no_room() -> None:
    form = RecordForm([1024], [(0, Piece(0, 1024, False))])
    data, size = form.records([b"abc".ljust(1024, b"\0") + b"abcdefghi".ljust(1024, b"\0")], 2)
    assert size == 16
    assert len(data) == 32


def test_a_string_is_read_up_to_where_all_have_ended() -> None:
    """What may come after the NUL in memory is not looked at, and what follows the string is."""
    order = [(0, Piece(0, 32, False, ends=True)), (0, Piece(32, 8))]
    form = RecordForm([40], order)
    first, second = b"ab".ljust(32, b"\0") + b"12345678", b"abcdefghij".ljust(24, b"\0") + b"garbage!" + b"87654321"
    data, size = form.records([first + second], 2)
    rows = form.rows((data, size))
    assert bytes(rows[:40]) == first
    assert bytes(rows[40:]) == b"abcdefghij".ljust(32, b"\0") + b"87654321"
    plain = RecordForm([40], [(0, Piece(0, 32, False)), (0, Piece(32, 8))])
    assert bytes(plain.rows(plain.records([first + second], 2))) == first + second
