"""Plain loads through typed pointers."""

from __future__ import annotations

from pytrace.core.types import INT8, UINT32, UINT64, Array, Field, Pointer, Struct
from pytrace.core.types.plain_loads import plainly_read


def test_plain_loads_that_the_verifier_refuses() -> None:
    pair = Struct("struct", "", 8, (Field("hash", UINT32, 0), Field("len", UINT32, 4)), origin="a")
    both = Struct("union", "", 8, (Field("", pair, 0), Field("hash_len", UINT64, 0)), origin="b")
    name = Struct("struct", "qstr", 16, (Field("", both, 0), Field("name", Pointer(INT8), 8)), origin="c")
    names = Struct("struct", "names", 48, (Field("kind", INT8, 0), Field("each", Array(name, 2), 16)), origin="d")
    assert plainly_read(name, 0, 4)
    assert plainly_read(name, 4, 4)
    assert not plainly_read(name, 0, 8)
    assert plainly_read(name, 8, 8)
    assert [plainly_read(names, offset, 8) for offset in (16, 24, 32, 40)] == [False, True, False, True]
    assert plainly_read(names, 36, 4)
