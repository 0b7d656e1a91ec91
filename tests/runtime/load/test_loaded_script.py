"""pytrace.runtime.load.loaded_script: which map programs use, and waiting for those that run."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pytrace.core.manifest import MapType
from pytrace.runtime.abi.bpf import Command
from pytrace.runtime.load.loaded_script import Generations, Quiescence
from tests.support.fake_maps import FakeMap, FakeMaps, install

OUTER = FakeMap(int(MapType.ARRAY_OF_MAPS), 4, 4, 1)


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaps]:
    made = install(monkeypatch)
    yield made
    made.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def outer(maps: FakeMaps) -> int:
    return maps.add(4, 4)


def used(maps: FakeMaps, descriptor: int) -> int:
    """The map that an array of maps holds."""
    return int.from_bytes(maps.maps[descriptor].pairs[bytes(4)], "little")


def test_both_maps_are_alike_and_have_names_of_their_own(maps: FakeMaps, stack: ExitStack) -> None:
    Generations((MapType.HASH, 8, 16), 100, "a_long_name_of_a_map", stack)
    first, second = maps.maps.values()
    assert (first.key_size, first.value_size, first.entries) == (8, 16, 100)
    assert (second.key_size, second.value_size, second.entries) == (8, 16, 100)
    assert [first.name, second.name] == ["a_long_name_o_0", "a_long_name_o_1"]


def test_programs_get_the_other_map_in_turn(maps: FakeMaps, stack: ExitStack) -> None:
    made = Generations((MapType.HASH, 8, 8), 100, "counts", stack)
    first, second = maps.maps
    array = outer(maps)
    made.start(array)
    assert made.current == used(maps, array) == first
    assert made.flip() == first
    assert made.current == used(maps, array) == second
    assert made.flip() == second
    assert made.current == used(maps, array) == first


def test_whether_the_map_in_use_is_empty(maps: FakeMaps, stack: ExitStack) -> None:
    made = Generations((MapType.HASH, 8, 8), 100, "counts", stack)
    made.start(outer(maps))
    assert made.empty
    maps.maps[made.current].pairs[bytes(8)] = bytes(8)
    assert not made.empty
    made.flip()
    assert made.empty


def test_maps_are_closed_with_the_session(maps: FakeMaps) -> None:
    with ExitStack() as stack:
        Generations((MapType.HASH, 8, 8), 100, "counts", stack)
        opened = list(maps.maps)
        assert len(opened) == 2
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_map_that_cannot_be_made_leaves_none(maps: FakeMaps) -> None:
    maps.refused = errno.ENOMEM
    with ExitStack() as stack, pytest.raises(OSError, match="Cannot allocate"):
        Generations((MapType.HASH, 8, 8), 100, "counts", stack)
    assert maps.maps == {}


def test_waiting_makes_its_maps_once(maps: FakeMaps, stack: ExitStack) -> None:
    waiting = Quiescence(stack)
    assert not maps.maps, "most scripts never wait"
    for _ in range(3):
        waiting.wait()
    assert maps.calls.count(Command.MAP_UPDATE_ELEM) == 3, "it is this update that the kernel lets wait"
    held, array = maps.maps
    assert maps.maps[array].kind == MapType.ARRAY_OF_MAPS
    assert maps.maps[array].inner == held == used(maps, array)


@pytest.mark.kernel
def test_the_kernel_takes_both(stack: ExitStack) -> None:
    from pytrace.runtime.abi import bpf_maps

    made = Generations((MapType.HASH, 8, 8), 100, "counts", stack)
    array = bpf_maps.create(MapType.ARRAY_OF_MAPS, 4, 4, 1, name="pytrace_test", inner=made.current)
    stack.callback(os.close, array)
    made.start(array)
    bpf_maps.update(made.current, bytes(8), bytes(8))
    assert not made.empty
    before = made.flip()
    assert made.empty
    assert bpf_maps.lookup(before, bytes(8), 8) == bytes(8)
    Quiescence(stack).wait()
