"""Instructions of the compiled program: dropped ones, widths, copies."""

from __future__ import annotations

import io

import pytest
from elftools.elf.elffile import ELFFile

from tests.codegen.running import compiled, printed


def instructions(script: str) -> int:
    found = compiled(script)
    section = ELFFile(io.BytesIO(found.elf)).get_section_by_name(f"pytrace/{found.manifest.programs[0].symbol}")
    return section["sh_size"] // 8


def test_what_cannot_be_reached_is_left_out() -> None:
    assert instructions("begin { return; @a[1] = 5; print(nsecs); }") == instructions("begin { }")


@pytest.mark.parametrize(
    ("type_", "wanted"), [("int8", -31), ("uint8", 225), ("int16", 4321), ("uint32", 4321), ("bool", True)]
)
def test_values_are_extended_as_their_type_says(type_: str, wanted: int) -> None:
    assert printed(f"let $x: {type_} = ({type_})pid; $y = $x; print($y);") == [wanted]
    assert printed(f"@m[1] = ({type_})pid; print(@m[1]);") == [wanted]


@pytest.mark.parametrize(("type_", "before", "after"), [("int32", 2**31 - 1, -(2**31)), ("uint32", 2**32 - 1, 0)])
def test_atomic_steps_have_the_width_of_the_map(type_: str, before: int, after: int) -> None:
    """A map that is only stepped has 64 bits; a cast keeps others at their width."""
    assert printed(f"@m[1] = ({type_}){before}; print(@m[1]++); print(({type_})@m[1]);") == [before, after]


def test_a_copy_costs_two_instructions_for_a_word() -> None:
    def size(words: int) -> int:
        members = ", ".join(f"(int64)pid + {at}" for at in range(words))
        return instructions(f"begin {{ $t = ({members}); @m[1] = $t; @m[2] = $t; }}")

    assert size(30) - size(20) <= 10 * 2 * 6


def test_unlikely_ways_come_last() -> None:
    """A map that is full is handled at the end of the program, where the fast way does not pass."""
    assert instructions("begin { @m[1] = 1; }") < 60
