"""Enumerations behave as those of the standard library, as far as pytrace uses them."""

from __future__ import annotations

import copy
import enum
import pickle
import struct

import pytest

from pytrace.base.fast_enum import Enum, IntEnum


class Colour(Enum):
    """A colour."""

    RED = "red"
    """Like blood."""
    BLUE = "blue"
    AZURE = "blue"

    @property
    def short(self) -> str:
        return str(self.value)[0]


class Number(IntEnum):
    ZERO = 0
    TWO = 2


class StandardColour(enum.Enum):
    RED = "red"
    BLUE = "blue"
    AZURE = "blue"  # noqa: PIE796


class StandardNumber(enum.IntEnum):
    ZERO = 0
    TWO = 2


PAIRS = [(Colour, StandardColour), (Number, StandardNumber)]


@pytest.mark.parametrize(("ours", "standard"), PAIRS)
def test_members_are_those_of_the_standard_library(ours: type[Enum], standard: type[enum.Enum]) -> None:
    assert [(item.name, item.value) for item in ours] == [(item.name, item.value) for item in standard]
    assert len(ours) == len(standard)
    for mine, theirs in zip(ours, standard, strict=True):
        assert str(mine).replace(ours.__name__, standard.__name__) == str(theirs)
        assert repr(mine).replace(ours.__name__, standard.__name__) == repr(theirs)
        assert f"{mine}".replace(ours.__name__, standard.__name__) == f"{theirs}"
        assert ours(mine.value) is ours[mine.name] is mine
        assert isinstance(mine, ours)


def test_two_names_of_one_value_are_one_member() -> None:
    assert Colour.AZURE is Colour.BLUE
    assert Colour["AZURE"].name == "BLUE"


def test_what_is_no_member() -> None:
    with pytest.raises(ValueError, match="'green' is not a valid Colour"):
        Colour("green")
    with pytest.raises(ValueError, match="1 is not a valid Number"):
        Number(1)
    with pytest.raises(KeyError):
        Colour["GREEN"]


def test_members_of_text_are_no_text() -> None:
    values: list[object] = ["red", Colour.BLUE]
    assert Colour.RED not in values
    assert {Colour.RED: 1}[Colour("red")] == 1
    assert Colour.RED.short == "r"


def test_members_that_are_numbers_are_used_as_such() -> None:
    assert Number.TWO == 2
    assert (Number.TWO + 1, Number.TWO | 1, f"{Number.TWO:02d}", bool(Number.ZERO)) == (3, 3, "02", False)
    assert struct.pack("=I", Number.TWO) == b"\2\0\0\0"
    assert {2: "x"}[Number.TWO] == "x"
    assert sorted([Number.TWO, Number.ZERO]) == [0, 2]


def test_copies_are_the_member_itself() -> None:
    for member in (Colour.RED, Number.TWO):
        assert copy.copy(member) is copy.deepcopy(member) is pickle.loads(pickle.dumps(member)) is member


def test_patterns_match_members() -> None:
    match Colour("blue"):
        case Colour.RED:
            pytest.fail("red")
        case Colour.BLUE:
            pass
