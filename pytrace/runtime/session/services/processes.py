"""Processes of a run: their mappings, for names of addresses, and their unwind tables, for ``dw_ustack``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pytrace.runtime.session.services.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import ExitStack

    from pytrace.runtime.load.loaded_script import LoadedScript
    from pytrace.runtime.symbols.lazy import LazySymbols


class Unwinding(Protocol):
    """Keeps the unwind tables of processes (:class:`pytrace.runtime.unwind.unwinder.Unwinder`)."""

    def add(self, pid: int) -> None:
        """Read what a process has mapped."""

    def update(self, changes: Iterable[tuple[str, int, int]]) -> None:
        """Take in what happened to processes."""


class NoUnwinding:
    """For scripts without ``dw_ustack``."""

    def add(self, pid: int) -> None:
        """Do nothing."""

    def update(self, changes: Iterable[tuple[str, int, int]]) -> None:
        """Do nothing."""


class NothingUnwound:
    """A script without ``dw_ustack``."""

    def entries(self) -> dict[str, int]:
        """Sizes of maps that differ from those of the manifest: none."""
        return {}

    def start(self, _loaded: LoadedScript, _stack: ExitStack, _message: Callable[[str], None]) -> NoUnwinding:
        """Read nothing."""
        return NoUnwinding()


class Processes(Service):
    """Keeps what is known of processes up to date."""

    def __init__(self, symbols: LazySymbols, unwinding: Unwinding) -> None:
        self._symbols = symbols
        self._unwinding = unwinding

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors of the kernel's records of mappings."""
        return tuple(self._symbols.descriptors)

    def add(self, pid: int) -> None:
        """Unwind the stacks of a process, too, if the script does that; again when its mappings have changed."""
        self._unwinding.add(pid)

    def woken(self, _ready: list[int]) -> None:
        """Take in what happened to processes: events that wait have addresses of theirs."""
        self._symbols.poll()
        self._unwinding.update(self._symbols.changes())
