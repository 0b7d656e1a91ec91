"""Stacks of addresses as stacks of functions, resolved once for each address and each stack of a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never, Protocol, TypeAlias, TypeVar

import msgspec

from pytrace.core.types import TRUNCATED, Stack, StackMode
from pytrace.render import names
from pytrace.results.values import TRUNCATED_FRAME, Frame, StackTrace
from pytrace.runtime.symbols.image_places import ImagePlace, LinkedPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KERNEL = "[kernel]"
"""Module of what is in the kernel proper."""
_BUILD_ID_VALID = 1
"""``BPF_STACK_BUILD_ID_VALID`` (``include/uapi/linux/bpf.h``); otherwise the frame has an address."""

Addresses: TypeAlias = tuple[int, tuple[int, ...], int]
"""A stack as it is decoded: process, addresses, error."""
BuildIds: TypeAlias = tuple[int, tuple[tuple[int, bytes, int], ...], int]
"""The same in mode ``build_id``: status, build id, and position in the file, or address, of each frame."""
_Decoded = TypeVar("_Decoded", Addresses, BuildIds)


class Symbols(names.Symbols, Protocol):
    """The symboliser as snapshots need it."""

    def kernel_place(self, address: int) -> ImagePlace:
        """Where a kernel address lies in what was linked."""

    def user_place(self, pid: int, address: int) -> ImagePlace:
        """Where an address of a process lies in what was linked."""

    def linked(self, pid: int, address: int) -> LinkedPlace | None:
        """Where an address of a process lies in a binary with a build id; None elsewhere."""


class _Resolved(msgspec.Struct, frozen=True):
    """Functions of an address: as that of the innermost frame, and as one where a call returns to.

    *interrupted*: handlers of signals return there, so the frame after it was interrupted and called nothing.
    """

    innermost: tuple[Frame, ...]
    calling: tuple[Frame, ...]
    interrupted: bool = False


_MARK = _Resolved((TRUNCATED_FRAME,), (TRUNCATED_FRAME,))


class StackTraces:
    """Resolves stacks. One object is for one snapshot: processes may run other programs before the next.

    *places*: functions in binaries with build ids are left to others, as :class:`pytrace.results.values.Frame` says.
    """

    def __init__(self, symbols: Symbols, *, places: bool = False) -> None:
        self._symbols, self._places = symbols, places
        self._kernel: dict[int, _Resolved] = {TRUNCATED: _MARK}
        self._processes: dict[int, dict[int, _Resolved]] = {}
        self._frames: dict[tuple[Frame, ...], tuple[Frame, ...]] = {}
        """The same place in many processes is one object."""

    def form(self, type_: Stack) -> Callable[[Never], StackTrace]:
        """A function that converts decoded stacks of a type to portable ones; equal ones are one object."""
        if type_.mode is StackMode.BUILD_ID:
            return _form(type_.user, _by_build_id)
        if type_.mode is StackMode.RAW:
            return _form(type_.user, _raw)
        return _form(type_.user, self._in_process if type_.user else self._in_kernel)

    def _in_kernel(self, value: Addresses) -> list[Frame]:
        return _joined(value[1], self._kernel, self._kernel_address)

    def _in_process(self, value: Addresses) -> list[Frame]:
        process, addresses, _ = value
        known = self._processes.setdefault(process, {TRUNCATED: _MARK})
        return _joined(addresses, known, lambda address: self._user_address(process, address))

    def _kernel_address(self, address: int) -> _Resolved:
        symbols = self._symbols
        frames = symbols.kernel(address)
        innermost = calling = _kernel_frames(frames, symbols.kernel_place(address))
        if names.in_source(frames):
            place = _after(symbols.kernel_place(address - 1))
            calling = _kernel_frames(symbols.kernel(address, caller=True), place)
        return _Resolved(innermost, calling)

    def _user_address(self, process: int, address: int) -> _Resolved:
        innermost = self._once(self._user_frames(process, address, caller=False))
        if self._symbols.trampoline(process, address):
            return _Resolved(innermost, innermost, interrupted=True)
        return _Resolved(innermost, self._once(self._user_frames(process, address, caller=True)))

    def _user_frames(self, process: int, address: int, *, caller: bool) -> tuple[Frame, ...]:
        """Frames of an address; *caller*: of one where a call returns to, by the last byte of the call."""
        symbols, byte = self._symbols, address - caller
        if self._places and (linked := symbols.linked(process, byte)) is not None:
            return (Frame("", linked.address, linked.module, linked.build_id, address=linked.address + caller),)
        place = symbols.user_place(process, byte)
        return _frames(symbols.user(process, address, caller=caller), _after(place) if caller else place)

    def _once(self, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        return self._frames.setdefault(frames, frames)


def _form(user: bool, frames: Callable[[_Decoded], list[Frame]]) -> Callable[[_Decoded], StackTrace]:
    traces: dict[_Decoded, StackTrace] = {}

    def convert(value: _Decoded) -> StackTrace:
        trace = traces.get(value)
        if trace is None:
            error = value[2]
            trace = traces[value] = StackTrace(tuple(frames(value)), user, names.unread(error))
        return trace

    return convert


def _joined(
    addresses: Sequence[int], known: dict[int, _Resolved], resolve: Callable[[int], _Resolved]
) -> list[Frame]:
    """The frames of all addresses; see :meth:`pytrace.render.names.Names.stack` for the rule."""
    frames: list[Frame] = []
    called = False
    for address in addresses:
        place = known.get(address)
        if place is None:
            place = known[address] = resolve(address)
        frames += place.calling if called else place.innermost
        called = not place.interrupted
    return frames


def _after(place: ImagePlace) -> ImagePlace:
    """The place of a return address, given that of the last byte of the call."""
    return ImagePlace(place.build_id, place.address + 1) if place.address else place


def _frames(found: Sequence[names.Frame], place: ImagePlace) -> tuple[Frame, ...]:
    """Portable frames of one address."""
    return tuple(
        Frame(
            one.name, one.offset, one.module, place.build_id, one.file, one.line, one.inlined, place.address
        )
        for one in found
    )  # fmt: skip


def _kernel_frames(found: Sequence[names.Frame], place: ImagePlace) -> tuple[Frame, ...]:
    return tuple(
        frame._replace(module=KERNEL) if frame.function and not frame.module else frame
        for frame in _frames(found, place)
    )


# ---------------------------------------------------------------------------------------------- modes of numbers


def _raw(value: Addresses) -> list[Frame]:
    return [TRUNCATED_FRAME if address == TRUNCATED else Frame("", address=address) for address in value[1]]


def _by_build_id(value: BuildIds) -> list[Frame]:
    return [
        TRUNCATED_FRAME if place == TRUNCATED
        else Frame("", build_id=identity.hex() if status == _BUILD_ID_VALID else "", address=place)
        for status, identity, place in value[1]
    ]  # fmt: skip
