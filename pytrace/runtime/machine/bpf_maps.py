"""Map commands of bpf(2): single elements and batches.  Raw bytes in and out; see :mod:`.bpf`."""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING

from pytrace.runtime.machine import bpf_token, syscalls
from pytrace.runtime.machine.bpf import Command, command
from pytrace.runtime.machine.syscalls import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_BATCH = frozenset({errno.EINVAL, errno.EOPNOTSUPP, syscalls.ENOTSUPP})
"""Error numbers of batch commands on kernels or map types that lack them."""

_ELEMENT = struct.Struct("=IIQQQ")
_BATCH = struct.Struct("=QQQQIIQQ")


def create(
    kind: int, key_size: int, value_size: int, entries: int, *, flags: int = 0, name: str = "", inner: int = 0
) -> int:
    """Create a map.

    Args:
        kind: number of the type (``enum bpf_map_type``).
        key_size: bytes of a key.
        value_size: bytes of a value; for per-CPU maps of the value of one CPU.
        entries: most keys.
        flags: ``BPF_F_…``.
        name: for those who list the kernel's maps; truncated to 15 bytes.
        inner: descriptor of a map of the kind that a map of maps holds.

    Returns:
        Its descriptor.

    Raises:
        OSError: the kernel refuses (E2BIG: it does not allow that size).
    """
    token = bpf_token.token()
    flags |= bpf_token.FLAG if token is not None else 0
    attributes = struct.pack("=IIIIIII16s", kind, key_size, value_size, entries, flags, inner, 0, name.encode()[:15])
    if token is not None:
        attributes += struct.pack("=IIIIIQii", 0, 0, 0, 0, 0, 0, 0, token)
    return command(Command.MAP_CREATE, attributes)[0]


def lookup(descriptor: int, key: bytes, value_size: int) -> bytes | None:
    """The value of *key* (per-CPU maps: of all possible CPUs, *value_size* bytes in total), or None."""
    place, value = Memory(key), Memory(value_size)
    try:
        command(Command.MAP_LOOKUP_ELEM, _ELEMENT.pack(descriptor, 0, place.address, value.address, 0))
    except FileNotFoundError:
        return None
    return bytes(value.data)


def update(descriptor: int, key: bytes, value: bytes) -> None:
    """Set the value of *key* (per-CPU maps: of all possible CPUs)."""
    place, content = Memory(key), Memory(value)
    command(Command.MAP_UPDATE_ELEM, _ELEMENT.pack(descriptor, 0, place.address, content.address, 0))


def delete(descriptor: int, key: bytes) -> bool:
    """Remove *key*; False when it was not there."""
    place = Memory(key)
    try:
        command(Command.MAP_DELETE_ELEM, _ELEMENT.pack(descriptor, 0, place.address, 0, 0))
    except FileNotFoundError:
        return False
    return True


def next_key(descriptor: int, key: bytes | None, key_size: int) -> bytes | None:
    """The key after *key* (the first one for None), or None at the end."""
    before = Memory(key or b"")
    after = Memory(key_size)
    try:
        command(Command.MAP_GET_NEXT_KEY, _ELEMENT.pack(descriptor, 0, before.address, after.address, 0))
    except FileNotFoundError:
        return None
    return bytes(after.data)


class Batch:
    """A walk through a hash map by batches.

    The position that the kernel keeps between two calls (``u32`` bucket number for hashes) is held here.

    Args:
        descriptor: the map.
        key_size: bytes of a key.
        value_size: bytes of a value; for per-CPU maps of the values of all possible CPUs.
        capacity: most elements of one call; at least as many as the fullest bucket has.
    """

    def __init__(self, descriptor: int, key_size: int, value_size: int, capacity: int) -> None:
        self.descriptor = descriptor
        self._sizes = key_size, value_size
        self.capacity = capacity
        self.keys = Memory(key_size * capacity)
        self.values = Memory(value_size * capacity)
        self._position = Memory(max(8, key_size))
        self._started = False

    def read(self, *, delete: bool = False) -> tuple[int, bool]:
        """Fill :attr:`keys` and :attr:`values` from the next elements; return their number, and True at the end.

        With *delete* the elements are taken out of the map in the same step.

        Raises:
            OSError: ENOSPC when a bucket holds more than *capacity*; EINVAL or ENOTSUPP where batches are missing.
        """
        number = Command.MAP_LOOKUP_AND_DELETE_BATCH if delete else Command.MAP_LOOKUP_BATCH
        position = self._position.address
        attributes = Memory(
            _BATCH.pack(
                position if self._started else 0,
                position,
                self.keys.address,
                self.values.address,
                self.capacity,
                self.descriptor,
                0,
                0,
            )
        )
        end = False
        try:
            _run(number, attributes)
        except FileNotFoundError:
            end = True
        self._started = True
        return struct.unpack_from("=I", attributes.data, 32)[0], end

    def grow(self) -> None:
        """Double :attr:`capacity`; the walk goes on where it was."""
        self.capacity *= 2
        self.keys = Memory(self._sizes[0] * self.capacity)
        self.values = Memory(self._sizes[1] * self.capacity)


def _run(number: Command, attributes: Memory) -> None:
    syscalls.call("bpf", int(number), attributes.address, len(attributes.data))


def update_all(descriptor: int, keys: Sequence[bytes], value: bytes) -> None:
    """Set many keys to one value, by one batch where the kernel can."""
    if not keys:
        return
    places, contents = Memory(b"".join(keys)), Memory(value * len(keys))
    attributes = Memory(_BATCH.pack(0, 0, places.address, contents.address, len(keys), descriptor, 0, 0))
    try:
        _run(Command.MAP_UPDATE_BATCH, attributes)
    except OSError as error:
        if error.errno not in NO_BATCH:
            raise
        for key in keys:
            update(descriptor, key, value)
