"""Snapshots of fake runs: maps of :class:`tests.support.encode.Run` as plain data."""

from __future__ import annotations

from typing import Any, cast

from pytrace.render.forms import PortableForms
from pytrace.results.snapshot import MapData
from pytrace.runtime.session.snapshots import ReadMap, StackTraces, map_data
from pytrace.runtime.stacks.image_places import ImagePlace, LinkedPlace
from tests.support.encode import Run, Symbols


class Places(Symbols):
    """Symbols whose places are the addresses themselves; *moved* is how far a process has everything moved."""

    def __init__(self, *arguments: object, moved: dict[int, int] | None = None) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.moved = moved or {}

    def kernel_place(self, address: int) -> ImagePlace:
        return ImagePlace("cafe", address)

    def user_place(self, pid: int, address: int) -> ImagePlace:
        return ImagePlace("beef", address - self.moved.get(pid, 0))

    def linked(self, pid: int, address: int) -> LinkedPlace | None:
        files = {frame.module for frame in self.known.get(address, []) if frame.module.startswith("/")}
        place = self.user_place(pid, address)
        return LinkedPlace(files.pop(), place.build_id, place.address) if files else None


def forms(run: Run, symbols: Places | None = None) -> PortableForms:
    """Portable forms with the names of a run."""
    return PortableForms(run.renderer.forms.raw_texts, StackTraces(cast(Any, symbols or Places())))


def captured(run: Run, name: str, symbols: Places | None = None) -> MapData:
    """A map of a run."""
    (view,) = (view for view in run.renderer.views() if view.spec.name == name)
    return map_data(ReadMap.of(view), forms(run, symbols), lambda: None)
