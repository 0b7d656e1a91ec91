"""Hash maps that answer bpf(2) in place of the kernel: what is asked of it is read from the bytes of the call.

Errors and limits of all kernels can so be had on each machine: no batch commands, buckets that are fuller than a batch
has room, maps that cannot be made.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pytrace.runtime.machine import syscalls
from pytrace.runtime.machine.bpf import Command


def _fail(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _read(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size)


@dataclass
class FakeMap:
    """One map. A bucket of the hash has *bucket* keys (the last one fewer); *value_size* counts all CPUs' copies."""

    kind: int
    key_size: int
    value_size: int
    entries: int
    flags: int = 0
    name: str = ""
    inner: int = 0
    bucket: int = 1
    pairs: dict[bytes, bytes] = field(default_factory=dict)

    def buckets(self) -> list[list[bytes]]:
        """The keys that are there, by bucket."""
        keys = list(self.pairs)
        return [keys[at : at + self.bucket] for at in range(0, len(keys), self.bucket)]


@dataclass
class FakeMaps:
    """Stands for ``syscalls.call``. *batches* is the error number of batch commands, 0 where the kernel has them."""

    maps: dict[int, FakeMap] = field(default_factory=dict)
    batches: int = 0
    refused: int = 0
    """Error number of creating maps, 0 where the kernel makes them."""
    calls: list[Command] = field(default_factory=list)

    def add(self, key_size: int, value_size: int, *, bucket: int = 1) -> int:
        """A hash map; gives its descriptor."""
        return self._open(FakeMap(1, key_size, value_size, 1 << 16, bucket=bucket))

    def _open(self, made: FakeMap) -> int:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        self.maps[descriptor] = made
        return descriptor

    def close(self) -> None:
        """Close the descriptors of maps that are still open."""
        for descriptor in self.maps:
            try:
                os.close(descriptor)
            except OSError:
                continue

    def call(self, name: str, number: int, address: int, size: int) -> int:
        """One call of bpf(2)."""
        assert name == "bpf"
        command = Command(number)
        self.calls.append(command)
        return _COMMANDS[command](self, address, size)

    def _create(self, address: int, size: int) -> int:
        if self.refused:
            raise _fail(self.refused)
        kind, key, value, entries, flags, inner, _, name = struct.unpack("=IIIIIII16s", _read(address, size))
        assert name[-1] == 0, "the name has no end"
        return self._open(FakeMap(kind, key, value, entries, flags, name.rstrip(b"\0").decode(), inner))

    def _element(self, address: int, size: int) -> tuple[FakeMap, int, int]:
        """The map, and the addresses of key and value."""
        descriptor, _, key, value, _ = struct.unpack("=IIQQQ", _read(address, size))
        return self.maps[descriptor], key, value

    def _lookup(self, address: int, size: int) -> int:
        found, key, value = self._element(address, size)
        data = found.pairs.get(_read(key, found.key_size))
        if data is None:
            raise _fail(errno.ENOENT)
        ctypes.memmove(value, data, found.value_size)
        return 0

    def _update(self, address: int, size: int) -> int:
        found, key, value = self._element(address, size)
        found.pairs[_read(key, found.key_size)] = _read(value, found.value_size)
        return 0

    def _delete(self, address: int, size: int) -> int:
        found, key, _ = self._element(address, size)
        if found.pairs.pop(_read(key, found.key_size), None) is None:
            raise _fail(errno.ENOENT)
        return 0

    def _next_key(self, address: int, size: int) -> int:
        found, key, after = self._element(address, size)
        keys = list(found.pairs)
        known = _read(key, found.key_size) if key else None
        # A key that is gone: the kernel starts again.
        at = keys.index(known) + 1 if known in keys else 0
        if at >= len(keys):
            raise _fail(errno.ENOENT)
        ctypes.memmove(after, keys[at], found.key_size)
        return 0

    def _batch(self, address: int, size: int, *, delete: bool) -> int:
        if self.batches:
            raise _fail(self.batches)
        before, after, keys, values, room, descriptor, _, _ = struct.unpack("=QQQQIIQQ", _read(address, size))
        found = self.maps[descriptor]
        start = struct.unpack("=I", _read(before, 4))[0] if before else 0
        buckets = found.buckets()
        count = 0
        taken: list[bytes] = []
        while start < len(buckets) and count + len(buckets[start]) <= room:
            for key in buckets[start]:
                ctypes.memmove(keys + count * found.key_size, key, found.key_size)
                ctypes.memmove(values + count * found.value_size, found.pairs[key], found.value_size)
                taken.append(key)
                count += 1
            start += 1
        ctypes.memmove(address + 32, struct.pack("=I", count), 4)
        if not count and start < len(buckets):
            raise _fail(errno.ENOSPC)
        for key in taken if delete else ():
            del found.pairs[key]
        ctypes.memmove(after, struct.pack("=I", 0 if delete else start), 4)
        if start >= len(buckets):
            raise _fail(errno.ENOENT)
        return 0

    def _update_batch(self, address: int, size: int) -> int:
        if self.batches:
            raise _fail(self.batches)
        _, _, keys, values, count, descriptor, _, _ = struct.unpack("=QQQQIIQQ", _read(address, size))
        found = self.maps[descriptor]
        for at in range(count):
            key = _read(keys + at * found.key_size, found.key_size)
            found.pairs[key] = _read(values + at * found.value_size, found.value_size)
        return 0


_COMMANDS: dict[Command, Callable[[FakeMaps, int, int], int]] = {
    Command.MAP_CREATE: FakeMaps._create,
    Command.MAP_LOOKUP_ELEM: FakeMaps._lookup,
    Command.MAP_UPDATE_ELEM: FakeMaps._update,
    Command.MAP_DELETE_ELEM: FakeMaps._delete,
    Command.MAP_GET_NEXT_KEY: FakeMaps._next_key,
    Command.MAP_LOOKUP_BATCH: lambda maps, address, size: maps._batch(address, size, delete=False),
    Command.MAP_LOOKUP_AND_DELETE_BATCH: lambda maps, address, size: maps._batch(address, size, delete=True),
    Command.MAP_UPDATE_BATCH: FakeMaps._update_batch,
}


def install(patch: Any) -> FakeMaps:
    """Have bpf(2) go to fake maps; *patch* is pytest's ``monkeypatch``."""
    made = FakeMaps()
    patch.setattr(syscalls, "call", made.call)
    return made
