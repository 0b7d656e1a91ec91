"""Maps are read from the kernel: blocks, mapped memory, digests as keys."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import EmptiedMap
from pytrace.core.manifest import GlobalSlot, MapSpec, MapType, RandomWords
from pytrace.core.types import INT32, UINT64, String
from pytrace.runtime.load import loaded_script, loader, map_reader
from pytrace.runtime.load.loaded_script import MapSize
from pytrace.runtime.load.map_reader import MapReader, join_keys, paired, read_blocks, round_up
from pytrace.runtime.machine import bpf, perf, syscalls
from pytrace.runtime.machine.bpf import Command
from pytrace.runtime.session import watches
from tests.support.fake_maps import FakeMaps, install

# ---------------------------------------------------------------------------------------------- map reader
# pytrace.runtime.load.map_reader: slots in memory made by hand, and hash maps of a kernel that is not there.


CPUS = 3
COUNTS = MapSpec("@counts", "counts", "hash", UINT64, UINT64, 100)
PERCPU = MapSpec("@percpu", "percpu", "percpuhash", UINT64, INT32, 100)
TWICE = MapSpec("@twice", "twice", "hash", UINT64, UINT64, 100, inner=(1, 8, 8))


@pytest.mark.parametrize(("size", "rounded"), [(0, 0), (1, 8), (8, 8), (9, 16), (24, 24)])
def test_copies_take_whole_words(size: int, rounded: int) -> None:
    assert round_up(size) == rounded


# ---------------------------------------------------------------------------------------------- slots


class Section:
    """Stands for a loaded script with one data section; waiting for programs is counted."""

    def __init__(self, size: int) -> None:
        self.memory = bytearray(size)
        self.generations: dict[str, Any] = {}
        self.waits: list[bytes] = []
        self.quiescence = SimpleNamespace(wait=lambda: self.waits.append(bytes(self.memory)))

    def section(self, name: str) -> memoryview:
        assert name == ".data.slots"
        return memoryview(self.memory)

    def put(self, at: int, value: int, *, written: int = 1) -> None:
        struct.pack_into("=QQ", self.memory, at, written, value)


def slot(**options: Any) -> MapSpec:
    return MapSpec("@x", "", "global", None, UINT64, 1, GlobalSlot(".data.slots", 16, **options))


def reader(section: Section) -> MapReader:
    loaded: Any = section
    return MapReader(loaded)


def words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"={len(data) // 8}Q", data)


def test_a_map_that_was_never_written() -> None:
    section = Section(64)
    assert reader(section).slot(slot()) == (False, bytes(8))


def test_one_copy() -> None:
    section = Section(64)
    section.put(16, 7)
    section.put(32, 8)
    assert reader(section).slot(slot()) == (True, struct.pack("=Q", 7))


def test_a_copy_that_any_cpu_wrote_counts() -> None:
    section = Section(128)
    section.put(48, 7)
    written, data = reader(section).slot(slot(copies=3, stride=32))
    assert written
    assert words(data) == (0, 7, 0)


def test_clearing_reaches_all_copies_and_no_further() -> None:
    section = Section(128)
    for at in (0, 16, 48, 80, 96):
        section.put(at, 5)
    found = reader(section).slot_and_clear(slot(copies=3, stride=32))
    assert words(found[1]) == (5, 5, 5)
    assert words(bytes(section.memory)) == (1, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 5, 0, 0)
    assert reader(section).slot(slot(copies=3, stride=32)) == (False, bytes(24))
    assert section.waits == [], "there is no other copy to use meanwhile"


def test_zero_keeps_a_map_written() -> None:
    section = Section(128)
    section.put(48, 7)
    reader(section).zero(slot(copies=2, stride=32))
    assert reader(section).slot(slot(copies=2, stride=32)) == (True, bytes(16))
    untouched = Section(128)
    reader(untouched).zero(slot(copies=2, stride=32))
    assert not any(untouched.memory)


# A double-buffered slot: at 16 and at 32; the selector is at 0.
TWO = slot(generation=16, selector_section=".data.slots", selector=0)


@pytest.mark.parametrize("current", [0, 1])
def test_the_copy_that_programs_use_is_read(current: int) -> None:
    section = Section(64)
    section.memory[0] = current
    section.put(16, 100)
    section.put(32, 101)
    assert reader(section).slot(TWO) == (True, struct.pack("=Q", 100 + current))
    assert section.memory[0] == current


@pytest.mark.parametrize("current", [0, 1])
def test_programs_use_the_other_copy_before_one_is_cleared(current: int) -> None:
    section = Section(64)
    section.memory[0] = current
    section.put(16 + 16 * current, 7)
    # What a program that still runs adds until it has ended belongs to the copy that is read.
    section.quiescence.wait = lambda: section.put(16 + 16 * current, 8)
    assert reader(section).slot_and_clear(TWO) == (True, struct.pack("=Q", 8))
    assert section.memory[0] == 1 - current
    assert not any(section.memory[16:])


def test_only_the_lowest_bit_selects() -> None:
    section = Section(64)
    section.memory[0] = 0b110
    section.put(16, 7)
    assert reader(section).slot_and_clear(TWO)[1] == struct.pack("=Q", 7)
    assert section.memory[0] == 0b111


def test_nothing_is_waited_for_when_nothing_was_written() -> None:
    section = Section(64)
    made = reader(section)
    assert made.slot_and_clear(TWO) == (False, bytes(8))
    made.clear(TWO)
    assert section.waits == []
    assert section.memory[0] == 0


def test_clear_and_zero_of_two_copies() -> None:
    section = Section(64)
    section.put(16, 7)
    reader(section).clear(TWO)
    assert (section.memory[0], len(section.waits)) == (1, 1)
    assert not any(section.memory[16:])
    section.put(32, 7)
    reader(section).zero(TWO)
    assert (section.memory[0], len(section.waits)) == (0, 2)
    assert reader(section).slot(TWO) == (True, bytes(8))
    reader(section).clear(TWO)
    reader(section).zero(TWO)
    assert reader(section).slot(TWO) == (False, bytes(8)), "a map that was not written stays so"


def test_a_keyed_map_has_no_slot() -> None:
    with pytest.raises(InternalError, match="@counts is not a slot"):
        reader(Section(8)).slot(COUNTS)


# ---------------------------------------------------------------------------------------------- keyed maps


class Loaded:
    """Stands for a loaded script with hash maps."""

    def __init__(self, maps: FakeMaps) -> None:
        self.counts, self.percpu = maps.add(8, 8), maps.add(8, 8 * CPUS)
        self.first, self.second = maps.add(8, 8), maps.add(8, 8)
        self.generations = {"twice": self}
        self.fake = maps

    def map_fd(self, symbol: str) -> int:
        return {"counts": self.counts, "percpu": self.percpu}[symbol]

    # ---- as Generations

    @property
    def current(self) -> int:
        return self.first

    @property
    def empty(self) -> bool:
        return not self.fake.maps[self.first].pairs

    def flip(self) -> int:
        self.first, self.second = self.second, self.first
        return self.second


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaps]:
    made = install(monkeypatch)

    def info(descriptor: int) -> tuple[int, int, int, int, int]:
        found = made.maps[descriptor]
        percpu = found.value_size > 8
        return (MapType.PERCPU_HASH if percpu else MapType.HASH), 1, 8, 4 if percpu else 8, 100

    monkeypatch.setattr(bpf, "map_info", info)
    monkeypatch.setattr(perf, "possible_cpus", lambda: list(range(CPUS)))
    yield made
    made.close()


def fill(maps: FakeMaps, descriptor: int, *numbers: int) -> list[tuple[bytes, bytes]]:
    found = maps.maps[descriptor]
    found.pairs.update({bytes([number]) * 8: bytes([number]) * found.value_size for number in numbers})
    return list(found.pairs.items())


@pytest.mark.parametrize("spec", [COUNTS, PERCPU], ids=lambda spec: spec.kind)
def test_pairs_of_all_cpus(maps: FakeMaps, spec: MapSpec) -> None:
    loaded: Any = Loaded(maps)
    made = MapReader(loaded)
    pairs = fill(maps, loaded.map_fd(spec.symbol), 1, 2, 3)
    assert made.items(spec) == pairs
    assert made.length(spec) == 3
    assert made.lookup(spec, pairs[1][0]) == pairs[1][1]
    assert made.delete(spec, pairs[1][0])
    assert not made.delete(spec, pairs[1][0])
    assert made.lookup(spec, pairs[1][0]) is None
    made.zero(spec)
    assert made.items(spec) == [(key, bytes(len(value))) for key, value in (pairs[0], pairs[2])]
    assert len(paired(made.blocks(spec, clear=True))) == 2
    assert made.items(spec) == []


def test_clearing_a_map(maps: FakeMaps) -> None:
    loaded: Any = Loaded(maps)
    fill(maps, loaded.counts, 1, 2)
    MapReader(loaded).clear(COUNTS)
    assert maps.maps[loaded.counts].pairs == {}


def test_a_map_that_is_there_twice(maps: FakeMaps) -> None:
    loaded: Any = Loaded(maps)
    made = MapReader(loaded)
    used = loaded.first
    assert paired(made.blocks(TWICE, clear=True)) == []
    assert loaded.first == used, "there was nothing to wait for"
    pairs = fill(maps, used, 1, 2)
    assert made.items(TWICE) == pairs
    assert paired(made.blocks(TWICE, clear=True)) == pairs
    assert loaded.first != used
    assert maps.maps[used].pairs == {}
    later = fill(maps, loaded.first, 3)
    assert made.items(TWICE) == later, "the map in use is another one now"
    assert made.lookup(TWICE, later[0][0]) == later[0][1]


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("bucket", [1, 5, 40])
def test_more_elements_than_a_batch_has_room_for(
    maps: FakeMaps, monkeypatch: pytest.MonkeyPatch, bucket: int, delete: bool
) -> None:
    monkeypatch.setattr(map_reader, "_BATCH_ELEMENTS", 4)
    descriptor = maps.add(8, 8, bucket=bucket)
    pairs = fill(maps, descriptor, *range(100))
    assert paired(read_blocks(descriptor, 8, 8, 100, delete=delete)) == pairs
    assert maps.maps[descriptor].pairs == ({} if delete else dict(pairs))


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP, syscalls.ENOTSUPP])
def test_a_kernel_without_batches(maps: FakeMaps, number: int, delete: bool) -> None:
    maps.batches = number
    descriptor = maps.add(8, 8)
    pairs = fill(maps, descriptor, *range(10))
    assert paired(read_blocks(descriptor, 8, 8, 100, delete=delete)) == pairs
    assert maps.maps[descriptor].pairs == ({} if delete else dict(pairs))


def test_other_errors_are_errors(maps: FakeMaps) -> None:
    maps.batches = errno.EPERM
    with pytest.raises(PermissionError):
        paired(read_blocks(maps.add(8, 8), 8, 8, 100))


def test_a_walk_during_which_programs_delete(maps: FakeMaps, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel starts again at the first key when the one that the walk stands on is gone."""
    maps.batches = errno.EINVAL
    descriptor = maps.add(8, 8)
    fill(maps, descriptor, *range(6))
    pairs = maps.maps[descriptor].pairs
    call = maps.call
    left = [bytes([3]) * 8]

    def deleting(name: str, number: int, address: int, size: int) -> int:
        if number == Command.MAP_LOOKUP_ELEM and len(pairs) == 6 and maps.calls.count(Command.MAP_LOOKUP_ELEM) == 3:
            pairs.pop(left[0])
        return call(name, number, address, size)

    monkeypatch.setattr(syscalls, "call", deleting)
    found = paired(read_blocks(descriptor, 8, 8, 6))
    assert [key[0] for key, _ in found] == [0, 1, 2, 4, 5]


def test_a_walk_that_programs_never_let_end_is_given_up(maps: FakeMaps, monkeypatch: pytest.MonkeyPatch) -> None:
    maps.batches = errno.EINVAL
    descriptor = maps.add(8, 8)
    fill(maps, descriptor, 1, 2)
    monkeypatch.setattr(map_reader.bpf, "map_next_key", lambda _map, key, _size: bytes([1 if key is None else 2]) * 8)
    assert [key[0] for key, _ in paired(read_blocks(descriptor, 8, 8, 2))] == [1, 2]


# ---------------------------------------------------------------------------------------------- digests of keys


class Digested:
    """Stands for a loaded script whose map has digests, with *keys* times as many whole keys as digests."""

    def __init__(self, maps: FakeMaps, monkeypatch: pytest.MonkeyPatch, keys: int, *, buckets: bool = False) -> None:
        size = 16 + 8 * buckets
        self.digests, self.keys, self.fake = maps.add(size, 8), maps.add(16, 200), maps
        self.generations: dict[str, Any] = {}
        self.manifest = SimpleNamespace(events=[], programs=[])
        self.meanwhile: list[int] = []
        """Keys whose digests a program inserts before it ends, as it has seen the whole keys."""
        self.quiescence = SimpleNamespace(wait=lambda: self.put(*self.meanwhile, keys=False))
        self.buckets = buckets
        info = {self.digests: (MapType.HASH, 1, size, 8, 10), self.keys: (MapType.HASH, 2, 16, 200, 10 * keys)}
        monkeypatch.setattr(bpf, "map_info", info.__getitem__)

    def map_fd(self, symbol: str) -> int:
        return {"digests": self.digests, "keys": self.keys}[symbol]

    def put(self, *numbers: int, keys: bool = True) -> None:
        for number in numbers:
            digest = bytes([number]) * 16
            for bucket in (b"\1" + bytes(7), b"\2" + bytes(7)) if self.buckets else (b"",):
                self.fake.maps[self.digests].pairs[digest + bucket] = bytes([number]) * 8
            if keys:
                self.fake.maps[self.keys].pairs[digest] = bytes([number]) * 200

    @property
    def known(self) -> list[int]:
        return sorted(digest[0] for digest in self.fake.maps[self.keys].pairs)


DIGESTED = MapSpec("@d", "digests", "hash", String(200), UINT64, 10, keys="keys")


@pytest.mark.parametrize("buckets", [False, True])
def test_digests_are_read_as_their_keys(maps: FakeMaps, monkeypatch: pytest.MonkeyPatch, buckets: bool) -> None:
    loaded: Any = Digested(maps, monkeypatch, 1, buckets=buckets)
    loaded.put(1, 2, 3)
    made = MapReader(loaded)
    ends = [b"\1" + bytes(7), b"\2" + bytes(7)] if buckets else [b""]
    wanted = [(bytes([number]) * 200 + end, bytes([number]) * 8) for number in (1, 2, 3) for end in ends]
    assert sorted(made.items(DIGESTED)) == wanted
    assert made.length(DIGESTED) == len(wanted)
    made.zero(DIGESTED)
    assert sorted(made.items(DIGESTED)) == [(key, bytes(8)) for key, _ in wanted]
    assert len(paired(made.blocks(DIGESTED, clear=True))) == len(wanted)
    assert made.items(DIGESTED) == []
    assert loaded.known == []


@pytest.mark.parametrize("clear", [MapReader.clear, lambda made, spec: paired(made.blocks(spec, clear=True))])
def test_keys_stay_as_long_as_there_is_room(maps: FakeMaps, monkeypatch: pytest.MonkeyPatch, clear: Any) -> None:
    loaded: Any = Digested(maps, monkeypatch, 2)
    made = MapReader(loaded)
    for numbers, known in (((1, 2, 3), [1, 2, 3]), ((3, 4), [1, 2, 3, 4]), ((5,), []), ((6,), [6])):
        loaded.put(*numbers)
        clear(made, DIGESTED)
        assert maps.maps[loaded.digests].pairs == {}
        assert loaded.known == known


def test_keys_of_digests_that_come_meanwhile_stay(maps: FakeMaps, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: Any = Digested(maps, monkeypatch, 1)
    loaded.put(1, 2, 3)
    loaded.meanwhile.append(2)
    made = MapReader(loaded)
    assert len(paired(made.blocks(DIGESTED, clear=True))) == 3
    assert made.items(DIGESTED) == [(b"\2" * 200, b"\2" * 8)]
    assert loaded.known == [2]


@pytest.mark.parametrize("by_script", [False, True])
def test_keys_stay_where_programs_may_sleep(maps: FakeMaps, monkeypatch: pytest.MonkeyPatch, by_script: bool) -> None:
    loaded: Any = Digested(maps, monkeypatch, 1)
    loaded.manifest.programs.append(SimpleNamespace(sleepable=True))
    loaded.manifest.events.append(SimpleNamespace(static=EmptiedMap("@d" if by_script else "@other")))
    loaded.put(1, 2, 3)
    assert len(paired(MapReader(loaded).blocks(DIGESTED, clear=True))) == 3
    assert loaded.known == ([] if by_script else [1, 2, 3])


def test_a_digest_whose_key_finds_no_room_is_dropped(maps: FakeMaps, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: Any = Digested(maps, monkeypatch, 1)
    loaded.put(1, 2)
    loaded.meanwhile.append(2)

    def full(*_: object) -> None:
        raise OSError(errno.E2BIG, "")

    monkeypatch.setattr(map_reader.bpf, "map_update", full)
    made = MapReader(loaded)
    made.clear(DIGESTED)
    assert made.items(DIGESTED) == []


# ---------------------------------------------------------------------------------------------- map memory
# What maps take: the kernel's own sums, and what it charges.


SIZES = (
    MapSize("hash", MapType.HASH, 8, 8, 4096),
    MapSize("few", MapType.HASH, 4, 8, 1),
    MapSize("large", MapType.HASH, 16, 100, 100_000),
    MapSize("percpu", MapType.PERCPU_HASH, 8, 8, 50_000),
    MapSize("lru", MapType.LRU_HASH, 8, 8, 50_000),
    MapSize("percpu_lru", MapType.LRU_PERCPU_HASH, 24, 16, 7000),
    MapSize("array", MapType.ARRAY, 4, 8, 1000),
    MapSize("percpu_array", MapType.PERCPU_ARRAY, 4, 20, 1000),
)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (MapSize("m", MapType.HASH, 8, 8, 1024), (48 + 8 + 8) * (1024 + 4) + 16 * 1024),
        (MapSize("m", MapType.HASH, 5, 3, 1000), (48 + 8 + 8) * (1000 + 4) + 16 * 1024),
        (MapSize("m", MapType.HASH, 8, 8, 1024, 2), 2 * ((48 + 8 + 8) * (1024 + 4) + 16 * 1024)),
        (MapSize("m", MapType.PERCPU_HASH, 8, 12, 1024), (48 + 8 + 8 + 4 * 16) * 1024 + 16 * 1024),
        (MapSize("m", MapType.LRU_HASH, 8, 8, 1024), (48 + 8 + 8) * 1024 + 16 * 1024),
        (MapSize("m", MapType.ARRAY, 4, 5, 10), 80),
        (MapSize("m", MapType.RINGBUF, 0, 0, 1 << 20), 1 << 20),
    ],
)
def test_memory_by_type(size: MapSize, expected: int) -> None:
    assert loaded_script.planned_bytes(size, 4) == expected


@pytest.mark.kernel
@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.symbol)
def test_it_is_what_the_kernel_charges(size: MapSize) -> None:
    descriptor = bpf.map_create(size.type, size.key, size.value, size.entries, name="charged")
    try:
        charged = loaded_script.charged_bytes(descriptor)
    finally:
        os.close(descriptor)
    if not charged:
        pytest.skip("this kernel does not say what a map takes")
    planned = loaded_script.planned_bytes(size, len(perf.possible_cpus()))
    assert 0 <= charged - planned < 1500, "but for the map's own struct"


def test_several_maps_of_one_symbol_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_script.kernel_files, "read_text", lambda path: f"x:\t1\nmemlock:\t{path[-1]}0\n")
    assert watches.charged_by_symbol({"a": (3,), "b": (4, 5)}) == {"a": 30, "b": 90}
    monkeypatch.setattr(loaded_script.kernel_files, "read_text", lambda _path: "")
    assert watches.charged_by_symbol({"a": (3,)}) == {"a": 0}


# ---------------------------------------------------------------------------------------------- key digests
# Digests joined with the keys that they stand for.


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
    found = list(join_keys("@", blocks(rows, 2), blocks(KEYS, 4)))
    assert pairs(found) == sorted((b"key%07d" % number, b"value%03d" % number) for number in wanted)


def test_rows_with_buckets() -> None:
    buckets = [(number, bucket) for number in (7, 2) for bucket in (1, 9)]
    rows = {digest(number) + struct.pack("<Q", bucket): b"%d%d" % (number, bucket) for number, bucket in buckets}
    found = pairs(list(join_keys("@", blocks(rows), blocks(KEYS, 4))))
    assert found == sorted(
        (b"key%07d" % number + struct.pack("<Q", bucket), b"%d%d" % (number, bucket))
        for number, bucket in buckets
    )


@pytest.mark.parametrize("bucket", [b"", bytes(8)])
def test_a_row_without_a_key(bucket: bytes) -> None:
    rows = {digest(number) + bucket: b"1" for number in (3, 30)}
    with pytest.raises(InternalError, match="1 of 2 rows of @x have no key"):
        list(join_keys("@x", blocks(rows), blocks(KEYS)))


def test_keys_that_appear_while_rows_are_read() -> None:
    """A program stores the key before the row, so that keys which are read after the rows have that of each row."""
    stored: Pairs = {}

    def rows() -> Iterator[tuple[bytes, bytes, int]]:
        for number in range(3):
            stored[digest(number)] = KEYS[digest(number)]
            yield from blocks({digest(number): b"%d" % number})

    def keys() -> Iterator[tuple[bytes, bytes, int]]:
        yield from blocks(stored)

    assert pairs(list(join_keys("@", rows(), keys()))) == [(b"key%07d" % number, b"%d" % number) for number in range(3)]


def test_random_words_are_drawn_where_they_belong() -> None:
    drawn = []
    for _ in range(2):
        section = bytearray(64)
        loader.draw_random_words(memoryview(section), RandomWords(".bss", 16, 32))
        assert section[:16] == bytes(16)
        assert section[48:] == bytes(16)
        drawn.append(bytes(section[16:48]))
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(("refused", "flag"), [(False, 64), (True, 0)])
def test_one_order_where_the_kernel_allows_it(monkeypatch: pytest.MonkeyPatch, refused: bool, flag: int) -> None:
    maps = install(monkeypatch)
    maps.refused = errno.EPERM if refused else 0
    loader.same_order_flag.cache_clear()
    assert loader.same_order_flag() == flag
    loader.same_order_flag.cache_clear()
    assert [made.flags for made in maps.maps.values()] == ([] if refused else [64])
