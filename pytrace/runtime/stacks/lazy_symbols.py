"""A symboliser that is created for the first address that needs a name: most scripts need none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from pytrace.runtime.stacks.image_places import ImagePlace, LinkedPlace, MetBinaries
    from pytrace.runtime.stacks.images import SymbolFrame
    from pytrace.runtime.stacks.symbolizer import Symbolizer


class LazySymbols:
    """Stands for the symboliser that *make* returns, see :class:`pytrace.runtime.stacks.symbolizer.Symbolizer`."""

    def __init__(self, make: Callable[[], Symbolizer]) -> None:
        self._make = make
        self._made: Symbolizer | None = None
        self._ending: Callable[[Symbolizer], None] | None = None
        """What a symboliser is told that is made when the run is ending."""

    def _symbols(self) -> Symbolizer:
        if self._made is None:
            self._made = self._make()
            if self._ending is not None:
                self._ending(self._made)
        return self._made

    def kernel(self, address: int, *, caller: bool = False) -> list[SymbolFrame]:
        """Functions of a kernel address."""
        return self._symbols().kernel(address, caller=caller)

    def user(self, pid: int, address: int, *, caller: bool = False) -> list[SymbolFrame]:
        """Functions of an address of a process."""
        return self._symbols().user(pid, address, caller=caller)

    def kernel_place(self, address: int) -> ImagePlace:
        """Where a kernel address lies in what was linked."""
        return self._symbols().kernel_place(address)

    def user_place(self, pid: int, address: int) -> ImagePlace:
        """Where an address of a process lies in what was linked."""
        return self._symbols().user_place(pid, address)

    def linked(self, pid: int, address: int) -> LinkedPlace | None:
        """Where an address of a process lies in a binary with a build id; None elsewhere."""
        return self._symbols().linked(pid, address)

    def owner(self, process: int) -> int:
        """The process id of an image, or of a process that has images."""
        return self._symbols().owner(process)

    def origin(self, process: int, address: int) -> tuple[object, ...]:
        """What addresses with the same name have in common."""
        return self._symbols().origin(process, address)

    def met_binaries(self) -> MetBinaries | None:
        """The binaries that :meth:`linked` has met."""
        return None if self._made is None else self._made.met_binaries()

    def trampoline(self, pid: int, address: int) -> bool:
        """True if handlers of signals return to that address of a process."""
        return self._symbols().trampoline(pid, address)

    def start(
        self, pids: Iterable[int] | None = None, *, prompt: bool = False, images: tuple[int, int] | None = None
    ) -> None:
        """Follow mappings from now on."""
        self._symbols().start(pids, prompt=prompt, images=images)

    def attached(self) -> None:
        """The programs of the script are attached."""
        if self._made is not None:
            self._made.attached()

    def changes(self) -> list[tuple[str, int, int]]:
        """Changes of mappings since the last call."""
        return [] if self._made is None else self._made.changes()

    def pause(self, longest: float) -> float:
        """Seconds until :meth:`poll` is due, at most *longest*."""
        return longest if self._made is None else self._made.pause(longest)

    def poll(self) -> None:
        """Read the kernel's records of processes."""
        if self._made is not None:
            self._made.poll()

    def renew(self, cpu: int) -> list[int]:
        """Follow mappings on a CPU that came online. Returns the new descriptors."""
        return [] if self._made is None else self._made.renew(cpu)

    @property
    def descriptors(self) -> list[int]:
        """Descriptors that become readable when :meth:`poll` should be called."""
        return [] if self._made is None else self._made.descriptors

    def drained(self, moment: int) -> None:
        """All events up to a moment were handled."""
        if self._made is not None:
            self._made.drained(moment)

    def keyed(self, periods: Mapping[tuple[int, int], tuple[int, int]], searched: int, *, over: bool = False) -> None:
        """When stacks in keys of maps were taken."""
        self._symbols().keyed(periods, searched, over=over)

    def follow_code(self, pid: int) -> bool:
        """Read what a process has named of the code that it compiled."""
        return self._symbols().follow_code(pid)

    def prepare(self, addresses: Collection[tuple[int, int]]) -> Iterator[None]:
        """Read the source lines of user addresses in short steps."""
        return self._symbols().prepare(addresses)

    def wait_for(self, steps: Iterator[None], what: str) -> None:
        """Read to the end, as somebody waits for it."""
        self._symbols().wait_for(steps, what)

    def hurry(self, say: Callable[[str], None] | None) -> None:
        """The run is ending, and the user waits."""
        self._ending = lambda made: made.hurry(say)
        if self._made is not None:
            self._made.hurry(say)

    def give_up_lines(self) -> bool:
        """Show the rest without source lines; False when nobody is waiting for these."""
        return self._made is not None and self._made.give_up_lines()

    def notices(self) -> list[str]:
        """Sentences about names that are missing, for the end of the run."""
        return [] if self._made is None else self._made.notices()

    def close(self) -> None:
        """Stop following processes."""
        if self._made is not None:
            self._made.close()
