"""Services: the tasks of a run beside the handling of events, called at each phase of the run."""

from __future__ import annotations

import msgspec


class EndOfRun(msgspec.Struct):
    """Decisions about the end of a run, which services change in :meth:`Service.finish`."""

    print_maps: bool
    """Whether the maps are printed."""
    found: list[str] = msgspec.field(default_factory=list)
    """Lines on what pictures that were written show, reported before their files."""
    written: list[str] = msgspec.field(default_factory=list)
    """Files that were written in place of output, each with its size, reported unless ``-q`` says not to."""
    errors: list[str] = msgspec.field(default_factory=list)
    """Errors, each a sentence, that are reported after everything else."""


class Service:
    """A service of a run, called by the thread that handles events. Each method is a phase of the run."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that end a wait for events when they become readable; asked once, after :meth:`begin`."""
        return ()

    @property
    def over(self) -> bool:
        """Whether the run is to end."""
        return False

    def attached(self) -> None:
        """All probes are attached; a dry run ends here."""

    def begin(self) -> None:
        """The traced command runs, and events are waited for from now on."""

    def pause(self, longest: float) -> float:
        """Seconds to wait for events, at most *longest*."""
        return longest

    def woken(self, ready: list[int]) -> None:
        """A wait has ended, *ready* are the readable descriptors; events have not been handled yet."""

    def work(self, handled: int) -> None:
        """Events have been handled, *handled* in number."""

    def exited(self) -> None:
        """The script called ``exit()``: what runs beside the run's thread ends, as its calls are still traced."""

    def stop(self) -> None:
        """The run ends; probes are still attached."""

    def finish(self, end: EndOfRun) -> None:
        """All events have been handled, and maps are about to be printed."""

    def report(self) -> None:
        """The run is over, and all of its output and losses have been printed."""

    def break_off(self) -> None:
        """The user does not wait for the end of the run: nothing more is printed or saved."""
