"""User addresses in maps, without decoding or formatting what they are in."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from pytrace.core import types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytrace.core.manifest import MapSpec

Block = tuple[bytes, bytes, int]
_NAMED = (types.Stack, types.USym)


class Place(msgspec.Struct, frozen=True):
    """Where rows have a user stack of at most *frames* frames, or one address (0): in the key or *in_value*."""

    in_value: bool
    start: int
    frames: int


def places(spec: MapSpec) -> list[Place] | None:
    """All places of a keyed map with addresses that are shown by name; None when some lie deeper than members do."""
    found: list[Place] = []
    for in_value, kind in ((False, spec.key), (True, spec.value)):
        for start, inner in _leaves(kind, 0) if kind is not None else ():
            if isinstance(inner, types.Stack):
                if inner.mode is types.StackMode.BUILD_ID or not inner.user:
                    continue
                found.append(Place(in_value, start, inner.limit))
            elif isinstance(inner, types.USym):
                found.append(Place(in_value, start, 0))
            elif any(isinstance(part, _NAMED) for part in types.parts([inner])):
                return None
    return found


def _leaves(kind: types.Type, start: int) -> Iterator[tuple[int, types.Type]]:
    if not isinstance(kind, types.Members):
        yield start, kind
        return
    for member, offset in zip(kind.members, kind.offsets, strict=True):
        yield from _leaves(member, start + offset)


def collect(blocks: Iterable[Block], wanted: Sequence[Place], found: dict[int, set[int]]) -> None:
    """Add the addresses of all rows to those *found* of each process."""
    for keys, values, count in blocks:
        for place in wanted:
            data = values if place.in_value else keys
            if place.frames:
                _stacks(data, len(data) // count, place, found)
            else:
                _addresses(data, len(data) // count, place, found)


def _stacks(data: bytes, step: int, place: Place, found: dict[int, set[int]]) -> None:
    head = struct.Struct("=iI").unpack_from
    with memoryview(data) as whole:
        for at in range(place.start, len(data), step):
            frames, process = head(data, at)
            if frames > 0:
                start = at + types.Stack.header
                frames = min(frames, place.frames)
                found.setdefault(process, set()).update(whole[start : start + 8 * frames].cast("Q"))


def _addresses(data: bytes, step: int, place: Place, found: dict[int, set[int]]) -> None:
    read = struct.Struct("=QI").unpack_from
    for at in range(place.start, len(data), step):
        address, process = read(data, at)
        found.setdefault(process, set()).add(address)
