"""pytrace.runtime.abi.bpf_maps: single elements and batches, also on kernels without these."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from pytrace.runtime.abi import bpf_maps, syscalls
from pytrace.runtime.abi.bpf import Command
from pytrace.runtime.abi.bpf_maps import Batch
from tests.support.fake_maps import FakeMaps, install

HASH = 1


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaps]:
    made = install(monkeypatch)
    yield made
    made.close()


def key(number: int) -> bytes:
    return number.to_bytes(4, "little")


def filled(maps: FakeMaps, count: int, *, bucket: int = 1) -> int:
    """A map with keys and values from 0 on."""
    descriptor = maps.add(4, 8, bucket=bucket)
    maps.maps[descriptor].pairs = {key(number): number.to_bytes(8, "little") for number in range(count)}
    return descriptor


def test_what_is_asked_for_a_map(maps: FakeMaps) -> None:
    inner = bpf_maps.create(HASH, 4, 8, 100, flags=1, name="a_name_that_is_far_too_long")
    made = maps.maps[inner]
    assert (made.kind, made.key_size, made.value_size, made.entries, made.flags) == (HASH, 4, 8, 100, 1)
    assert made.name == "a_name_that_is_"
    assert maps.maps[bpf_maps.create(12, 4, 4, 1, inner=inner)].inner == inner


def test_single_elements(maps: FakeMaps) -> None:
    descriptor = maps.add(4, 8)
    assert bpf_maps.lookup(descriptor, key(1), 8) is None
    assert not bpf_maps.delete(descriptor, key(1))
    bpf_maps.update(descriptor, key(1), b"12345678")
    assert bpf_maps.lookup(descriptor, key(1), 8) == b"12345678"
    assert bpf_maps.delete(descriptor, key(1))
    assert maps.maps[descriptor].pairs == {}


def test_keys_one_after_another(maps: FakeMaps) -> None:
    descriptor = filled(maps, 3)
    assert bpf_maps.next_key(descriptor, None, 4) == key(0)
    assert bpf_maps.next_key(descriptor, key(1), 4) == key(2)
    assert bpf_maps.next_key(descriptor, key(2), 4) is None
    assert bpf_maps.next_key(maps.add(4, 8), None, 4) is None


def test_other_errors_stay_errors(maps: FakeMaps, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    descriptor = maps.add(4, 8)
    monkeypatch.setattr(syscalls, "call", refuse)
    for ask in (
        lambda: bpf_maps.lookup(descriptor, key(1), 8),
        lambda: bpf_maps.delete(descriptor, key(1)),
        lambda: bpf_maps.next_key(descriptor, None, 4),
        lambda: Batch(descriptor, 4, 8, 10).read(),
        lambda: bpf_maps.update_all(descriptor, [key(1)], bytes(8)),
    ):
        with pytest.raises(PermissionError):
            ask()


# ---------------------------------------------------------------------------------------------- batches


def walked(batch: Batch, *, delete: bool = False) -> tuple[list[int], list[int]]:
    """Numbers of keys, and of elements of each call."""
    found: list[int] = []
    counts = []
    end = False
    while not end:
        count, end = batch.read(delete=delete)
        counts.append(count)
        assert [batch.keys.data[4 * at : 4 * at + 4] for at in range(count)] == [
            batch.values.data[8 * at : 8 * at + 4] for at in range(count)
        ]
        found += [int.from_bytes(batch.keys.data[4 * at : 4 * at + 4], "little") for at in range(count)]
    return found, counts


@pytest.mark.parametrize(
    ("count", "capacity", "counts"), [(0, 4, [0]), (3, 4, [3]), (4, 4, [4]), (10, 4, [4, 4, 2])]
)
def test_a_walk_goes_on_where_it_was(maps: FakeMaps, count: int, capacity: int, counts: list[int]) -> None:
    assert walked(Batch(filled(maps, count), 4, 8, capacity)) == (list(range(count)), counts)


def test_elements_are_taken_out_in_the_same_step(maps: FakeMaps) -> None:
    descriptor = filled(maps, 10)
    assert walked(Batch(descriptor, 4, 8, 4), delete=True)[0] == list(range(10))
    assert maps.maps[descriptor].pairs == {}
    assert set(maps.calls) == {Command.MAP_LOOKUP_AND_DELETE_BATCH}


def test_a_bucket_that_is_fuller_than_a_batch(maps: FakeMaps) -> None:
    batch = Batch(filled(maps, 6, bucket=3), 4, 8, 2)
    with pytest.raises(OSError, match="No space left") as raised:
        batch.read()
    assert raised.value.errno == errno.ENOSPC
    batch.grow()
    assert batch.capacity == 4
    assert (len(batch.keys.data), len(batch.values.data)) == (16, 32)
    assert walked(batch)[0] == list(range(6))


def test_growing_in_the_middle_of_a_walk(maps: FakeMaps) -> None:
    batch = Batch(filled(maps, 8), 4, 8, 2)
    assert batch.read() == (2, False)
    batch.grow()
    assert walked(batch)[0] == list(range(2, 8))


@pytest.mark.parametrize("number", [0, errno.EINVAL, errno.EOPNOTSUPP, syscalls.ENOTSUPP])
def test_many_keys_get_one_value(maps: FakeMaps, number: int) -> None:
    descriptor = filled(maps, 3)
    maps.batches = number
    bpf_maps.update_all(descriptor, [key(1), key(7)], b"x" * 8)
    pairs = maps.maps[descriptor].pairs
    assert (pairs[key(1)], pairs[key(7)]) == (b"x" * 8, b"x" * 8)
    assert pairs[key(0)] == bytes(8)
    assert len(pairs) == 4
    assert maps.calls.count(Command.MAP_UPDATE_ELEM) == (2 if number else 0)


def test_a_batch_that_is_refused_is_not_tried_key_by_key(maps: FakeMaps) -> None:
    maps.batches = errno.EPERM
    with pytest.raises(PermissionError):
        bpf_maps.update_all(filled(maps, 3), [key(1)], b"x" * 8)
    assert Command.MAP_UPDATE_ELEM not in maps.calls


def test_no_keys_need_no_call(maps: FakeMaps) -> None:
    bpf_maps.update_all(maps.add(4, 8), [], bytes(8))
    assert maps.calls == []


@pytest.mark.kernel
def test_the_kernel_answers_alike() -> None:
    descriptor = bpf_maps.create(HASH, 4, 8, 100, name="pytrace_test")
    try:
        bpf_maps.update_all(descriptor, [key(number) for number in range(50)], b"x" * 8)
        bpf_maps.update(descriptor, key(7), b"y" * 8)
        assert bpf_maps.lookup(descriptor, key(7), 8) == b"y" * 8
        assert bpf_maps.lookup(descriptor, key(99), 8) is None
        assert bpf_maps.delete(descriptor, key(7))
        assert not bpf_maps.delete(descriptor, key(7))
        first = bpf_maps.next_key(descriptor, None, 4)
        assert first is not None
        batch = Batch(descriptor, 4, 8, 64)
        count, end = batch.read(delete=True)
        assert (count, end) == (49, True)
        assert bpf_maps.next_key(descriptor, None, 4) is None
    finally:
        os.close(descriptor)
