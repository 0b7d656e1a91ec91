"""Type information that is damaged is refused before it is read."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.btf.reader import Btf, Kind
from pytrace.runtime.btf.validation import check
from tests.support.btf_builder import BtfBuilder, small_types


def test_what_is_whole_is_accepted() -> None:
    check(Btf(small_types()))


def _typedef_of_itself(builder: BtfBuilder) -> None:
    builder.add(Kind.TYPEDEF, "a", 1)


def _pointers_in_a_ring(builder: BtfBuilder) -> None:
    builder.pointer(2)
    builder.pointer(1)


def _struct_in_itself(builder: BtfBuilder) -> None:
    builder.struct("a", 8, ("b", 2, 0))
    builder.array(1, 2)


def _long_chain(builder: BtfBuilder) -> None:
    builder.integer("int", 4)
    for number in range(1, 40):
        builder.pointer(number)


def _type_outside(builder: BtfBuilder) -> None:
    builder.struct("a", 8, ("b", 70, 0))


def _section_as_member(builder: BtfBuilder) -> None:
    builder.add(Kind.DATASEC, ".data")
    builder.struct("a", 8, ("b", 1, 0))


def _bits_of_nothing(builder: BtfBuilder) -> None:
    builder.add(Kind.FWD, "absent")
    builder.struct("a", 8, ("b", 1, 0, 3))


def _void(builder: BtfBuilder) -> None:
    builder.add(Kind.VOID)


def _odd_size(builder: BtfBuilder) -> None:
    builder.integer("int", 3)


def _no_prototype(builder: BtfBuilder) -> None:
    builder.function("f", builder.integer("int", 4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_typedef_of_itself, "type 1 contains itself"),
        (_pointers_in_a_ring, "contains itself"),
        (_struct_in_itself, "contains itself"),
        (_long_chain, "leads to more than 32 types"),
        (_type_outside, "type 1 leads to type 70, and there are 2"),
        (_section_as_member, "which is none of a value"),
        (_bits_of_nothing, "a bitfield of type 2 is no integer"),
        (_void, "type 1 is void"),
        (_odd_size, "type 1 has 3 bytes"),
        (_no_prototype, "function 2 has no prototype"),
    ],
)
def test_what_is_damaged_is_refused(make: Callable[[BtfBuilder], None], message: str) -> None:
    builder = BtfBuilder()
    make(builder)
    with pytest.raises(TraceError, match=message):
        check(Btf(builder.build()))


def test_a_list_may_contain_pointers_to_itself() -> None:
    builder = BtfBuilder()
    builder.struct("node", 8, ("next", 2, 0))
    builder.pointer(1)
    check(Btf(builder.build()))


def test_names_outside_of_the_data_are_refused() -> None:
    data = bytearray(small_types())
    struct.pack_into("=I", data, 24, 0xFFFF)
    with pytest.raises(TraceError, match="outside of its names"):
        check(Btf(bytes(data)))
    whole = small_types()
    with pytest.raises(TraceError, match="its last name does not end"):
        check(Btf(whole[:-1] + b"x"))
