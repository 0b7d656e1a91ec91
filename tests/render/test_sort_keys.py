"""Which parts of values decide their order."""

from __future__ import annotations

from pytrace.core import types
from pytrace.core.types import INT32, UINT64, Array, Stack, StackMode, String, Tuple
from pytrace.render.sort_keys import Piece
from pytrace.render.value_types import pieces


def test_numbers_texts_and_members() -> None:
    assert pieces(INT32) == [Piece(0, 4, True, True)]
    assert pieces(String(9)) == [Piece(0, 9, False, ends=True)]
    assert pieces(Tuple((INT32, UINT64))) == [Piece(0, 4, True, True), Piece(8, 8)]
    assert pieces(Array(UINT64, 2)) == [Piece(0, 8), Piece(8, 8)]
    assert pieces(types.USym()) == [Piece(8, 4), Piece(0, 8)], "the process comes first"


def test_stacks() -> None:
    assert pieces(Stack(True, 5)) == [Piece(0, 48, False, False, 5)]
    assert pieces(Stack(True, 300)) is None
    assert pieces(Stack(True, 5, StackMode.BUILD_ID)) is None


def test_types_without_such_an_order() -> None:
    struct = types.Struct("struct", "s", 8, (types.Field("a", UINT64, 0),))
    assert pieces(struct) is None
    assert pieces(Tuple((INT32, struct))) is None
    assert pieces(Array(struct, 2)) is None
